/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may read the data of the live page: the page itself and programs, but never requests that
 * another site's page makes its visitor's browser send; with a token, only those who send it.
 * lib/httpd.h checks that a server on loopback is called by a local name.
 */
#pragma once

#include "lib/base.h"
#include "lib/error.h"

enum { ACCESS_TOKEN_MIN = 16, ACCESS_TOKEN_MAX = 512 };

struct access {
	char token[ACCESS_TOKEN_MAX + 1]; /* "": none is asked for */
};

/* The first line of the file: ACCESS_TOKEN_MIN printable characters or more, no blanks. */
int access_read_token(const char *path, struct access *ret, struct error *err) _must_check_;
/* Values of a request's headers; NULL when not sent. */
struct access_request {
	const char *host, *origin, *authorization;
	const char *fetch_site; /* Sec-Fetch-Site (W3C Fetch Metadata, section 2.2) */
};

/* 0, or the HTTP status to refuse with. */
unsigned int access_check(const struct access *a, const struct access_request *req);
