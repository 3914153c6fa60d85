/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct stream_server: a gRPC server of bidirectional methods
 * (https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md) on nghttp2. It does not listen:
 * connections are given to it, in plaintext. All functions but stream_server_add() and all
 * callbacks run on the loop thread.
 *
 * Each stream sends one message at a time, and reads one message each time that it is asked to. So
 * a stream that is not read holds the peer back by HTTP/2 flow control, and messages that wait to
 * be sent stay with the application, which can drop stale ones.
 *
 * Not libgrpc: Debian 12 has its 1.51 of 2022, without the security fixes of later releases, and
 * unauthenticated peers talk to this server. nghttp2 gets Debian's security updates.
 */
#pragma once

#include "lib/base.h" /* before uv.h: sys/param.h defines MIN and MAX too */

#include <uv.h>

#include "lib/error.h"
#include "lib/rpc_status.h"

struct stream_server;
struct server_stream;

/* The request that opened a stream; valid during the callback. */
struct stream_request {
	size_t method;		   /* index in the options' `methods` */
	const char *authorization; /* secret; "" when absent or there twice */
	int fd;			   /* the connection's, as given to stream_server_add() */
};

struct stream_server_events {
	/*
	 * A stream was opened, within the limits. Returns the ARG of its other callbacks; NULL
	 * refuses the stream with UNAVAILABLE, and no other callback comes.
	 */
	void *(*opened)(void *arg, struct server_stream *stream,
			const struct stream_request *request);
	/* The message that server_stream_read() asked for. DATA NULL: the peer has ended its side;
	 * told once. */
	void (*received)(void *stream_arg, const uint8_t *data, size_t len);
	/* The last message was written: server_stream_send() accepts the next one. */
	void (*sent)(void *stream_arg);
	/* The last callback: the stream is gone afterwards. */
	void (*closed)(void *stream_arg);
	void *arg;
};

struct stream_server_options {
	const char *const *methods; /* "/package.Service/Method", ends with NULL; borrowed */
	size_t max_streams;	    /* further streams are refused with RESOURCE_EXHAUSTED */
	size_t max_message;	    /* bytes; a larger message ends the stream */
	uint64_t idle_ms;	    /* a connection without streams is closed after this */
	/* Silence until this side pings; shortest time between the peer's pings. */
	uint64_t keepalive_ms, ping_min_ms;
};

struct stream_server_counts {
	uint64_t opened;
	uint64_t refused;	 /* streams beyond max_streams */
	uint64_t unknown_method; /* answered with UNIMPLEMENTED */
	uint64_t cut; /* streams reset because the peer did not take the status in time */
	size_t open;
};

int stream_server_new(const struct stream_server_options *options,
		      const struct stream_server_events *events, uv_loop_t *loop,
		      struct stream_server **ret, struct error *err) _must_check_;
/*
 * Cuts every stream off, without callbacks. The memory is freed when the loop has closed the
 * handles, so run the loop once more after this. Not from a callback.
 */
struct stream_server *stream_server_free(struct stream_server *server);
/* Writes everything that is due now, for a caller that frees the server next. Not from a
 * callback. */
void stream_server_flush(struct stream_server *server);
/* FD: a connected, non-blocking stream socket; the server owns it from here on. Any thread. */
void stream_server_add(struct stream_server *server, int fd);
void stream_server_read(const struct stream_server *server, struct stream_server_counts *ret);

/* DATA is copied, and the copy wiped once it is sent. -EBUSY before sent(); -ENOTCONN once the
 * stream ends. */
int server_stream_send(struct server_stream *stream, const void *data, size_t len) _must_check_;
/* Asks for one more message; does nothing while the last request is open. */
void server_stream_read(struct server_stream *stream);
/*
 * Ends the stream with a status: nothing is received or sent after it. closed() follows, a few
 * seconds later at the latest, if the peer does not take what is still being sent. Further calls do
 * nothing.
 */
void server_stream_finish(struct server_stream *stream, int status, const char *message);
bool server_stream_finishing(const struct server_stream *stream);
