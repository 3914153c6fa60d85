/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct http_proxy: the HTTP proxy (CONNECT, RFC 9110 §9.3.6) that the environment names. Plain
 * functions; they read the environment, so they must not run at the same time as setenv().
 */
#pragma once

#include "lib/base.h"
#include "lib/error.h"

enum { HTTP_PROXY_REPLY_MAX = 8192 };

struct http_proxy {
	char *host; /* without brackets */
	uint16_t port;
	char *credentials; /* base64 of user:password, secret; NULL: none */
};

/*
 * Finds the proxy for HOST, a name or an address without brackets. The first of grpc_proxy,
 * https_proxy and http_proxy that is set counts, even when it is empty; no proxy is used if
 * no_grpc_proxy, or no_proxy when that is not set, lists HOST. 1: *RET, 0: no proxy. -EINVAL: the
 * variable is not a proxy's URL and is ignored; the words name the variable. -ENOMEM.
 */
int http_proxy_find(const char *host, struct http_proxy *ret, struct error *err) _must_check_;
void http_proxy_done(struct http_proxy *proxy); /* wipes it */

/* The request that asks for a tunnel to AUTHORITY ("host:port"), to be freed, secret. NULL: -ENOMEM
 */
char *http_proxy_request(const struct http_proxy *proxy, const char *authority) _must_check_;
/*
 * Parses the LEN bytes received so far. 1: the reply is complete, has *RET_LEN bytes and the status
 * *RET_STATUS; 0: incomplete; -EPROTO: not HTTP/1, or longer than HTTP_PROXY_REPLY_MAX.
 */
int http_proxy_reply(const uint8_t *data, size_t len, size_t *ret_len,
		     int *ret_status) _must_check_;

/* Whether LIST (the value of no_proxy) covers HOST, a name or an address without brackets. */
bool http_proxy_exempt(const char *list, const char *host);
