/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A gRPC client for unary calls with ready-made bytes, on nghttp2, OpenSSL and libuv. It has no
 * threads: all functions and callbacks run on the loop thread; only names are resolved on libuv's
 * pool.
 *
 * Debian has the C core (libgrpc) only as 1.51 of 2022, without later security fixes, and it costs
 * a process seven threads and timers that never rest.
 *
 * The first call opens a connection, which is kept for the following calls. When it is gone, the
 * next call opens another one. A proxy is used as gRPC's documents say: $grpc_proxy, $https_proxy
 * or $http_proxy, and $no_grpc_proxy or $no_proxy (lib/http_proxy.h).
 */
#pragma once

#include "lib/base.h" /* before uv.h: sys/param.h defines MIN and MAX too */

#include <uv.h>

#include "lib/error.h"
#include "lib/rpc_status.h"
#include "lib/tls.h"

struct grpc_client;
struct grpc_unary;

struct grpc_header {
	const char *key, *value; /* lower-cased by the client; the value may be secret */
};

struct grpc_client_options {
	const char *endpoint;	/* see lib/grpc_target.h */
	struct tls_options tls; /* a scheme in the endpoint overrides tls.insecure */
	const struct grpc_header *headers;
	size_t n_headers;
	bool gzip; /* send grpc-encoding: gzip; each message says whether it is compressed */
	const char *user_agent;
};

struct grpc_answer {
	int status;	     /* enum rpc_status, or a number outside of it that the server sent */
	const char *message; /* the server's or the client's message, "" when there is none */
	const uint8_t *body; /* of an OK answer; NULL when empty */
	size_t body_len;
	const uint8_t *details; /* grpc-status-details-bin, decoded; NULL when there is none */
	size_t details_len;
	/*
	 * False: it is certain that no server has acted on the call. There was no connection, or
	 * the server said so (RST_STREAM with REFUSED_STREAM, a GOAWAY that leaves it out).
	 */
	bool connected;
};

/*
 * Fails with -EINVAL on headers, endpoints and TLS settings that cannot work; does not connect. The
 * files of TLS are read again for each connection, so they have to stay.
 */
int grpc_client_new(const struct grpc_client_options *options, uv_loop_t *loop,
		    struct grpc_client **ret, struct error *err) _must_check_;
/*
 * Cancels all calls, without their callbacks. May be called from a callback. The memory is freed
 * when the loop has closed the client's handles, so run the loop once more after this.
 */
struct grpc_client *grpc_client_free(struct grpc_client *client);

/*
 * One unary call. DATA is copied; GZIPPED: it is a gzip-compressed message. DONE is called once on
 * the loop thread, never from inside this call; afterwards the call is gone.
 */
int grpc_client_call(struct grpc_client *client, const char *method, const void *data, size_t len,
		     bool gzipped, uint64_t timeout_ms,
		     void (*done)(const struct grpc_answer *answer, void *arg), void *arg,
		     struct grpc_unary **ret) _must_check_;
/* False: the next call has to open a connection first. */
bool grpc_client_connected(const struct grpc_client *client);
/* DONE comes soon, with RPC_CANCELLED or with the answer if that came first. False: it is certain
 * that no server has acted on the call, see `connected`. */
bool grpc_unary_cancel(struct grpc_unary *call);
