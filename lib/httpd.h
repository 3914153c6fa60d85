/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct httpd: a small HTTP/1.1 server on an existing libuv loop: exact routes, bounded
 * everything, no files. libwebsockets does the protocol. All functions belong to the loop's thread.
 *
 * A handler answers at once with httpd_reply(), or calls httpd_keep() and answers later. Each
 * request ends exactly once: by httpd_reply(), or by the on_gone callback given to httpd_keep()
 * (the client went away, time is up, or the server closes); after either, the request no longer
 * exists.
 *
 * A handler may also stream its answer: httpd_stream_start().
 *
 * Every answer closes its connection. When all connections are taken, further clients wait in the
 * kernel's backlog.
 */
#pragma once

#include "lib/base.h" /* before uv.h: sys/param.h defines MIN and MAX too */
#include "lib/error.h"

#include <uv.h>

enum {
	HTTPD_ROUTES_MAX = 32,
	HTTPD_PATH_MAX = 1024,	     /* bytes of the decoded path; longer: 414 */
	HTTPD_PARAMS_MAX = 32,	     /* query parameters; more: 414 */
	HTTPD_PARAM_MAX = 1024,	     /* bytes of one "name=value"; longer: 414 */
	HTTPD_HEAD_MAX = 16384,	     /* request line and headers; more: the connection is dropped */
	HTTPD_BODY_MAX = 65536,	     /* request body; more: 413 */
	HTTPD_REPLY_MAX = 256 << 20, /* body of an answer */
	HTTPD_KEEP_MAX_S = 3600,     /* longest time for which a request can be kept */
	HTTPD_HEADER_MAX = 1024, /* bytes of a header value that handlers can read; longer: 400 */
	/* Bytes that the kernel buffers for a client that reads slowly. */
	HTTPD_STREAM_SNDBUF = 131072
};

enum httpd_method {
	HTTPD_GET = 1, /* a route with GET answers HEAD too */
	HTTPD_HEAD = 2,
	HTTPD_POST = 4,
	HTTPD_PUT = 8,
	HTTPD_DELETE = 16,
	HTTPD_OTHER = 32, /* OPTIONS, PATCH: never allowed */
};

struct httpd;
struct httpd_request;

struct httpd_route {
	const char *path;     /* exact: "/metrics" */
	unsigned int methods; /* bits of enum httpd_method */
	void (*handle)(struct httpd_request *req, void *user);
	void *user;
};

/* PEM files, read once. cert_file NULL: no TLS. With client_ca_file only clients with a certificate
 * that this CA has signed are served. TLS 1.2 or newer. */
struct httpd_tls {
	const char *cert_file, *key_file, *client_ca_file;
};

struct httpd_options {			/* zero-initialised: the defaults */
	const char *host;		/* NULL: 127.0.0.1; "": all addresses */
	uint16_t port;			/* 0: any free one, see httpd_port() */
	unsigned int max_connections;	/* default 64 */
	unsigned int request_timeout_s; /* default 10: until the request is complete */
	unsigned int send_timeout_s;	/* default 30: without progress while the answer is sent */
	struct httpd_tls tls;
};

/*
 * Listens. Routes are copied (their strings are not). On failure *ret is untouched and ERR says
 * "cannot listen on ADDRESS: CAUSE".
 */
int httpd_new(uv_loop_t *loop, const struct httpd_options *options,
	      const struct httpd_route *routes, size_t n_routes, struct httpd **ret,
	      struct error *err) _must_check_;
/*
 * Stops listening, calls on_gone of kept requests, drops the connections. The memory is freed by
 * the loop: run it until it has nothing left. Takes NULL, returns NULL. Not from a handler.
 */
struct httpd *httpd_free(struct httpd *h);
DEFINE_CLEANUP(struct httpd *, httpd_free)

uint16_t httpd_port(const struct httpd *h);
const char *httpd_address(const struct httpd *h); /* "127.0.0.1:1777" */
unsigned int httpd_connections(const struct httpd *h);

/* ---- inside a handler, until the request ends ------------------------------------------------ */

enum httpd_method httpd_request_method(const struct httpd_request *req);
const char *httpd_request_path(const struct httpd_request *req);
/* The decoded value of the first parameter with this name, "" for a bare name, NULL without one. */
const char *httpd_request_param(const struct httpd_request *req, const char *name);
/*
 * A decimal parameter in [MIN, MAX]; FALLBACK when the parameter is missing. -EINVAL when it is not
 * a number in that range; ERR says what was wanted.
 */
int httpd_request_param_u64(const struct httpd_request *req, const char *name, uint64_t min,
			    uint64_t max, uint64_t fallback, uint64_t *ret, struct error *err);
const void *httpd_request_body(const struct httpd_request *req, size_t *ret_len);

enum httpd_request_header {
	HTTPD_HOST,
	HTTPD_ORIGIN,
	HTTPD_AUTHORIZATION,
	HTTPD_SEC_FETCH_SITE,
	HTTPD_REQUEST_HEADERS
};
/* NULL when the client did not send it. */
const char *httpd_request_header(const struct httpd_request *req, enum httpd_request_header which);

struct httpd_header {
	const char *name, *value;
};

/*
 * Answers and ends the request. BODY is copied. Every answer has these headers unless the caller
 * gives one of the same name: Content-Security-Policy, Cache-Control, Cross-Origin-Resource-Policy,
 * Referrer-Policy, X-Content-Type-Options, X-Frame-Options.
 */
void httpd_reply(struct httpd_request *req, unsigned int status, const char *content_type,
		 const struct httpd_header *headers, size_t n_headers, const void *body,
		 size_t len);
/* One line of plain text. */
void httpd_reply_text(struct httpd_request *req, unsigned int status, const char *format, ...)
    _printf_(3, 4);

/*
 * The answer comes later. After TIMEOUT_S seconds the server answers 504 itself. ON_GONE is called
 * at most once, never from inside httpd_keep() or httpd_reply().
 */
void httpd_keep(struct httpd_request *req, unsigned int timeout_s,
		void (*on_gone)(struct httpd_request *req, void *user), void *user);

/*
 * An answer that is sent in pieces, until one side ends it. One piece is sent at a time, so a slow
 * client makes the server hold no more than that. ON_SENT is called when the last piece (the
 * headers are the first) is in the socket completely; it may send the next one. A client that takes
 * nothing of a piece for send_timeout_s is dropped. ON_GONE is called once, however the stream
 * ends, except after httpd_stream_end().
 */
struct httpd_stream_callbacks {
	void (*on_sent)(struct httpd_request *req, void *user);
	void (*on_gone)(struct httpd_request *req, void *user);
	void *user;
};
void httpd_stream_start(struct httpd_request *req, const char *content_type,
			const struct httpd_header *headers, size_t n_headers,
			const struct httpd_stream_callbacks *callbacks);
/* DATA is copied. -EBUSY while a piece is under way, -ENOMEM, -E2BIG. */
int httpd_stream_send(struct httpd_request *req, const void *data, size_t len) _must_check_;
/* Closes; the request no longer exists. */
void httpd_stream_end(struct httpd_request *req);
/* For ON_GONE: whether the client was dropped because it did not read. */
bool httpd_stream_stalled(const struct httpd_request *req);
