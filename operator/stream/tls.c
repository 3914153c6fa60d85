/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Certificates by OpenSSL: P-256, because each agent of a reconnect storm costs a signature, and
 * those are the cheapest that every TLS library accepts. Valid from an hour before they are made,
 * so that a node whose clock is behind accepts them, too.
 */
#include "operator/stream/tls.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <time.h>

#include "lib/buf.h"
#include "lib/tls.h"

enum { YEAR_S = 365 * 86400, NAMES_MAX = 8192, SERIAL_BYTES = 16 };

static void key_freep(EVP_PKEY **key)
{
	EVP_PKEY_free(*key);
}

static void cert_freep(X509 **cert)
{
	X509_free(*cert);
}

static int failed(struct error *err, const char *what)
{
	unsigned long code = ERR_get_error();
	const char *reason = ERR_reason_error_string(code);

	ERR_clear_error();
	return error_set(err, -EINVAL, "%s: %s", what, reason ? reason : "failed");
}

/* The caller frees; NULL out of memory. */
static char *pem_text(BIO *bio)
{
	char *data;
	long n = BIO_get_mem_data(bio, &data);

	return n > 0 ? strndup(data, (size_t)n) : NULL;
}

static char *cert_text(X509 *cert)
{
	BIO *bio = BIO_new(BIO_s_mem());
	char *text = NULL;

	if (bio && PEM_write_bio_X509(bio, cert))
		text = pem_text(bio);
	BIO_free(bio);
	return text;
}

static char *key_text(EVP_PKEY *key)
{
	BIO *bio = BIO_new(BIO_s_secmem());
	char *text = NULL;

	if (bio && PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL))
		text = pem_text(bio);
	BIO_free(bio);
	return text;
}

static bool set_serial(X509 *cert)
{
	unsigned char bytes[SERIAL_BYTES];
	ASN1_INTEGER *serial;
	BIGNUM *number;
	bool good;

	if (RAND_bytes(bytes, sizeof(bytes)) != 1)
		return false;
	bytes[0] &= 0x7f; /* positive (RFC 5280 §4.1.2.2) */
	number = BN_bin2bn(bytes, sizeof(bytes), NULL);
	serial = number ? BN_to_ASN1_INTEGER(number, NULL) : NULL;
	good = serial && X509_set_serialNumber(cert, serial);
	ASN1_INTEGER_free(serial);
	BN_free(number);
	return good;
}

static bool add_extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
	X509_EXTENSION *extension;
	X509V3_CTX ctx;
	bool good;

	X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
	extension = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
	good = extension && X509_add_ext(cert, extension, -1);
	X509_EXTENSION_free(extension);
	return good;
}

static bool begin(X509 *cert, EVP_PKEY *key, const char *name, int64_t now, int64_t life_s)
{
	X509_NAME *subject = X509_get_subject_name(cert);

	return X509_set_version(cert, X509_VERSION_3) && set_serial(cert) &&
	       ASN1_TIME_set(X509_getm_notBefore(cert), (time_t)(now - STREAM_CLOCK_SKEW_S)) &&
	       ASN1_TIME_set(X509_getm_notAfter(cert), (time_t)(now + life_s)) &&
	       X509_set_pubkey(cert, key) &&
	       X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name,
					  -1, -1, 0);
}

static bool fill_ca(X509 *ca, EVP_PKEY *key, int64_t now, int64_t life_s)
{
	return begin(ca, key, "kiln node stream CA", now, life_s) &&
	       X509_set_issuer_name(ca, X509_get_subject_name(ca)) &&
	       add_extension(ca, ca, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
	       add_extension(ca, ca, NID_key_usage, "critical,keyCertSign,cRLSign") &&
	       add_extension(ca, ca, NID_subject_key_identifier, "hash") &&
	       X509_sign(ca, key, EVP_sha256());
}

static bool fill_leaf(X509 *cert, EVP_PKEY *key, X509 *ca, const char *names, int64_t now,
		      int64_t life_s)
{
	return begin(cert, key, "kiln-operator", now, life_s) &&
	       X509_set_issuer_name(cert, X509_get_subject_name(ca)) &&
	       add_extension(cert, ca, NID_basic_constraints, "critical,CA:FALSE") &&
	       add_extension(cert, ca, NID_key_usage, "critical,digitalSignature") &&
	       add_extension(cert, ca, NID_ext_key_usage, "serverAuth") &&
	       add_extension(cert, ca, NID_authority_key_identifier, "keyid") &&
	       add_extension(cert, ca, NID_subject_alt_name, names);
}

/* "DNS:a,IP:127.0.0.1"; a name with a comma would end up as two. */
static int join_names(const char *const *names, struct buf *ret, struct error *err)
{
	struct in6_addr address;

	for (size_t i = 0; names[i]; i++) {
		bool ip = inet_pton(AF_INET, names[i], &address) == 1 ||
			  inet_pton(AF_INET6, names[i], &address) == 1;

		if (!names[i][0] || strpbrk(names[i], ", \n"))
			return error_set(err, -EINVAL, "no name of a server: %s", names[i]);
		buf_printf(ret, "%s%s:%s", i ? "," : "", ip ? "IP" : "DNS", names[i]);
	}
	return buf_error(ret) ? error_set(err, buf_error(ret), "too many names") : 0;
}

char *stream_key_free(char *key_pem)
{
	if (key_pem)
		explicit_bzero(key_pem, strlen(key_pem));
	free(key_pem);
	return NULL;
}

static X509 *read_cert(const char *pem)
{
	BIO *bio = BIO_new_mem_buf(pem, -1);
	X509 *cert = bio ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;

	BIO_free(bio);
	return cert;
}

/* Without a callback OpenSSL asks the terminal for the password of an encrypted key. */
static int no_password(char *buf, int size, int rwflag, void *arg)
{
	return -1;
}

static EVP_PKEY *read_key(const char *pem)
{
	BIO *bio = BIO_new_mem_buf(pem, -1);
	EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, no_password, NULL) : NULL;

	BIO_free(bio);
	return key;
}

