/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS of a client, as the user asks for it; the gRPC and the HTTP client turn it into settings
 * of OpenSSL and libcurl. Plain functions, any thread.
 */
#pragma once

#include "lib/base.h"
#include "lib/error.h"

struct tls_options {
	bool insecure;	  /* plaintext */
	bool skip_verify; /* encrypted, but the server's certificate is not verified */
	/* NULL: not given. Without ca_file the system's root certificates are used. */
	const char *ca_file, *cert_file, *key_file, *server_name, *min_version;
};

enum { TLS_PEM_MAX = 4 << 20 }; /* bytes of one PEM file; Mozilla's whole bundle has 0.2 MiB */

enum tls_version { TLS_1_0, TLS_1_1, TLS_1_2, TLS_1_3 };

/* -EINVAL: only one of certificate and key, an unreadable file, or an unknown min_version. */
int tls_options_check(const struct tls_options *options, struct error *err) _must_check_;
/* "1.0" .. "1.3"; NULL is TLS_1_2. -EINVAL for anything else. */
int tls_version_parse(const char *text, enum tls_version *ret) _must_check_;
/* A whole file as a string, which the caller frees. */
int tls_read_pem(const char *path, char **ret, struct error *err) _must_check_;
/* The system's bundle of root certificates: $SSL_CERT_FILE or the first that exists; else NULL. */
const char *tls_system_roots(void);
