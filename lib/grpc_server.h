/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct stream_server: a gRPC server of bidirectional methods
 * (https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md) on nghttp2. It does not listen:
 * connections are given to it, in plaintext. All functions but stream_server_add() and all
 * callbacks run on the loop thread.
 *
 * Each stream sends one message at a time and reads one at a time, only when asked to: who does not
 * read on holds the peer back by HTTP/2 flow control, and who keeps what waits to be sent decides
 * what of it has become stale.
 *
 * Not libgrpc: Debian 12 has its 1.51 of 2022, without the security fixes of later releases, and
 * peers that nobody knows yet talk to this server. nghttp2 gets Debian's security updates.
 */
#pragma once

#include "lib/base.h" /* before uv.h: sys/param.h defines MIN and MAX too */

#include <uv.h>

#include "lib/error.h"
#include "lib/rpc_status.h"

struct stream_server;
struct server_stream;

/* What a stream began with; valid during the call. */
struct stream_request {
	size_t method;		   /* of the options' */
	const char *authorization; /* secret; "" when absent or there twice */
	int fd;			   /* of its connection: what stream_server_add() was given */
};

struct stream_server_events {
	/*
	 * A stream that is within the limits. The result is the ARG of the other callbacks; NULL:
	 * refused as UNAVAILABLE, no callback comes.
	 */
	void *(*opened)(void *arg, struct server_stream *stream,
			const struct stream_request *request);
	/* What server_stream_read() asked for. DATA NULL: the peer sends no more; told once. */
	void (*received)(void *stream_arg, const uint8_t *data, size_t len);
	/* server_stream_send() takes the next. */
	void (*sent)(void *stream_arg);
	/* The last callback: the stream is gone afterwards. */
	void (*closed)(void *stream_arg);
	void *arg;
};

struct stream_server_options {
	const char *const *methods;	    /* "/package.Service/Method", NULL last; borrowed */
	size_t max_streams;		    /* more are refused with RESOURCE_EXHAUSTED */
	size_t max_message;		    /* bytes that are received; more end the stream */
	uint64_t idle_ms;		    /* connections without a stream are closed */
	uint64_t keepalive_ms, ping_min_ms; /* our pings; the peer's may be so close together */
};

struct stream_server_counts {
	uint64_t opened;
	uint64_t refused;	 /* beyond max_streams */
	uint64_t unknown_method; /* answered with UNIMPLEMENTED */
	uint64_t cut;		 /* did not take the end that it was told, and were cut off */
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
/* Sends now what is due, for who frees it next. Not from a callback. */
void stream_server_flush(struct stream_server *server);
/* FD is a connected stream socket that does not block, and is taken over. Any thread. */
void stream_server_add(struct stream_server *server, int fd);
void stream_server_read(const struct stream_server *server, struct stream_server_counts *ret);

/* DATA is copied, and the copy wiped once it is sent. -EBUSY before sent(); -ENOTCONN once the
 * stream ends. */
int server_stream_send(struct server_stream *stream, const void *data, size_t len) _must_check_;
/* One more message, please; does nothing when that was asked already. */
void server_stream_read(struct server_stream *stream);
/*
 * Ends it with a status: nothing is received or sent any more, closed() follows, at the latest when
 * the peer has had a few seconds to take what is under way. The first call counts.
 */
void server_stream_finish(struct server_stream *stream, int status, const char *message);
bool server_stream_finishing(const struct server_stream *stream);
