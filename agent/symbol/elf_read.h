/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bulk reads of an image's file that leave no page of its mapping resident and cannot fault: pread
 * where there is a file, a copy where there is none.
 */
#pragma once

#include "agent/elf/image.h"

/* Up to SIZE bytes at OFFSET; returns how many, fewer at the end of the file, 0 on failure. */
size_t elf_read(const struct image *image, uint64_t offset, void *out, size_t size);
/* A section by type; NULL when there is none. */
const struct image_section *elf_section_by_type(const struct image *image, uint32_t type);

/* A section's bytes, read piecewise: compressed ones are unpacked as a whole first. */
struct elf_source {
	const struct image *image;
	uint64_t offset, size;
	void *unpacked; /* owned bytes; NULL: they are read from the file */
};

int elf_source_init(struct elf_source *s, const struct image *image,
		    const struct image_section *section, size_t max,
		    struct error *err) _must_check_;
/*
 * Reads all of S into memory if it has at most MAX bytes, for callers that read many small pieces.
 * If the file has become shorter, so does S. -ENOMEM: S is unchanged.
 */
int elf_source_load(struct elf_source *s, size_t max) _must_check_;
void elf_source_done(struct elf_source *s);
/* As elf_read(), OFFSET within the section. */
size_t elf_source_read(const struct elf_source *s, uint64_t offset, void *out, size_t size);
/* A string at OFFSET, cut to SIZE - 1 bytes. Returns its length; 0 also when there is none. */
size_t elf_source_string(const struct elf_source *s, uint64_t offset, char *out, size_t size);
