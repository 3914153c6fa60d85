/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct kube_auth: the token and the certificates as they are now. What is in files is read again:
 * the token after TOKEN_MS and when it was refused, the certificates when their files have changed
 * (looked at once a second at most, when somebody asks). A file that cannot be read leaves what was
 * read before. Loop thread; the clock is passed in.
 */
#pragma once

#include "lib/error.h"
#include "operator/kube/credentials.h"

#include <sys/stat.h>

enum { KUBE_TOKEN_MS = 60000, KUBE_TLS_CHECK_MS = 1000 };

/* Certificates as PEM; NULL: none. Requests hold a reference, for curl reads them from here. */
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
	uint64_t failed_reads; /* of files that had been readable */
};

/* TOKEN_MS 0: KUBE_TOKEN_MS. Everything must be readable now. */
int kube_auth_init(struct kube_auth *a, const struct kube_credentials *c, uint64_t token_ms,
		   uint64_t now_ms, struct error *err) _must_check_;
void kube_auth_done(struct kube_auth *a);
/* Reads what is due. */
void kube_auth_refresh(struct kube_auth *a, uint64_t now_ms);
/* After a 401: reads the token at once. False: there is no file, so nothing can have changed. */
bool kube_auth_refused(struct kube_auth *a, uint64_t now_ms);
