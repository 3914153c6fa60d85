/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct grpc_stream: a client of one bidirectional gRPC stream, built like lib/grpc_client.h.
 *
 * Made once, connected as often as needed, one connection at a time. Each connection has settings
 * of its own, so the next one can use new certificates, headers or another endpoint. It never
 * reconnects by itself. All functions and callbacks run on the loop thread.
 *
 * A received message is delivered before more is read, so a slow caller slows the peer down, by
 * HTTP/2 flow control. One message is sent at a time: messages that wait stay with the caller, who
 * can drop stale ones.
 */
#pragma once

#include "lib/grpc_client.h"

struct grpc_stream_options {
	struct grpc_client_options client; /* gzip does not apply */
	const char *method;		   /* "/package.Service/Method" */
	size_t message_max; /* bytes; a larger message ends the stream with RESOURCE_EXHAUSTED */
	/* Silence until a ping is sent; 0: no pings; the peer must allow pings this often. */
	uint64_t keepalive_ms;
};

struct grpc_stream_events {
	/*
	 * The connection has written the headers or the last message: grpc_stream_send() accepts
	 * the next message.
	 */
	void (*writable)(void *arg);
	void (*message)(const uint8_t *data, size_t len, void *arg);
	/*
	 * The connection has ended, or could not be opened; its last callback. STATUS is enum
	 * rpc_status or a number outside of it, MESSAGE the peer's or the client's words.
	 * grpc_stream_connect() may be called from here.
	 */
	void (*closed)(int status, const char *message, void *arg);
	void *arg;
};

struct grpc_stream;

int grpc_stream_new(const struct grpc_stream_events *events, uv_loop_t *loop,
		    struct grpc_stream **ret, struct error *err) _must_check_;
/*
 * Ends the connection, without callbacks. May be called from a callback. The memory is freed when
 * the loop has closed the handles, so run the loop once more.
 */
struct grpc_stream *grpc_stream_free(struct grpc_stream *s);

/*
 * On failure nothing was begun and no callback comes: -EINVAL with words on settings that cannot
 * work, -EBUSY while there is a connection. On success closed() is called once, as the last
 * callback, never from inside this function.
 */
int grpc_stream_connect(struct grpc_stream *s, const struct grpc_stream_options *options,
			struct error *err) _must_check_;
/* DATA is copied. -EAGAIN: not writable; -ENOTCONN: there is no connection, or it ends. */
int grpc_stream_send(struct grpc_stream *s, const void *data, size_t len) _must_check_;
/* Ends the connection: closed() comes soon, and no message before it. Does nothing without a
 * connection. */
void grpc_stream_disconnect(struct grpc_stream *s);
bool grpc_stream_busy(const struct grpc_stream *s); /* from grpc_stream_connect() to closed() */