int stream_tls_make_ca(int64_t now, int64_t life_s, char **ret_cert_pem, char **ret_key_pem,
		       struct error *err)
{
	_cleanup_(key_freep) EVP_PKEY *key = EVP_EC_gen("P-256");
	_cleanup_(cert_freep) X509 *ca = X509_new();
	char *cert_pem, *key_pem;

	if (!key || !ca || !fill_ca(ca, key, now, life_s))
		return failed(err, "CA of the node stream");
	cert_pem = cert_text(ca);
	key_pem = key_text(key);
	if (!cert_pem || !key_pem) {
		free(cert_pem);
		stream_key_free(key_pem);
		return error_set(err, -ENOMEM, "out of memory");
	}
	*ret_cert_pem = cert_pem;
	*ret_key_pem = key_pem;
	return 0;
}

int stream_tls_sign(const char *ca_pem, const char *ca_key_pem, const char *const *names,
		    int64_t now, int64_t life_s, struct stream_tls *ret, struct error *err)
{
	_cleanup_(key_freep) EVP_PKEY *ca_key = read_key(ca_key_pem), *key = EVP_EC_gen("P-256");
	_cleanup_(cert_freep) X509 *ca = read_cert(ca_pem), *cert = X509_new();
	_cleanup_(buf_done) struct buf joined;
	struct stream_tls made = {0};
	int r;

	buf_init(&joined, NAMES_MAX);
	r = join_names(names, &joined, err);
	if (r < 0)
		return r;
	if (!ca_key || !key || !ca || !cert ||
	    !fill_leaf(cert, key, ca, joined.data ? joined.data : "", now, life_s) ||
	    !X509_sign(cert, ca_key, EVP_sha256()))
		return failed(err, "certificate of the node stream");
	made.cert_pem = cert_text(cert);
	made.key_pem = key_text(key);
	if (!made.cert_pem || !made.key_pem) {
		stream_tls_done(&made);
		return error_set(err, -ENOMEM, "out of memory");
	}
	*ret = made;
	return 0;
}

static int cert_time(const ASN1_TIME *time, int64_t *ret)
{
	struct tm tm;

	if (!time || !ASN1_TIME_to_tm(time, &tm))
		return -EINVAL;
	*ret = (int64_t)timegm(&tm);
	return 0;
}

int stream_tls_check_ca(const char *cert_pem, const char *key_pem, int64_t *ret_begin,
			int64_t *ret_end, struct error *err)
{
	_cleanup_(cert_freep) X509 *cert = read_cert(cert_pem);
	_cleanup_(key_freep) EVP_PKEY *key = key_pem ? read_key(key_pem) : NULL;
	const char *first = strstr(cert_pem, "-----BEGIN");
	const char *why = NULL;
	int64_t begins = 0, ends = 0;

	if (!cert)
		why = "no certificate";
	else if (!first || strstr(first + 1, "-----BEGIN"))
		why = "more than one certificate";
	else if (X509_check_ca(cert) != 1)
		why = "not a CA's certificate";
	else if (cert_time(X509_get0_notBefore(cert), &begins) < 0 ||
		 cert_time(X509_get0_notAfter(cert), &ends) < 0)
		why = "a certificate without its time";
	else if (key_pem && (!key || X509_check_private_key(cert, key) != 1))
		why = "a key that is not the certificate's";
	ERR_clear_error();
	if (why)
		return error_set(err, -EINVAL, "%s", why);
	*ret_begin = begins;
	*ret_end = ends;
	return 0;
}

int stream_tls_make(const char *const *names, int64_t now, struct stream_tls *ret,
		    struct error *err)
{
	char *ca = NULL, *ca_key = NULL;
	int r = stream_tls_make_ca(now, YEAR_S, &ca, &ca_key, err);

	if (r < 0)
		return r;
	r = stream_tls_sign(ca, ca_key, names, now, YEAR_S, ret, err);
	stream_key_free(ca_key);
	if (r < 0)
		free(ca);
	else
		ret->ca_pem = ca;
	return r;
}

int stream_tls_load(const char *cert_file, const char *key_file, const char *ca_file,
		    struct stream_tls *ret, struct error *err)
{
	struct stream_tls loaded = {0};
	int r = cert_file ? tls_read_pem(cert_file, &loaded.cert_pem, err) : 0;

	if (!r && key_file)
		r = tls_read_pem(key_file, &loaded.key_pem, err);
	if (!r && ca_file)
		r = tls_read_pem(ca_file, &loaded.ca_pem, err);
	if (r < 0) {
		stream_tls_done(&loaded);
		return error_wrap(err, r, "node stream");
	}
	*ret = loaded;
	return 0;
}

void stream_tls_done(struct stream_tls *tls)
{
	stream_key_free(tls->key_pem);
	free(tls->cert_pem);
	free(tls->ca_pem);
	*tls = (struct stream_tls){0};
}
