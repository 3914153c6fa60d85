/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A gRPC client for unary calls with ready-made bytes, on the C core (libgrpc 1.51).
 *
 * All functions run on the loop thread. The core works on threads of its own; a thread of this
 * client's waits on the completion queue and wakes the loop with uv_async, so that callbacks run on
 * the loop thread too.
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
	/* host:port, http://host:port, https://host:port, dns:///host:port, unix:path, unix:///path
	 */
	const char *endpoint;
	struct tls_options tls; /* a scheme of the endpoint wins over tls.insecure */
	const struct grpc_header *headers;
	size_t n_headers;
	bool gzip; /* the peer is told grpc-encoding: gzip; messages say themselves whether they are
		    */
	const char *user_agent;
	uint64_t reconnect_max_ms; /* longest pause between two connection attempts */
};

struct grpc_answer {
	int status;	     /* enum rpc_status, or a number that is none */
	const char *message; /* the server's or the core's words, "" when there are none */
	const uint8_t *body; /* of an OK answer; NULL when empty */
	size_t body_len;
	const uint8_t *details; /* grpc-status-details-bin, decoded; NULL when there is none */
	size_t details_len;
	bool connected; /* false: certainly nothing reached the server */
};

/* Fails with -EINVAL on headers, endpoints and TLS settings that cannot work; does not connect. */
int grpc_client_new(const struct grpc_client_options *options, uv_loop_t *loop,
		    struct grpc_client **ret, struct error *err) _must_check_;
/*
 * Cancels what is under way, without callbacks, and waits for the core. The memory is freed when
 * the loop has closed the client's handle, so run the loop once more after this.
 */
struct grpc_client *grpc_client_free(struct grpc_client *client);

/*
 * One unary call. DATA is copied; GZIPPED tells that it is a compressed message already. DONE is
 * called once on the loop thread, never from inside this call; afterwards the call is gone.
 */
int grpc_client_call(struct grpc_client *client, const char *method, const void *data, size_t len,
		     bool gzipped, uint64_t timeout_ms,
		     void (*done)(const struct grpc_answer *answer, void *arg), void *arg,
		     struct grpc_unary **ret) _must_check_;
/* DONE comes soon, with RPC_CANCELLED or with an answer that was faster. */
void grpc_unary_cancel(struct grpc_unary *call);

/*
 * The endpoint as the core's target, and whether it is plaintext: exposed for tests.
 * TARGET is freed by the caller.
 */
int grpc_endpoint_parse(const char *endpoint, bool insecure, char **ret_target, bool *ret_plaintext,
			struct error *err) _must_check_;
