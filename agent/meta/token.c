/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading the file, and the one claim that matters here. Nobody verifies anything: the operator
 * does that; the agent only wants to know when to look for a newer one. A JWT is three base64url
 * parts with dots between (RFC 7519); the second is JSON.
 */
#include "agent/meta/token.h"

#include <cjson/cJSON.h>
#include <fcntl.h>
#include <math.h>
#include <strings.h>

static int base64url_value(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '-' ? 62 : c == '_' ? 63 : -1;
}

/* Decodes LEN characters to OUT, which has room for as many. Returns the number of bytes or
 * -EINVAL. */
static ssize_t base64url_decode(const char *text, size_t len, char *out)
{
	uint32_t bits = 0;
	unsigned int n = 0;
	size_t i, used = 0;
	int v;

	for (i = 0; i < len; i++) {
		v = base64url_value(text[i]);
		if (v < 0)
			return -EINVAL;
		bits = bits << 6 | (uint32_t)v;
		n += 6;
		if (n >= 8) {
			n -= 8;
			out[used++] = (char)(bits >> n);
		}
	}
	return (ssize_t)used;
}

int64_t token_expiry(const char *text)
{
	const char *first = strchr(text, '.'), *second = first ? strchr(first + 1, '.') : NULL;
	char json[TOKEN_MAX];
	int64_t expires = 0;
	const cJSON *exp;
	cJSON *claims;
	ssize_t len;

	if (!second || second - first > TOKEN_MAX)
		return 0;
	len = base64url_decode(first + 1, (size_t)(second - first - 1), json);
	if (len <= 0)
		return 0;
	claims = cJSON_ParseWithLength(json, (size_t)len);
	exp = cJSON_GetObjectItemCaseSensitive(claims, "exp");
	/* Up to the year 9999; also keeps the number inside of what a double holds exactly. */
	if (cJSON_IsNumber(exp) && exp->valuedouble > 0 && exp->valuedouble < 253402300800.0)
		expires = (int64_t)exp->valuedouble;
	cJSON_Delete(claims);
	return expires;
}

/* Reads the whole file into BYTES. Returns its length or -errno; -EFBIG: above TOKEN_MAX. */
static ssize_t read_file(const char *path, char bytes[TOKEN_MAX + 1])
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	size_t len = 0;
	ssize_t n;

	if (fd < 0)
		return -errno;
	for (;;) {
		n = read(fd, bytes + len, TOKEN_MAX + 1 - len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		len += (size_t)n;
		if (len > TOKEN_MAX)
			return -EFBIG;
		if (n == 0)
			return (ssize_t)len;
	}
}

int token_read(const char *path, struct token *ret, struct error *err)
{
	char bytes[TOKEN_MAX + 1];
	ssize_t len = read_file(path, bytes), i;
	struct token t;
	int r = 0;

	if (len < 0) {
		explicit_bzero(bytes, sizeof(bytes));
		return error_set(err, (int)len, "%s: %s", path, strerror((int)-len));
	}
	while (len > 0 && strchr(" \t\r\n", bytes[len - 1]))
		len--;
	for (i = 0; i < len && r == 0; i++) {
		if (bytes[i] <= ' ' || bytes[i] > '~')
			r = error_set(err, -EINVAL, "%s: this is no token", path);
	}
	if (len == 0)
		r = error_set(err, -EINVAL, "%s: the file is empty", path);
	if (r == 0) {
		t.text = strndup(bytes, (size_t)len);
		if (!t.text)
			r = error_set(err, -ENOMEM, "out of memory");
	}
	explicit_bzero(bytes, sizeof(bytes));
	if (r < 0)
		return r;
	t.expires_s = token_expiry(t.text);
	*ret = t;
	return 0;
}

void token_done(struct token *t)
{
	if (t->text)
		explicit_bzero(t->text, strlen(t->text));
	free(t->text);
	*t = (struct token){0};
}
