/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One SSL_CTX for each SSL: files are read anew for each connection, so that certificates that
 * change need no restart.
 *
 * The ciphers of TLS 1.2 are those that RFC 9113 does not forbid for HTTP/2 (§9.2.2).
 */
#include "lib/tls_client.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <sys/socket.h>

/* ---- the socket --------------------------------------------------------------------------------
 */

/* The BIO's data pointer holds the descriptor itself. */
static int bio_fd(BIO *bio)
{
	return (int)(intptr_t)BIO_get_data(bio);
}

static int bio_read(BIO *bio, char *out, size_t len, size_t *ret_len)
{
	ssize_t n = recv(bio_fd(bio), out, len, 0);

	BIO_clear_retry_flags(bio);
	if (n > 0) {
		*ret_len = (size_t)n;
		return 1;
	}
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		BIO_set_retry_read(bio);
	else if (n == 0)
		BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
	return 0;
}

static int bio_write(BIO *bio, const char *bytes, size_t len, size_t *ret_len)
{
	ssize_t n = send(bio_fd(bio), bytes, len, MSG_NOSIGNAL);

	BIO_clear_retry_flags(bio);
	if (n > 0) {
		*ret_len = (size_t)n;
		return 1;
	}
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		BIO_set_retry_write(bio);
	return 0;
}

static long bio_control(BIO *bio, int command, long number, void *pointer)
{
	switch (command) {
	case BIO_CTRL_FLUSH:
		return 1;
	case BIO_CTRL_EOF:
		return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0;
	default:
		return 0;
	}
}

static BIO_METHOD *method;
static pthread_once_t method_once = PTHREAD_ONCE_INIT;

static void make_method(void)
{
	BIO_METHOD *m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket");

	if (m && BIO_meth_set_read_ex(m, bio_read) && BIO_meth_set_write_ex(m, bio_write) &&
	    BIO_meth_set_ctrl(m, bio_control))
		method = m; /* for the life of the process */
	else
		BIO_meth_free(m);
}

int tls_client_use(SSL *ssl, int fd)
{
	BIO *bio;

	(void)pthread_once(&method_once, make_method);
	bio = method ? BIO_new(method) : NULL;
	if (!bio)
		return -ENOMEM;
	BIO_set_data(bio, (void *)(intptr_t)fd);
	BIO_set_init(bio, 1);
	SSL_set_bio(ssl, bio, bio);
	return 0;
}

/* ---- files -------------------------------------------------------------------------------------
 */

static int add_roots(SSL_CTX *context, BIO *bio)
{
	X509_STORE *store = SSL_CTX_get_cert_store(context);
	X509 *cert;
	int n = 0;

	while ((cert = PEM_read_bio_X509_AUX(bio, NULL, NULL, NULL))) {
		n += X509_STORE_add_cert(store, cert) == 1;
		X509_free(cert);
	}
	/* A private CA file may have an intermediate CA or the server's own certificate instead of
	 * a root. */
	X509_STORE_set_flags(store, X509_V_FLAG_PARTIAL_CHAIN);
	return n;
}

/* The first certificate is the client's; the others are the chain that it is signed by. */
static int use_chain(SSL_CTX *context, BIO *bio)
{
	X509 *cert = PEM_read_bio_X509_AUX(bio, NULL, NULL, NULL);
	bool good = cert && SSL_CTX_use_certificate(context, cert) == 1;

	X509_free(cert);
	while (good && (cert = PEM_read_bio_X509(bio, NULL, NULL, NULL)))
		good = SSL_CTX_add0_chain_cert(context, cert) == 1;
	return good;
}

static int no_password(char *out, int size, int rwflag, void *arg)
{
	return -1;
}

static int use_key(SSL_CTX *context, BIO *bio)
{
	EVP_PKEY *key = PEM_read_bio_PrivateKey(bio, NULL, no_password, NULL);
	bool good = key && SSL_CTX_use_PrivateKey(context, key) == 1;

	EVP_PKEY_free(key);
	return good;
}

/* Loads the file PATH, the value of the setting NAME. USE adds its content to CONTEXT; it returns 0
 * when the file has nothing usable. */
static int use_file(SSL_CTX *context, const char *name, const char *path,
		    int (*use)(SSL_CTX *, BIO *), struct error *err)
{
	char *pem = NULL;
	int r = tls_read_pem(path, &pem, err);
	BIO *bio;

	if (r < 0)
		return error_wrap(err, r, "tls.%s", name);
	bio = BIO_new_mem_buf(pem, -1);
	r = !bio ? -ENOMEM : use(context, bio) ? 0 : -EINVAL;
	BIO_free(bio);
	explicit_bzero(pem, strlen(pem));
	free(pem);
	if (r == -ENOMEM)
		return error_set(err, r, "out of memory");
	return r < 0 ? error_set(err, r, "tls.%s: %s: nothing in it can be used", name, path) : 0;
}

static int use_files(SSL_CTX *context, const struct tls_options *o, struct error *err)
{
	const char *roots = o->ca_file ? o->ca_file : tls_system_roots();
	int r = 0;

	if (!roots && !o->skip_verify)
		return error_set(err, -EINVAL,
				 "tls: this system has no root certificates; give tls.ca_file");
	/* With skip_verify the system's roots are not needed, but a given ca_file must still be
	 * valid. */
	if (o->ca_file || !o->skip_verify)
		r = use_file(context, "ca_file", roots, add_roots, err);
	/* The key first: once a certificate is set, OpenSSL refuses a key that does not match it.
	 * The check below reports that case. */
	if (r == 0 && o->key_file)
		r = use_file(context, "key_file", o->key_file, use_key, err);
	if (r == 0 && o->cert_file)
		r = use_file(context, "cert_file", o->cert_file, use_chain, err);
	if (r == 0 && o->cert_file && SSL_CTX_check_private_key(context) != 1)
		r = error_set(err, -EINVAL, "tls: key_file is not the key of cert_file");
	return r;
}

