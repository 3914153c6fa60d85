// SPDX-License-Identifier: Apache-2.0
/*
 * Compressed sections: gABI SHF_COMPRESSED (zlib, zstd) and the older .zdebug_* form of GNU
 * ("ZLIB", then the size as a big-endian u64). The size that the header claims is checked against
 * the caller's cap before anything is allocated. Any thread.
 */
#include "agent/elf/image.h"

#include <elf.h>
#include <endian.h>
#include <zlib.h>
#include <zstd.h>

#ifndef ELFCOMPRESS_ZSTD
#define ELFCOMPRESS_ZSTD 2
#endif

static int unpack_zlib(void *out, size_t size, struct cursor in)
{
	uLongf n = size;

	return uncompress(out, &n, in.data + in.pos, cursor_left(&in)) == Z_OK && n == size
		   ? 0
		   : -EBADMSG;
}

static int unpack_zstd(void *out, size_t size, struct cursor in)
{
	size_t n = ZSTD_decompress(out, size, in.data + in.pos, cursor_left(&in));

	return !ZSTD_isError(n) && n == size ? 0 : -EBADMSG;
}

int image_section_unpack(const struct image *image, const struct image_section *section, size_t max,
			 void **ret_owned, struct cursor *ret, struct error *err)
{
	struct cursor c = image_section_data(image, section);
	_cleanup_free_ void *out = NULL;
	uint32_t type;
	uint64_t size;
	int r;

	if (c.bad)
		return error_set(err, -EBADMSG, "section %s lies outside of the file",
				 section->name);
	if (section->flags & SHF_COMPRESSED) {
		type = cursor_u32(&c);
		cursor_skip(&c, 4);
		size = cursor_u64(&c);
		cursor_skip(&c, 8);
	} else if (has_prefix(section->name, ".zdebug") && cursor_left(&c) >= 12 &&
		   memcmp(c.data, "ZLIB", 4) == 0) {
		type = ELFCOMPRESS_ZLIB;
		cursor_skip(&c, 4);
		size = be64toh(cursor_u64(&c));
	} else {
		*ret_owned = NULL;
		*ret = c;
		return 0;
	}
	if (c.bad || size == 0)
		return error_set(err, -EBADMSG, "section %s: damaged header", section->name);
	if (size > max)
		return error_set(err, -EFBIG, "section %s: %llu bytes unpacked, more than %zu",
				 section->name, (unsigned long long)size, max);
	out = malloc(size);
	if (!out)
		return error_set(err, -ENOMEM, "out of memory");
	r = type == ELFCOMPRESS_ZLIB   ? unpack_zlib(out, size, c)
	    : type == ELFCOMPRESS_ZSTD ? unpack_zstd(out, size, c)
				       : -ENOTSUP;
	if (r < 0)
		return error_set(err, r, "section %s: cannot unpack (type %u)", section->name,
				 type);
	*ret = cursor_of(out, size);
	*ret_owned = TAKE_PTR(out);
	return 0;
}
