/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct kube_auth: the current token and certificates. Files are read again: the token after
 * TOKEN_MS and after a 401, the certificates when their files have changed (checked by
 * kube_auth_refresh(), once a second at most). When a file cannot be read, the content read before
 * stays in use. Loop thread; the clock is passed in.
 */
#pragma once

#include "lib/error.h"
#include "operator/kube/credentials.h"

#include <sys/stat.h>

enum { KUBE_TOKEN_MS = 60000, KUBE_TLS_CHECK_MS = 1000 };

/* Certificates as PEM; NULL: none. Requests hold a reference, because curl does not copy them. */
struct kube_tls {
	unsigned int refs;
	char *ca, *cert, *key;
};
struct kube_tls *kube_tls_ref(struct kube_tls *t);
struct kube_tls *kube_tls_unref(struct kube_tls *t);

struct kube_auth {
	const struct kube_credentials *c;
	char *token; /* NULL: none */
	struct kube_tls *tls;
	uint64_t token_ms, token_read_ms, tls_checked_ms;
	struct stat seen[3];   /* ca, cert, key, when they were read */
	uint64_t failed_reads; /* reads that failed after kube_auth_init() */
};

/* TOKEN_MS 0: KUBE_TOKEN_MS. Everything must be readable now. */
int kube_auth_init(struct kube_auth *a, const struct kube_credentials *c, uint64_t token_ms,
		   uint64_t now_ms, struct error *err) _must_check_;
void kube_auth_done(struct kube_auth *a);
/* Reads the files that are due. */
void kube_auth_refresh(struct kube_auth *a, uint64_t now_ms);
/* After a 401: reads the token at once. False: there is no file, so nothing can have changed. */
bool kube_auth_refused(struct kube_auth *a, uint64_t now_ms);
