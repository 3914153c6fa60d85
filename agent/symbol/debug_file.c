// SPDX-License-Identifier: Apache-2.0
/*
 * Where distributions put symbols: GDB's manual, "Debugging Information in Separate Files" and
 * "MiniDebugInfo", describes the places and the checksum (CRC-32 as in zlib).
 *
 * Files in a process's root are not trusted: they are opened through root_file.h, and only parsed.
 * A file that was found belongs to the image only if the build id or the checksum is right. Any
 * thread.
 */
#include "agent/symbol/debug_file.h"

#include <limits.h>

#include <lzma.h>
#include <zlib.h>

#include "agent/symbol/elf_read.h"
#include "agent/symbol/elf_symbols.h"
#include "agent/symbol/foreign.h"
#include "lib/buf.h"

enum { CHUNK = 64 << 10 };

struct search {
	struct foreign *foreign;
	const struct image *image;
	const char *debug_root;
	char link[NAME_MAX + 1]; /* "" when there is none */
	uint32_t crc;
};

static void read_link(struct search *s)
{
	const struct image_section *section = image_section(s->image, ".gnu_debuglink");
	struct cursor c;
	const char *name;
	size_t len;

	if (!section)
		return;
	c = image_section_data(s->image, section);
	name = cursor_str(&c);
	if (!name)
		return;
	/* The file may be written to between two reads, so the copy is checked. */
	len = strnlen(name, NAME_MAX);
	memcpy(s->link, name, len);
	s->link[len] = '\0';
	cursor_seek(&c, ALIGN_UP(c.pos, 4));
	s->crc = cursor_u32(&c);
	if (c.bad || strchr(s->link, '/') || streq(s->link, ".."))
		s->link[0] = '\0';
}

static bool crc_is_right(const struct image *file, uint32_t want)
{
	_cleanup_free_ unsigned char *buffer = malloc(CHUNK);
	uLong crc = crc32(0, NULL, 0);
	size_t n;

	if (!buffer || file->size > DEBUG_CRC_MAX)
		return false;
	for (size_t at = 0; at < file->size; at += n) {
		n = elf_read(file, at, buffer, CHUNK);
		if (!n)
			return false;
		crc = crc32(crc, buffer, (uInt)n);
	}
	return crc == want;
}

static bool belongs(const struct search *s, const struct image *file, bool by_link)
{
	const struct image *image = s->image;

	if (image->build_id_len && file->build_id_len)
		return image->build_id_len == file->build_id_len &&
		       memcmp(image->build_id, file->build_id, image->build_id_len) == 0;
	return by_link && crc_is_right(file, s->crc);
}

static int try_path(const struct search *s, const char *root, const char *path, bool by_link,
		    struct image **ret)
{
	_cleanup_(image_unrefp) struct image *file = NULL;
	int fd = foreign_open(s->foreign, root, path, false), r;

	if (fd < 0)
		return -ENOENT;
	r = image_open(fd, path, &file, NULL);
	if (r < 0)
		return r == -ENOMEM ? r : -ENOENT;
	if (elf_symbols_listed(file, false) < 2 || !belongs(s, file, by_link))
		return -ENOENT;
	*ret = TAKE_PTR(file);
	return 0;
}

static int try_build_id(const struct search *s, const char *root, struct image **ret)
{
	char hex[IMAGE_BUILD_ID_MAX * 2 + 1], path[PATH_MAX];

	if (s->image->build_id_len < 2)
		return -ENOENT;
	image_build_id_hex(s->image, hex, sizeof(hex));
	if (snprintf(path, sizeof(path), "%s/.build-id/%.2s/%s.debug", s->debug_root, hex,
		     hex + 2) >= (int)sizeof(path))
		return -ENOENT;
	return try_path(s, root, path, false, ret);
}

static int try_link(const struct search *s, const char *root, struct image **ret)
{
	const char *file = s->image->path, *slash = strrchr(file, '/');
	/* The first two lie in the image's own directory: not tried for a remote image. */
	const char *const formats[][2] = {{"", ""}, {"", "/.debug"}, {s->debug_root, ""}};
	char path[PATH_MAX];
	int r = -ENOENT;

	if (!s->link[0] || file[0] != '/')
		return -ENOENT;
	for (size_t i = s->image->is_remote ? 2 : 0; r == -ENOENT && i < ARRAY_SIZE(formats); i++) {
		if (snprintf(path, sizeof(path), "%s%.*s%s/%s", formats[i][0], (int)(slash - file),
			     file, formats[i][1], s->link) < (int)sizeof(path))
			r = try_path(s, root, path, true, ret);
	}
	return r;
}

int debug_file_find(struct foreign *foreign, const struct image *image, const char *root,
		    const char *debug_root, struct image **ret)
{
	struct search s = {.foreign = foreign, .image = image, .debug_root = debug_root};
	const char *const roots[] = {root, "/"};
	int r = -ENOENT;

	read_link(&s);
	for (size_t i = root && !image->is_remote ? 0 : 1; r == -ENOENT && i < ARRAY_SIZE(roots);
	     i++) {
		r = try_build_id(&s, roots[i], ret);
		if (r == -ENOENT)
			r = try_link(&s, roots[i], ret);
	}
	return r;
}

/* ---- .gnu_debugdata ---------------------------------------------------------------------------
 */

static int unpack_xz(const struct elf_source *in, struct buf *out)
{
	_cleanup_free_ uint8_t *buffer = malloc(2 * CHUNK);
	lzma_stream stream = LZMA_STREAM_INIT;
	lzma_ret r = LZMA_OK;
	uint64_t at = 0;
	int error = 0;

	if (!buffer || lzma_stream_decoder(&stream, DEBUG_DATA_MEMORY, 0) != LZMA_OK)
		return -ENOMEM;
	while (r == LZMA_OK && !error) {
		if (!stream.avail_in) {
			stream.next_in = buffer;
			stream.avail_in = elf_source_read(in, at, buffer, CHUNK);
			at += stream.avail_in;
		}
		stream.next_out = buffer + CHUNK;
		stream.avail_out = CHUNK;
		r = lzma_code(&stream, stream.avail_in ? LZMA_RUN : LZMA_FINISH);
		error = buf_append(out, buffer + CHUNK, CHUNK - stream.avail_out);
	}
	lzma_end(&stream);
	if (error)
		return error == -E2BIG ? -EFBIG : error;
	return r == LZMA_STREAM_END ? 0 : r == LZMA_MEMLIMIT_ERROR ? -EFBIG : -EBADMSG;
}

int debug_data_unpack(const struct image *image, struct image **ret, struct error *err)
{
	const struct image_section *section = image_section(image, ".gnu_debugdata");
	_cleanup_(elf_source_done) struct elf_source source = {0};
	_cleanup_(buf_done) struct buf out;
	int r;

	buf_init(&out, DEBUG_DATA_MAX);
	if (!section)
		return -ENOENT;
	r = elf_source_init(&source, image, section, 1, err);
	if (r < 0)
		return r;
	r = unpack_xz(&source, &out);
	if (r < 0)
		return error_set(err, r, "cannot unpack .gnu_debugdata: %s", strerror(-r));
	return image_from_memory(out.data, out.len, image->path, ret, err);
}
