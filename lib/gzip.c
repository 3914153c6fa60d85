/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/gzip.h"

#include <libdeflate.h>

enum { TRAILER = 8, LENGTH = 4 /* the last 4 bytes: length of the content, modulo 2^32 */ };

size_t gzip_bound(size_t len)
{
	/* Without a compressor: the bound for any of them. */
	return libdeflate_gzip_compress_bound(NULL, len);
}

int gzip_compress(int level, const void *data, size_t len, void *out, size_t cap, size_t *ret_len)
{
	struct libdeflate_compressor *c = libdeflate_alloc_compressor(level);
	size_t n = c ? libdeflate_gzip_compress(c, data, len, out, cap) : 0;

	libdeflate_free_compressor(c);
	if (!n) /* CAP is large enough, so the cause is a lack of memory */
		return -ENOMEM;
	*ret_len = n;
	return 0;
}

int gzip_expand(const void *data, size_t len, size_t max, uint8_t **ret, size_t *ret_len)
{
	struct libdeflate_decompressor *d;
	_cleanup_free_ uint8_t *out = NULL;
	enum libdeflate_result r;
	uint32_t size;

	/* RFC 1952 §2.3.1. Checked before the size, so that other data is not reported as too
	 * large. */
	if (len < TRAILER || memcmp(data, "\x1f\x8b", 2) != 0)
		return -EBADMSG;
	memcpy(&size, (const uint8_t *)data + len - LENGTH, sizeof(size));
	if (size > max)
		return -E2BIG;
	out = malloc((size_t)size + 1);
	d = out ? libdeflate_alloc_decompressor() : NULL;
	if (!d)
		return -ENOMEM;
	r = libdeflate_gzip_decompress(d, data, len, out, size, NULL);
	libdeflate_free_decompressor(d);
	if (r != LIBDEFLATE_SUCCESS)
		return -EBADMSG;
	*ret = TAKE_PTR(out);
	*ret_len = size;
	return 0;
}
