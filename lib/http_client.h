/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An HTTP client for POSTs with ready-made bodies: libcurl's multi interface on a libuv loop.
 * All functions run on the loop thread. Proxies come from the environment (HTTPS_PROXY, NO_PROXY,
 * ...) as libcurl reads it, redirects are not followed, TLS connections speak HTTP/2 where the
 * server can.
 */
#pragma once

#include "lib/base.h" /* before uv.h: sys/param.h defines MIN and MAX too */

#include <uv.h>

#include "lib/error.h"
#include "lib/tls.h"

enum {
	HTTP_CLIENT_BODY_MAX = 64 << 10
}; /* bytes of an answer that are kept; the rest is skipped */

struct http_client;
struct http_post;

struct http_header {
	const char *key, *value; /* the value may be secret */
};

struct http_client_options {
	const char *url;		   /* http:// or https:// */
	struct tls_options tls;		   /* `insecure` is ignored: the URL's scheme decides */
	const struct http_header *headers; /* sent with every request */
	size_t n_headers;
	const char *user_agent;
};

struct http_answer {
	int status; /* 0: there was no answer, MESSAGE tells why */
	const char *message;
	const uint8_t *body;
	size_t body_len;	 /* up to HTTP_CLIENT_BODY_MAX */
	const char *retry_after; /* the header, NULL when there was none */
	bool connected;		 /* false: it is certain that nothing reached the server */
	bool resent;		 /* sent more than once: the server may have taken it twice */
	bool timed_out;
	bool elsewhere; /* see http_client_stay() */
};

int http_client_new(const struct http_client_options *options, uv_loop_t *loop,
		    struct http_client **ret, struct error *err) _must_check_;
/* Drops all requests, without callbacks. Run the loop once more: the handles close there. */
struct http_client *http_client_free(struct http_client *client);

/*
 * BODY must live until DONE. CONTENT_ENCODING may be NULL. DONE is called once on the loop thread,
 * never from inside this call; afterwards the request is gone.
 */
int http_client_post(struct http_client *client, const char *content_type,
		     const char *content_encoding, const void *body, size_t len,
		     uint64_t timeout_ms, void (*done)(const struct http_answer *answer, void *arg),
		     void *arg, struct http_post **ret) _must_check_;
/*
 * While STAY is true, a request is not sent over a new connection; its answer has `elsewhere` set
 * then. `connected` tells whether it was sent over a kept connection before that one was closed.
 */
void http_client_stay(struct http_client *client, bool stay);
/*
 * Forgets the request; DONE is not called. False: certainly nothing of it reached the server, as
 * with an answer's `connected`.
 */
bool http_post_cancel(struct http_post *post);
