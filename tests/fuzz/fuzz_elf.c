// SPDX-License-Identifier: Apache-2.0
/* Any bytes as an ELF file: opened, compiled, looked up, and read as a Go program. */
#include "agent/elf/gopclntab.h"
#include "agent/elf/unread.h"
#include "agent/elf/unwind.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look_up(const struct image *image, const struct unwind_table *t)
{
	for (size_t i = 0; i < image->n_segments; i++)
		for (unsigned int k = 0; k < 64; k++)
			(void)unwind_lookup(t, image->segments[i].vaddr + k * 37);
	for (uint32_t i = 0; i < t->n_rows; i++)
		if (t->rows[i].rule >= t->n_rules)
			abort();
	for (uint32_t b = 0; b < t->blocks; b++)
		if (t->index[b] > t->index[b + 1] || t->index[b + 1] > t->n_rows)
			abort();
}

static void read_sections(const struct image *image)
{
	for (size_t i = 0; i < image->n_sections && i < 64; i++) {
		_cleanup_free_ void *owned = NULL;
		struct cursor c;

		(void)!image_section_unpack(image, &image->sections[i], 1 << 20, &owned, &c, NULL);
	}
}

static void read_go(const struct image *image)
{
	_cleanup_(gopclntab_freep) struct gopclntab *t = NULL;
	struct gopclntab_frame frames[GOPCLNTAB_INLINE_MAX];

	if (gopclntab_open(image, &t, NULL) < 0)
		return;
	for (size_t i = 0; i < gopclntab_count(t) && i < 256; i++) {
		struct gopclntab_func f;

		if (gopclntab_at(t, i, &f))
			(void)gopclntab_symbolize(t, f.entry, frames, ARRAY_SIZE(frames));
	}
}

static void check_unread(const struct image *image)
{
	_cleanup_free_ struct file_range *ranges = NULL;
	uint64_t end = UNREAD_BLOCK;
	size_t n = 0;

	if (image_unread_ranges(image, &ranges, &n) < 0)
		return;
	for (size_t i = 0; i < n; i++) {
		if (ranges[i].start < end || ranges[i].end <= ranges[i].start ||
		    ranges[i].end > image->size - UNREAD_BLOCK)
			abort();
		end = ranges[i].end;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_(image_unrefp) struct image *image = NULL;
	_cleanup_(unwind_table_freep) struct unwind_table *t = NULL;
	struct error err = {0};
	uint64_t vaddr;

	if (image_from_memory(data, size, "fuzz", &image, &err) < 0)
		return 0;
	read_sections(image);
	check_unread(image);
	read_go(image);
	(void)image_offset_to_vaddr(image, size / 2, &vaddr);
	/* A span of 1 GiB is allowed but makes each run slow. */
	for (size_t i = 0; i < image->n_segments; i++)
		if (image->segments[i].memsz > 64 << 20)
			return 0;
	if (unwind_compile(image, &t, &err) == 0)
		look_up(image, t);
	return 0;
}
