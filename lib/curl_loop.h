/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct curl_loop: a pool of connections (libcurl's multi interface) that a libuv loop drives.
 * Everything on the loop thread.
 *
 * curl refuses most calls from inside its own callbacks. These functions may be called from
 * anywhere, such a callback included: they add and drop transfers and free the pool at once, or
 * defer that until curl has returned. curl may still call the callbacks of a dropped transfer until
 * its dropped() was called; they must check `gone` first and then return an error to curl.
 */
#pragma once

#include "lib/base.h" /* before uv.h: sys/param.h defines MIN and MAX too */

#include <curl/curl.h>
#include <uv.h>

struct curl_loop;

/* Embedded in its owner's struct, which must live until done() or dropped() is called. When
 * these are called the easy handle is out of the pool, and they free it; done() may also free
 * the pool. */
struct curl_transfer {
	CURL *easy;
	void (*done)(struct curl_transfer *t, CURLcode code);
	void (*dropped)(struct curl_transfer *t);
	bool gone; /* dropped by its owner */
	/* The pool's own. */
	enum { CURL_TRANSFER_OUT, CURL_TRANSFER_DUE, CURL_TRANSFER_IN } state;
	struct curl_transfer *prev, *next, *ahead_prev, *ahead_next;
	bool read_ahead;
};

/* POOL_MAX: how many idle connections are kept. -ENOMEM. */
int curl_loop_new(uv_loop_t *loop, unsigned int pool_max, struct curl_loop **ret) _must_check_;
/* All transfers must have been dropped. Run the loop once more: the handles close there. */
struct curl_loop *curl_loop_free(struct curl_loop *l);

/*
 * To be called before curl_loop_add(). Makes OpenSSL read everything that has arrived at once,
 * instead of each TLS record with two system calls. All transfers of the pool must do so. Not for
 * connections through a proxy that speaks TLS itself. Without OpenSSL below curl this does nothing.
 */
void curl_loop_read_ahead(struct curl_loop *l, struct curl_transfer *t);
/* done() is called later, from the loop. -ENOMEM: it is not called. */
int curl_loop_add(struct curl_loop *l, struct curl_transfer *t) _must_check_;
/* dropped() comes from inside this call, or as soon as curl returns. */
void curl_loop_drop(struct curl_loop *l, struct curl_transfer *t);

/*
 * Makes curl use another server name for TLS, for which it has no option: the URL gets NAME,
 * CURLOPT_CONNECT_TO (*RET_CONNECT_TO) directs the connection to the real host, and the Host header
 * (*RET_HOST) names the real host. *URL is replaced. -EINVAL: the URL or the name is invalid.
 */
int curl_override_name(char **url, const char *name, char **ret_host,
		       char **ret_connect_to) _must_check_;
/*
 * The value of CURLOPT_NOPROXY for a URL that curl_override_name() has changed. By itself curl
 * would compare the environment's no_proxy with the overriding name; this function compares it with
 * AUTHORITY, which is *RET_HOST.
 */
const char *curl_no_proxy(const char *authority);
/* Appends "KEY: VALUE" to *LIST. */
int curl_add_header(struct curl_slist **list, const char *key, const char *value) _must_check_;
