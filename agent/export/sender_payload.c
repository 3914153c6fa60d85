/* SPDX-License-Identifier: Apache-2.0 */
/* Compression of requests, on a thread of the pool. Level: fast, profiles are repetitive anyway. */
#include "agent/export/sender_payload.h"

#include <zstd.h>

#include "agent/profile/otlp_convert.h"
#include "lib/gzip.h"

enum { ZSTD_LEVEL = 3 };

void payload_done(struct payload *p)
{
	free(p->data);
	*p = (struct payload){0};
}

int payload_encoding_parse(const char *text, enum payload_encoding *ret)
{
	if (!text || streq(text, "gzip"))
		*ret = PAYLOAD_GZIP;
	else if (streq(text, "zstd"))
		*ret = PAYLOAD_ZSTD;
	else if (streq(text, "none") || streq(text, ""))
		*ret = PAYLOAD_PLAIN;
	else
		return -EINVAL;
	return 0;
}

const char *payload_encoding_name(enum payload_encoding encoding)
{
	static const char *const names[] = {NULL, "gzip", "zstd"};

	return (size_t)encoding < ARRAY_SIZE(names) ? names[encoding] : NULL;
}

int payload_compress(enum payload_encoding encoding, const void *data, size_t len, int64_t samples,
		     struct payload *ret)
{
	struct payload p = {.samples = samples, .encoding = encoding};
	_cleanup_free_ uint8_t *out = NULL;
	size_t cap;
	uint8_t *fit;
	int r = 0;

	if (len > PAYLOAD_MAX / 2)
		return -E2BIG;
	if (encoding == PAYLOAD_GZIP)
		cap = gzip_bound(len);
	else
		cap = encoding == PAYLOAD_ZSTD ? ZSTD_compressBound(len) : len;
	out = malloc(cap + 1);
	if (!out)
		return -ENOMEM;
	if (encoding == PAYLOAD_GZIP) {
		r = gzip_compress(GZIP_FAST, data, len, out, cap, &p.len);
	} else if (encoding == PAYLOAD_ZSTD) {
		p.len = ZSTD_compress(out, cap, data, len, ZSTD_LEVEL);
		r = ZSTD_isError(p.len) ? -ENOMEM : 0;
	} else {
		memcpy(out, data, len);
		p.len = len;
	}
	if (r < 0)
		return r;
	/* The queue may hold the request for long: free the part of the buffer that is unused. */
	fit = realloc(out, p.len + 1);
	if (fit)
		out = fit;
	p.data = TAKE_PTR(out);
	*ret = p;
	return 0;
}

static int expand_zstd(const struct payload *p, uint8_t **ret, size_t *ret_len)
{
	unsigned long long size = ZSTD_getFrameContentSize(p->data, p->len);
	_cleanup_free_ uint8_t *out = NULL;

	if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN)
		return -EBADMSG;
	if (size > PAYLOAD_EXPANDED_MAX)
		return -E2BIG;
	out = malloc((size_t)size + 1);
	if (!out)
		return -ENOMEM;
	if (ZSTD_decompress(out, (size_t)size, p->data, p->len) != size)
		return -EBADMSG;
	*ret = TAKE_PTR(out);
	*ret_len = (size_t)size;
	return 0;
}

static int expand(const struct payload *p, uint8_t **ret, size_t *ret_len)
{
	if (p->encoding == PAYLOAD_GZIP)
		return gzip_expand(p->data, p->len, PAYLOAD_EXPANDED_MAX, ret, ret_len);
	if (p->encoding == PAYLOAD_ZSTD)
		return expand_zstd(p, ret, ret_len);
	*ret = malloc(p->len + 1);
	if (!*ret)
		return -ENOMEM;
	memcpy(*ret, p->data, p->len);
	*ret_len = p->len;
	return 0;
}

int payload_convert(struct payload *p, enum otlp_generation to)
{
	_cleanup_free_ uint8_t *data = NULL;
	struct payload converted;
	size_t len;
	int r = expand(p, &data, &len);

	if (r == 0)
		r = otlp_convert(data, len, p->generation, to);
	if (r == 0)
		r = payload_compress(p->encoding, data, len, p->samples, &converted);
	if (r < 0)
		return r;
	converted.generation = to;
	payload_done(p);
	*p = converted;
	return 0;
}
