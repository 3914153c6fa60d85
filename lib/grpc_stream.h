/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct grpc_stream: a client of one bidirectional gRPC stream, on what lib/grpc_client.h stands
 * on.
 *
 * Made once, connected as often as needed, one connection at a time; each connection has settings
 * of its own, so that the next one takes new certificates, headers or another endpoint, and nothing
 * connects again by itself. All functions and callbacks run on the loop thread.
 *
 * What arrives is told before more is read: a caller that is slow slows the peer down, by HTTP/2
 * flow control. What is sent goes one message at a time: the caller keeps what
 * waits and decides what of it has become stale.
 */
#pragma once

#include "lib/grpc_client.h"

struct grpc_stream_options {
	struct grpc_client_options client; /* gzip does not apply */
	const char *method;		   /* "/package.Service/Method" */
	size_t message_max;		   /* bytes; a larger one ends it with RESOURCE_EXHAUSTED */
	uint64_t keepalive_ms; /* of silence until a ping; 0: none; the peer must allow as many */
};

struct grpc_stream_events {
	/*
	 * The connection is up and took what was to be sent (first the headers, then each message):
	 * grpc_stream_send() takes the next.
	 */
	void (*writable)(void *arg);
	void (*message)(const uint8_t *data, size_t len, void *arg);
	/*
	 * The end of what grpc_stream_connect() began, the last callback of that connection. STATUS
	 * is an enum rpc_status or a number that is none, MESSAGE the peer's or the client's words.
	 * grpc_stream_connect() may be called from here.
	 */
	void (*closed)(int status, const char *message, void *arg);
	void *arg;
};

struct grpc_stream;

int grpc_stream_new(const struct grpc_stream_events *events, uv_loop_t *loop,
		    struct grpc_stream **ret, struct error *err) _must_check_;
/*
 * Ends what is under way, without callbacks; from a callback, too. Memory is freed when the loop
 * has closed the handles, so run the loop once more.
 */
struct grpc_stream *grpc_stream_free(struct grpc_stream *s);

/*
 * -EINVAL with words on settings that cannot work, -EBUSY while there is a connection: nothing was
 * begun, no callback comes. 0: closed() comes once, after anything else, never from inside this.
 */
int grpc_stream_connect(struct grpc_stream *s, const struct grpc_stream_options *options,
			struct error *err) _must_check_;
/* DATA is copied. -EAGAIN: not writable; -ENOTCONN: there is no connection, or it ends. */
int grpc_stream_send(struct grpc_stream *s, const void *data, size_t len) _must_check_;
/* Ends the connection: closed() comes soon, no message before it. Does nothing when there is none.
 */
void grpc_stream_disconnect(struct grpc_stream *s);
bool grpc_stream_busy(const struct grpc_stream *s); /* connect to closed */
