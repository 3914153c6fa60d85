/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Certificate, key and clients' CA of an HTTP server. libwebsockets only logs what is wrong with
 * them, and version 4.1.6 does not survive a key of another certificate; so OpenSSL is asked first.
 */
#include "lib/httpd_internal.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

/* OpenSSL's first error is the cause; later ones come from its callers. Clears OpenSSL's error
 * queue, so that the next user of it does not see these errors. */
static int refuse(const char *path, const char *what, struct error *err)
{
	unsigned long code = ERR_peek_error();
	const char *reason = code ? ERR_reason_error_string(code) : NULL;

	ERR_clear_error();
	if (ERR_SYSTEM_ERROR(code))
		return error_set(err, -EINVAL, "tls: %.256s: %s", path,
				 strerror((int)ERR_GET_REASON(code)));
	return error_set(err, -EINVAL, "tls: %.256s: %s%s%s", path, what, reason ? ": " : "",
			 reason ? reason : "");
}

static int check(SSL_CTX *ctx, const struct httpd_tls *tls, struct error *err)
{
	if (SSL_CTX_use_certificate_chain_file(ctx, tls->cert_file) != 1)
		return refuse(tls->cert_file, "no certificate", err);
	if (SSL_CTX_use_PrivateKey_file(ctx, tls->key_file, SSL_FILETYPE_PEM) != 1)
		return refuse(tls->key_file, "no key of this certificate", err);
	if (tls->client_ca_file &&
	    SSL_CTX_load_verify_locations(ctx, tls->client_ca_file, NULL) != 1)
		return refuse(tls->client_ca_file, "no certificate", err);
	return 0;
}

int httpd_set_tls(const struct httpd_tls *tls, struct lws_context_creation_info *info,
		  struct error *err)
{
	SSL_CTX *ctx;
	int r;

	if (!tls->cert_file)
		return 0;
	if (!tls->key_file)
		return error_set(err, -EINVAL, "tls: a certificate needs its key");
	ctx = SSL_CTX_new(TLS_server_method());
	if (!ctx)
		return error_set(err, -ENOMEM, "out of memory");
	r = check(ctx, tls, err);
	SSL_CTX_free(ctx);
	if (r < 0)
		return r;
	info->options |= LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT;
	info->ssl_cert_filepath = tls->cert_file;
	info->ssl_private_key_filepath = tls->key_file;
	info->ssl_options_set = SSL_OP_NO_SSLv3 | SSL_OP_NO_TLSv1 | SSL_OP_NO_TLSv1_1;
	info->alpn = "http/1.1";
	if (tls->client_ca_file) {
		info->options |= LWS_SERVER_OPTION_REQUIRE_VALID_OPENSSL_CLIENT_CERT;
		info->ssl_ca_filepath = tls->client_ca_file;
	}
	return 0;
}
