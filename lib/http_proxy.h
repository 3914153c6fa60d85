/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct http_proxy: the way through an HTTP proxy (CONNECT, RFC 9110 §9.3.6), as the environment
 * says. Plain functions; they read the environment, so not beside setenv().
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
 * The first of grpc_proxy, https_proxy and http_proxy that is set counts, even when it is empty,
 * unless no_grpc_proxy or (when that is not set) no_proxy has HOST, a name or an address without
 * brackets. 1: *RET, 0: no proxy. -EINVAL: the variable has something that is no proxy's URL, and
 * is not used; the words name the variable. -ENOMEM.
 */
int http_proxy_find(const char *host, struct http_proxy *ret, struct error *err) _must_check_;
void http_proxy_done(struct http_proxy *proxy); /* wipes it */

/* The request that asks for a tunnel to AUTHORITY ("host:port"), to be freed, secret. NULL: -ENOMEM
 */
char *http_proxy_request(const struct http_proxy *proxy, const char *authority) _must_check_;
/*
 * What has come of the reply. 1: it is whole, *RET_LEN bytes, *RET_STATUS; 0: more has to come;
 * -EPROTO: it is none, or longer than HTTP_PROXY_REPLY_MAX.
 */
int http_proxy_reply(const uint8_t *data, size_t len, size_t *ret_len,
		     int *ret_status) _must_check_;

/* Whether LIST (no_proxy) has HOST, a name or an address without brackets. */
bool http_proxy_exempt(const char *list, const char *host);
