/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's side of TLS: 1.2 and 1.3, HTTP/2 by ALPN (RFC 9113 §3.2), no tickets and no session
 * cache (an agent connects twice an hour), cheap curves, buffers that are freed while a connection
 * is idle.
 */
#include <openssl/err.h>
#include <openssl/pem.h>

#include "operator/frontend/internal.h"

static const unsigned char protocols[] = {2, 'h', '2'};

static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_len,
			   const unsigned char *in, unsigned int in_len, void *arg)
{
	unsigned char *chosen;

	if (SSL_select_next_proto(&chosen, out_len, protocols, sizeof(protocols), in, in_len) !=
	    OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_ALERT_FATAL;
	*out = chosen;
	return SSL_TLSEXT_ERR_OK;
}

/* The first certificate is the server's, the others are the chain of its issuers. */
static bool use_chain(SSL_CTX *context, const char *cert_pem)
{
	BIO *bio = BIO_new_mem_buf(cert_pem, -1);
	X509 *cert = bio ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;
	bool good = cert && SSL_CTX_use_certificate(context, cert) == 1;

	X509_free(cert);
	while (good && (cert = PEM_read_bio_X509(bio, NULL, NULL, NULL)))
		good = SSL_CTX_add0_chain_cert(context, cert) == 1;
	BIO_free(bio);
	return good;
}

static bool use_key(SSL_CTX *context, const char *key_pem)
{
	BIO *bio = BIO_new_mem_buf(key_pem, -1);
	EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL) : NULL;
	bool good = key && SSL_CTX_use_PrivateKey(context, key) == 1 &&
		    SSL_CTX_check_private_key(context) == 1;

	EVP_PKEY_free(key);
	BIO_free(bio);
	return good;
}

static bool set_up(SSL_CTX *context)
{
	/*
	 * With AUTO_RETRY one SSL_read() loops for as long as the peer sends nothing but key
	 * updates.
	 */
	SSL_CTX_clear_mode(context, SSL_MODE_AUTO_RETRY);
	SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
				      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION |
					 SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE |
					 SSL_OP_IGNORE_UNEXPECTED_EOF);
	SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_alpn_select_cb(context, choose_protocol, NULL);
	return SSL_CTX_set_num_tickets(context, 0) == 1 &&
	       SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) == 1 &&
	       SSL_CTX_set_cipher_list(context, "ECDHE+AESGCM:ECDHE+CHACHA20") == 1 &&
	       SSL_CTX_set1_groups_list(context, "X25519:P-256:P-384") == 1;
}

int frontend_tls_new(const char *cert_pem, const char *key_pem, SSL_CTX **ret, struct error *err)
{
	SSL_CTX *context = SSL_CTX_new(TLS_server_method());
	bool good = context && set_up(context);

	if (!good) {
		SSL_CTX_free(context);
		ERR_clear_error();
		return error_set(err, -ENOMEM, "out of memory");
	}
	good = use_chain(context, cert_pem) && use_key(context, key_pem);
	ERR_clear_error();
	if (!good) {
		SSL_CTX_free(context);
		return error_set(err, -EINVAL, "certificate and key cannot be used");
	}
	*ret = context;
	return 0;
}
