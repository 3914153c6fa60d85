/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct stream_tls: what the node stream's server shows, and the CA that agents check it with:
 * from files, or made here. The CA's key is thrown away once it has signed. Plain functions, any
 * thread.
 */
#pragma once

#include "lib/base.h"
#include "lib/error.h"

enum { STREAM_CA_DAYS = 3650, STREAM_CERTIFICATE_DAYS = 365 };

struct stream_tls {
	char *ca_pem;	/* NULL when unknown: agents have it from elsewhere */
	char *cert_pem; /* the chain */
	char *key_pem;	/* secret */
};

/* CA_FILE may be NULL. */
int stream_tls_load(const char *cert_file, const char *key_file, const char *ca_file,
		    struct stream_tls *ret, struct error *err) _must_check_;
/* NAMES: DNS names and IP addresses, ends with NULL. NOW: seconds since the epoch. */
int stream_tls_make(const char *const *names, int64_t now, struct stream_tls *ret,
		    struct error *err) _must_check_;
void stream_tls_done(struct stream_tls *tls);
