/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct stream_tls: the certificate that the node stream's server presents, and the CA that agents
 * verify it with: from files, or signed here by a CA that ca.h keeps. Plain functions, any thread.
 */
#pragma once

#include "lib/base.h"
#include "lib/error.h"

enum { STREAM_CLOCK_SKEW_S = 3600 }; /* certificates are valid from so long before they are made */

struct stream_tls {
	char *ca_pem;	/* NULL when unknown: agents have it from elsewhere */
	char *cert_pem; /* the chain */
	char *key_pem;	/* secret */
};

/* CA_FILE may be NULL; so may CERT_FILE and KEY_FILE together, where nothing is served. */
int stream_tls_load(const char *cert_file, const char *key_file, const char *ca_file,
		    struct stream_tls *ret, struct error *err) _must_check_;
/*
 * Makes a CA and its key. NOW: seconds since the epoch. The caller frees both, the key by
 * stream_key_free().
 */
int stream_tls_make_ca(int64_t now, int64_t life_s, char **ret_cert_pem, char **ret_key_pem,
		       struct error *err) _must_check_;
/*
 * Makes a certificate of that CA. NAMES: DNS names and IP addresses, ends with NULL. RET has no CA.
 */
int stream_tls_sign(const char *ca_pem, const char *ca_key_pem, const char *const *names,
		    int64_t now, int64_t life_s, struct stream_tls *ret,
		    struct error *err) _must_check_;
/*
 * Gets the time from which and until which a CA's certificate is valid. KEY_PEM may be NULL.
 * -EINVAL: the text holds no CA certificate or several, or the key is not the certificate's.
 */
int stream_tls_check_ca(const char *cert_pem, const char *key_pem, int64_t *ret_begin,
			int64_t *ret_end, struct error *err) _must_check_;
/* For tests: makes a CA and a certificate, valid for a year, and throws the CA's key away. */
int stream_tls_make(const char *const *names, int64_t now, struct stream_tls *ret,
		    struct error *err) _must_check_;
char *stream_key_free(char *key_pem); /* wiped; takes NULL */
void stream_tls_done(struct stream_tls *tls);
