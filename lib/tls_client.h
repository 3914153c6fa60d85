/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A TLS client over a socket, with OpenSSL: makes an SSL object from struct tls_options, and turns
 * OpenSSL's errors into messages. At least TLS 1.2, whatever min_version allows. Unlike OpenSSL's
 * own socket BIO it never raises SIGPIPE. One thread at a time.
 */
#pragma once

#include <openssl/ssl.h>

#include "lib/tls.h"

struct tls_client_options {
	const struct tls_options *tls;
	const char *name;     /* of the server, unless the options have one */
	const char *protocol; /* ALPN, for example "h2": the only one that is offered */
};

/* Reads the files. -EINVAL: they or the versions cannot be used, ERR says why; -ENOMEM. */
int tls_client_new(const struct tls_client_options *options, SSL **ret,
		   struct error *err) _must_check_;
/* Before the handshake. FD stays the caller's. -ENOMEM. */
int tls_client_use(SSL *ssl, int fd) _must_check_;
/* After the handshake: frees the root certificates (the system's take a megabyte). */
void tls_client_trim(SSL *ssl);
/* Whether the server has chosen PROTOCOL by ALPN. */
bool tls_client_speaks(SSL *ssl, const char *protocol);
/* Why the last call, whose result was RESULT, failed. */
void tls_client_explain(SSL *ssl, int result, char *out, size_t size);
