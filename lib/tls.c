/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the gRPC and the HTTP client: checks of TLS settings, and PEM files. No state. */
#include "lib/tls.h"

#include <fcntl.h>

#include "lib/buf.h"

/* Where distributions keep the bundle (the list of Go's crypto/x509, root_linux.go, 1.22). */
static const char *const root_files[] = {
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
};

int tls_version_parse(const char *text, enum tls_version *ret)
{
	static const char *const names[] = {"1.0", "1.1", "1.2", "1.3"};
	size_t i;

	if (!text || !*text)
		text = "1.2";
	for (i = 0; i < ARRAY_SIZE(names); i++) {
		if (streq(text, names[i])) {
			*ret = (enum tls_version)i;
			return 0;
		}
	}
	return -EINVAL;
}

static int check_file(const char *key, const char *path, struct error *err)
{
	if (!path || access(path, R_OK) == 0)
		return 0;
	return error_set(err, -EINVAL, "tls.%s: %s: %s", key, path, strerror(errno));
}

int tls_options_check(const struct tls_options *o, struct error *err)
{
	enum tls_version version;
	int r;

	if (o->insecure)
		return 0;
	if (tls_version_parse(o->min_version, &version) < 0)
		return error_set(err, -EINVAL, "tls.min_version: want 1.0, 1.1, 1.2 or 1.3, got %s",
				 o->min_version);
	if (!o->cert_file != !o->key_file)
		return error_set(err, -EINVAL, "tls: cert_file and key_file come together");
	r = check_file("ca_file", o->ca_file, err);
	if (r < 0)
		return r;
	r = check_file("cert_file", o->cert_file, err);
	if (r < 0)
		return r;
	return check_file("key_file", o->key_file, err);
}

int tls_read_pem(const char *path, char **ret, struct error *err)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	_cleanup_(buf_done) struct buf text;
	char chunk[4096];
	ssize_t n;

	buf_init(&text, TLS_PEM_MAX);
	if (fd < 0)
		return error_set(err, -errno, "%s: %s", path, strerror(errno));
	while ((n = read(fd, chunk, sizeof(chunk))) > 0) {
		if (buf_append(&text, chunk, (size_t)n) < 0)
			return error_set(err, buf_error(&text), "%s: %s", path,
					 strerror(-buf_error(&text)));
	}
	if (n < 0)
		return error_set(err, -errno, "%s: %s", path, strerror(errno));
	if (text.len == 0)
		return error_set(err, -EINVAL, "%s: the file is empty", path);
	*ret = buf_take(&text);
	return 0;
}

const char *tls_system_roots(void)
{
	const char *path = getenv("SSL_CERT_FILE");
	size_t i;

	if (path && access(path, R_OK) == 0)
		return path;
	for (i = 0; i < ARRAY_SIZE(root_files); i++) {
		if (access(root_files[i], R_OK) == 0)
			return root_files[i];
	}
	return NULL;
}
