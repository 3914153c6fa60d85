/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/gzip.h"

#include <libdeflate.h>

size_t gzip_bound(size_t len)
{
	/* Of any compressor, so also of ours. */
	return libdeflate_gzip_compress_bound(NULL, len);
}

int gzip_compress(int level, const void *data, size_t len, void *out, size_t cap, size_t *ret_len)
{
	struct libdeflate_compressor *c = libdeflate_alloc_compressor(level);
	size_t n = c ? libdeflate_gzip_compress(c, data, len, out, cap) : 0;

	libdeflate_free_compressor(c);
	if (!n) /* CAP is enough: what is left is a lack of memory */
		return -ENOMEM;
	*ret_len = n;
	return 0;
}
