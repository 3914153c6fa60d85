// SPDX-License-Identifier: Apache-2.0
/*
 * Piecewise reading of sections. The mapping of an image is good for headers and single look-ups,
 * but every page touched through it counts as ours until it is forgotten; symbol tables are large
 * and read once, so they come through a small buffer. Offsets are checked against the section, the
 * section against the file. Any thread.
 */
#include "agent/symbol/elf_read.h"

#include <elf.h>

size_t elf_read(const struct image *image, uint64_t offset, void *out, size_t size)
{
	size_t done = 0;
	ssize_t n;

	if (offset >= image->size)
		return 0;
	size = MIN(size, image->size - offset);
	if (image->fd < 0) {
		memcpy(out, image->data + offset, size);
		return size;
	}
	while (done < size) {
		n = pread(image->fd, (char *)out + done, size - done, (off_t)(offset + done));
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		done += (size_t)n;
	}
	return done;
}

const struct image_section *elf_section_by_type(const struct image *image, uint32_t type)
{
	for (size_t i = 0; i < image->n_sections; i++) {
		if (image->sections[i].type == type)
			return &image->sections[i];
	}
	return NULL;
}

int elf_source_init(struct elf_source *s, const struct image *image,
		    const struct image_section *section, size_t max, struct error *err)
{
	struct cursor c;
	void *owned;
	int r;

	if (section->type == SHT_NOBITS)
		return error_set(err, -ENODATA, "section %s has no bytes", section->name);
	if (section->flags & SHF_COMPRESSED) {
		r = image_section_unpack(image, section, max, &owned, &c, err);
		if (r < 0)
			return r;
		*s = (struct elf_source){.image = image, .size = c.size, .unpacked = owned};
		return 0;
	}
	if (section->offset > image->size || section->size > image->size - section->offset)
		return error_set(err, -EBADMSG, "section %s lies outside of the file",
				 section->name);
	*s = (struct elf_source){.image = image, .offset = section->offset, .size = section->size};
	return 0;
}

int elf_source_load(struct elf_source *s, size_t max)
{
	void *bytes;

	if (s->unpacked || !s->size || s->size > max)
		return 0;
	bytes = malloc(s->size);
	if (!bytes)
		return -ENOMEM;
	s->size = elf_read(s->image, s->offset, bytes, s->size);
	s->unpacked = bytes;
	return 0;
}

void elf_source_done(struct elf_source *s)
{
	free(s->unpacked);
	*s = (struct elf_source){0};
}

size_t elf_source_read(const struct elf_source *s, uint64_t offset, void *out, size_t size)
{
	if (offset >= s->size)
		return 0;
	size = MIN(size, s->size - offset);
	if (s->unpacked) {
		memcpy(out, (const char *)s->unpacked + offset, size);
		return size;
	}
	return elf_read(s->image, s->offset + offset, out, size);
}

size_t elf_source_string(const struct elf_source *s, uint64_t offset, char *out, size_t size)
{
	size_t n = 0, got, chunk;
	const char *end;

	out[0] = 0;
	while (n < size - 1) {
		chunk = MIN(size - 1 - n, 256); /* most names end within the first piece */
		got = elf_source_read(s, offset + n, out + n, chunk);
		end = memchr(out + n, 0, got);
		if (end)
			return (size_t)(end - out);
		n += got;
		if (got < chunk) { /* the table ends without a NUL: damaged */
			out[0] = 0;
			return 0;
		}
	}
	out[n] = 0;
	return n;
}
