/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's certificate, which may be replaced at any time: connections from then on have the
 * new one. The core's threads fetch it at each handshake, so that it is kept under a lock.
 */
#include "lib/grpc_server_internal.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

static grpc_ssl_server_certificate_config *certificate_config(const char *cert, const char *key)
{
	grpc_ssl_pem_key_cert_pair pair = {.private_key = key, .cert_chain = cert};

	/* Roots for clients' certificates, which are not asked for: 1.51 aborts without any. */
	return grpc_ssl_server_certificate_config_create(cert, &pair, 1);
}

grpc_ssl_certificate_config_reload_status
stream_server_fetch_certificate(void *arg, grpc_ssl_server_certificate_config **ret)
{
	grpc_ssl_certificate_config_reload_status status =
	    GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
	struct stream_server *server = arg;

	pthread_mutex_lock(&server->lock);
	if (server->fetched_number != server->certificate_number) {
		server->fetched_number = server->certificate_number;
		*ret = certificate_config(server->cert_pem, server->key_pem);
		status = GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
	}
	pthread_mutex_unlock(&server->lock);
	return status;
}

static void wipe(char *secret)
{
	if (secret)
		explicit_bzero(secret, strlen(secret));
	free(secret);
}

/* The core would refuse them at each handshake only. */
static bool pair_usable(const char *cert_pem, const char *key_pem)
{
	BIO *cert_bio = BIO_new_mem_buf(cert_pem, -1), *key_bio = BIO_new_mem_buf(key_pem, -1);
	X509 *cert = cert_bio ? PEM_read_bio_X509(cert_bio, NULL, NULL, NULL) : NULL;
	EVP_PKEY *key = key_bio ? PEM_read_bio_PrivateKey(key_bio, NULL, NULL, NULL) : NULL;
	bool good = cert && key && X509_check_private_key(cert, key) == 1;

	EVP_PKEY_free(key);
	X509_free(cert);
	BIO_free(key_bio);
	BIO_free(cert_bio);
	ERR_clear_error();
	return good;
}

int stream_server_certificate(struct stream_server *server, const char *cert_pem,
			      const char *key_pem, struct error *err)
{
	_cleanup_free_ char *cert = strdup(cert_pem), *key = strdup(key_pem);

	if (!cert || !key)
		return error_set(err, -ENOMEM, "out of memory");
	if (!pair_usable(cert, key))
		return error_set(err, -EINVAL, "certificate and key cannot be used");
	pthread_mutex_lock(&server->lock);
	wipe(server->key_pem);
	free(server->cert_pem);
	server->cert_pem = TAKE_PTR(cert);
	server->key_pem = TAKE_PTR(key);
	server->certificate_number++;
	pthread_mutex_unlock(&server->lock);
	return 0;
}

void stream_server_certificate_done(struct stream_server *server)
{
	pthread_mutex_destroy(&server->lock);
	wipe(server->key_pem);
	free(server->cert_pem);
}
