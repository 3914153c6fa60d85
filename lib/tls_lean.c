/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program's own SSL_CTX_new() comes before libssl's for all shared libraries that the program
 * loads (ELF symbol resolution; the linker exports it because libgrpc refers to it). OpenSSL 3.0's
 * is SSL_CTX_new_ex() with two NULLs (ssl/ssl_lib.c), which is what remains to be called.
 */
#include "lib/tls_lean.h"

#include <openssl/ssl.h>
#include <stdatomic.h>

static atomic_uint_fast64_t contexts;

__attribute__((visibility("default"))) SSL_CTX *SSL_CTX_new(const SSL_METHOD *method)
{
	SSL_CTX *context = SSL_CTX_new_ex(NULL, NULL, method);

	if (!context)
		return NULL;
	SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
	atomic_fetch_add(&contexts, 1);
	return context;
}

uint64_t tls_lean_contexts(void)
{
	return atomic_load(&contexts);
}
