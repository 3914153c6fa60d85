/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by grpc_server.c (the server's life), grpc_server_connection.c (bytes and time limits of
 * one connection), grpc_server_request.c (nghttp2's callbacks for requests) and
 * grpc_server_stream.c (messages and the status of one stream). Loop thread only, except
 * stream_server.joining.
 */
#pragma once

#include "lib/grpc_server.h"

#include <nghttp2/nghttp2.h>
#include <pthread.h>

#include "lib/grpc_wire.h"

enum {
	CONNECTION_STREAMS = 4,
	CONNECTION_READ = 16 << 10,
	/* Two of nghttp2's largest frames. */
	CONNECTION_WRITE = 2 * ((16 << 10) + 9),
	/* Bytes of a request's header list: names, values and 32 a field (RFC 9113 §6.5.2). */
	HEADERS_MAX = 16 << 10,
	STATUS_TEXT_MAX = 512,
};

/* A message to be sent; wiped by message_free(). */
struct message {
	size_t len, at; /* with the gRPC prefix; `at`: bytes that nghttp2 has taken */
	uint8_t bytes[];
};

struct server_stream {
	struct server_connection *connection;
	struct server_stream *prev, *next; /* connection->streams */
	int32_t id;
	void *arg; /* ARG of the stream's callbacks; NULL: no callback may be called */

	/* Fields of the request's headers, until server_stream_open() has used them. */
	char *authorization;
	bool authorization_twice, is_post, is_grpc;
	int method; /* index in the options' `methods`; -1: unknown */
	size_t header_bytes;

	struct grpc_inbox in; /* received bytes that were not delivered yet */
	size_t unconsumed; /* received bytes for which the peer's window is not opened again yet */
	bool reading, half_closed, told_end;

	struct message *message; /* the message that nghttp2 has not taken completely; NULL: none */
	bool has_headers;	 /* the response's headers are submitted */
	bool sending, flushed;	 /* flushed: the message is in the output buffer, sent() is due */
	bool finishing;		 /* the status is due: no callback but closed() comes */
	bool has_trailers;
	int status;
	char text[STATUS_TEXT_MAX];
	uint64_t cut_ms; /* loop time at which the stream is reset; 0: none */
};

struct server_connection {
	struct stream_server *server;
	struct server_connection *prev, *next; /* server->connections */
	struct server_connection *due_next;    /* server->due */
	uv_poll_t poll;
	int fd, mask;
	nghttp2_session *session;
	struct server_stream *streams;
	unsigned int n_streams;
	uint8_t *rest; /* bytes that the socket has not taken yet; NULL: none */
	size_t rest_at, rest_len;
	uint64_t heard_ms, idle_ms; /* when the peer last sent bytes; when its last stream ended */
	uint64_t pinged_ms;	    /* 0: no ping waits for its answer */
	uint64_t peer_ping_ms; /* when the peer last pinged; 0: its next ping may come at once */
	unsigned int ping_strikes;
	bool due, failed; /* failed: the connection cannot go on */
};

struct stream_server {
	struct stream_server_options o;
	struct stream_server_events events;
	struct stream_server_counts counts;
	uv_loop_t *loop;
	nghttp2_session_callbacks *callbacks;
	nghttp2_option *option;
	struct server_connection *connections;
	struct server_connection *due, *due_last; /* connections that have work */
	uv_timer_t sweep;
	uv_idle_t run; /* active while a connection has work */
	uv_async_t wake;
	unsigned int open_handles;
	uint8_t in[CONNECTION_READ], out[CONNECTION_WRITE];
	size_t out_len;

	pthread_mutex_t lock; /* guards the members below */
	int *joining;	      /* connections that wait for the loop */
	size_t n_joining, joining_max;
};

/* grpc_server_connection.c */
/* Takes ownership of FD. */
void connection_new(struct stream_server *server, int fd);
/* Closes the connection. TELL: its streams get closed(). */
void connection_end(struct server_connection *c, bool tell);
/* Has the idle handle serve the connection in the next turn of the loop. */
void connection_due(struct server_connection *c);
void connection_run(struct server_connection *c);
void connection_sweep(struct server_connection *c, uint64_t now);
/* The peer pinged. */
void connection_on_ping(struct server_connection *c);
/* For nghttp2's send_data callback: appends LEN bytes of the stream's message to the output. */
int connection_write_data(struct server_connection *c, const uint8_t *header,
			  struct server_stream *s, size_t len);

/* grpc_server_request.c */
int server_callbacks_new(nghttp2_session_callbacks **ret);

/* grpc_server_stream.c */
struct server_stream *server_stream_new(struct server_connection *c, int32_t id);
/* nghttp2 has closed the stream. TELL: call closed(). */
void server_stream_free(struct server_stream *s, bool tell);
/* The request's headers are complete. */
void server_stream_open(struct server_stream *s);
/* The whole message is in the output. */
void server_stream_taken(struct server_stream *s);
/* Takes bytes of messages that were received. */
void server_stream_take(struct server_stream *s, const uint8_t *bytes, size_t len);
/* Delivers complete messages that the application has asked for. */
void server_stream_deliver(struct server_stream *s);
void server_stream_cut(struct server_stream *s);