/* ---- settings ----------------------------------------------------------------------------------
 */

static bool set_up(SSL_CTX *context, enum tls_version min_version)
{
	SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
				      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION |
					 SSL_OP_NO_COMPRESSION | SSL_OP_IGNORE_UNEXPECTED_EOF);
	SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
	return SSL_CTX_set_min_proto_version(
		   context, min_version == TLS_1_3 ? TLS1_3_VERSION : TLS1_2_VERSION) == 1 &&
	       SSL_CTX_set_cipher_list(context, "ECDHE+AESGCM:ECDHE+CHACHA20") == 1;
}

/* NAME is checked against the certificate and sent as SNI; SNI has no addresses (RFC 6066 §3). */
static bool set_name(SSL *ssl, const char *name)
{
	uint8_t bytes[16];

	if (inet_pton(AF_INET, name, bytes) == 1 || inet_pton(AF_INET6, name, bytes) == 1)
		return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name) == 1;
	SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
	return SSL_set1_host(ssl, name) == 1 && SSL_set_tlsext_host_name(ssl, name) == 1;
}

static bool set_protocol(SSL *ssl, const char *protocol)
{
	uint8_t list[16];
	size_t len = strlen(protocol);

	if (len >= sizeof(list))
		return false;
	list[0] = (uint8_t)len;
	memcpy(list + 1, protocol, len);
	return SSL_set_alpn_protos(ssl, list, (unsigned int)len + 1) == 0;
}

static SSL *new_ssl(SSL_CTX *context, const struct tls_client_options *o)
{
	const char *name = o->tls->server_name ? o->tls->server_name : o->name;
	SSL *ssl = SSL_new(context);

	if (ssl && set_name(ssl, name) && set_protocol(ssl, o->protocol)) {
		SSL_set_verify(ssl, o->tls->skip_verify ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, NULL);
		SSL_set_connect_state(ssl);
		return ssl;
	}
	SSL_free(ssl);
	return NULL;
}

int tls_client_new(const struct tls_client_options *o, SSL **ret, struct error *err)
{
	enum tls_version version = TLS_1_2;
	SSL_CTX *context;
	SSL *ssl = NULL;
	int r = tls_options_check(o->tls, err);

	if (r < 0)
		return r;
	(void)!tls_version_parse(o->tls->min_version, &version); /* it was checked */
	context = SSL_CTX_new(TLS_client_method());
	if (!context || !set_up(context, version))
		r = error_set(err, -ENOMEM, "out of memory");
	if (r == 0)
		r = use_files(context, o->tls, err);
	if (r == 0) {
		ssl = new_ssl(context, o);
		if (!ssl)
			r = error_set(err, -ENOMEM, "out of memory");
	}
	SSL_CTX_free(context); /* the SSL has a reference */
	ERR_clear_error();
	if (r == 0)
		*ret = ssl;
	return r;
}

void tls_client_trim(SSL *ssl)
{
	X509_STORE *none = X509_STORE_new();

	if (none)
		SSL_CTX_set_cert_store(SSL_get_SSL_CTX(ssl), none);
}

bool tls_client_speaks(SSL *ssl, const char *protocol)
{
	const unsigned char *chosen = NULL;
	unsigned int len = 0;

	SSL_get0_alpn_selected(ssl, &chosen, &len);
	return len == strlen(protocol) && memcmp(chosen, protocol, len) == 0;
}

/* ---- words -------------------------------------------------------------------------------------
 */

static void explain_certificate(SSL *ssl, char *out, size_t size)
{
	long result = SSL_get_verify_result(ssl);
	const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);

	if (result == X509_V_ERR_HOSTNAME_MISMATCH)
		snprintf(out, size, "TLS: the certificate is not of %s", name ? name : "this host");
	else if (result == X509_V_ERR_IP_ADDRESS_MISMATCH)
		snprintf(out, size, "TLS: the certificate is not of this address");
	else
		snprintf(out, size, "TLS: the certificate is refused: %s",
			 X509_verify_cert_error_string(result));
}

void tls_client_explain(SSL *ssl, int result, char *out, size_t size)
{
	int kind = SSL_get_error(ssl, result), saved = errno;
	unsigned long code = ERR_peek_error();
	const char *reason = ERR_reason_error_string(code);

	if (ERR_GET_LIB(code) == ERR_LIB_SSL &&
	    ERR_GET_REASON(code) == SSL_R_CERTIFICATE_VERIFY_FAILED)
		explain_certificate(ssl, out, size);
	else if (ERR_GET_LIB(code) == ERR_LIB_SSL &&
		 (ERR_GET_REASON(code) == SSL_R_WRONG_VERSION_NUMBER ||
		  ERR_GET_REASON(code) == SSL_R_HTTP_REQUEST))
		snprintf(
		    out, size,
		    "the port speaks plain text, not TLS (tls.insecure: true or --disable-tls)");
	else if (kind == SSL_ERROR_ZERO_RETURN || BIO_eof(SSL_get_rbio(ssl)))
		snprintf(out, size, "the peer closed the connection%s",
			 SSL_is_init_finished(ssl)
			     ? ""
			     : " during the TLS handshake: it may speak plain "
			       "text (http://, or --disable-tls)");
	else if (kind == SSL_ERROR_SSL && reason)
		snprintf(out, size, "TLS: %s", reason);
	else
		snprintf(out, size, "%s",
			 kind == SSL_ERROR_SYSCALL && saved ? strerror(saved) : "TLS failed");
	ERR_clear_error();
}
