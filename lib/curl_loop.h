/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct curl_loop: a pool of connections (libcurl's multi interface) that a libuv loop drives.
 * Everything on the loop thread.
 *
 * curl refuses most calls from inside its own callbacks. Here transfers may be added and dropped,
 * and the whole pool freed, from anywhere, such a callback included: what cannot be done at once
 * is done when curl returns. A dropped transfer's callbacks may still be entered until its
 * dropped() was called; they look at `gone` first and then return an error to curl.
 */
#pragma once

#include "lib/base.h" /* before uv.h: sys/param.h defines MIN and MAX too */

#include <curl/curl.h>
#include <uv.h>

struct curl_loop;

/* Part of its owner's struct, which outlives it: until done() or dropped(). Both free the easy
 * handle, which is no longer in the pool then; done() may free the pool. */
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

/* POOL_MAX: idle connections that are kept. -ENOMEM. */
int curl_loop_new(uv_loop_t *loop, unsigned int pool_max, struct curl_loop **ret) _must_check_;
/* Transfers must have been dropped. Run the loop on: its handles close there. */
struct curl_loop *curl_loop_free(struct curl_loop *l);

/*
 * Before adding: TLS reads all that has come, not one record after the other with two calls of the
 * kernel each. For a pool of its own, in which all transfers do so; not through a proxy that speaks
 * TLS itself. Without OpenSSL below curl nothing changes.
 */
void curl_loop_read_ahead(struct curl_loop *l, struct curl_transfer *t);
/* done() comes later, from the loop. -ENOMEM: it never will. */
int curl_loop_add(struct curl_loop *l, struct curl_transfer *t) _must_check_;
/* dropped() comes from inside this call, or as soon as curl returns. */
void curl_loop_drop(struct curl_loop *l, struct curl_transfer *t);

/*
 * curl has no switch for another name in TLS, so the URL gets that name, the connection goes to the
 * real host (CURLOPT_CONNECT_TO), and the Host header names the real host too. *url is replaced;
 * -EINVAL: no such URL or name.
 */
int curl_override_name(char **url, const char *name, char **ret_host,
		       char **ret_connect_to) _must_check_;
/*
 * The value of CURLOPT_NOPROXY for a URL that curl_override_name() has changed. By itself curl
 * would match the environment's no_proxy against NAME; this matches it against AUTHORITY, which is
 * *RET_HOST.
 */
const char *curl_no_proxy(const char *authority);
/* "KEY: VALUE" at the end of *list. */
int curl_add_header(struct curl_slist **list, const char *key, const char *value) _must_check_;
