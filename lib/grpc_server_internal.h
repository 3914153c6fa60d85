/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What grpc_server.c (the server's life), grpc_server_accept.c (new calls) and grpc_server_stream.c
 * (one call) share. Loop thread only.
 */
#pragma once

#include "lib/grpc_server.h"

#include <grpc/grpc_security.h>

#include "lib/grpc_queue.h"

enum { STREAM_SERVER_ACCEPTS = 32 };

struct accept {
	struct grpc_tag tag;
	struct stream_server *server;
	grpc_call *call;
	grpc_call_details details;
	grpc_metadata_array metadata;
};

struct server_stream {
	struct stream_server *server;
	struct server_stream *prev, *next; /* server->streams */
	grpc_call *call;
	void *arg; /* NULL: nobody listens */
	struct grpc_tag close, receive, send, finish;
	unsigned int pending;
	bool has_headers; /* ours are out */
	bool receiving, sending;
	bool finishing; /* an end is due: nothing more is told but that */
	bool has_finish;
	bool closed; /* the core says that the call is over */
	int cancelled;
	int status;
	char *message;
	uint64_t cut_ms; /* loop time when it is cut off; 0: not due */
	grpc_byte_buffer *body;
};

struct stream_server {
	struct grpc_queue queue;
	struct stream_server_events events;
	struct stream_server_counts counts;
	const char *method;
	size_t max_streams;
	grpc_server *core;
	grpc_server_credentials *credentials; /* none: connections come in plaintext */
	struct accept accepts[STREAM_SERVER_ACCEPTS];
	struct server_stream *streams;
	struct grpc_tag shutdown;
	uv_timer_t sweep;
	unsigned int open_handles;
};

/* grpc_server_accept.c: has the core ask for calls, and gives back what it asked with. */
int stream_server_accept(struct stream_server *server, struct error *err) _must_check_;
void stream_server_accept_done(struct stream_server *server);

/* grpc_server_stream.c */
/* CALL is taken over. NULL: it is gone, for there was no memory or the core would not. */
struct server_stream *server_stream_new(struct stream_server *server, grpc_call *call);
/* Only when nothing of it is under way, or the queue has stopped. */
void server_stream_free(struct server_stream *s);
/* Cuts off those who do not take their end. */
void stream_server_sweep(uv_timer_t *timer);
