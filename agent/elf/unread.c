/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The section headers are foreign: sections may overlap each other, the headers and segments, or
 * lie outside of the file. Nothing is left out of such a file. Any thread.
 */
#include "agent/elf/unread.h"

#include <elf.h>

/* A part of the file that has a header, or is one. */
struct piece {
	struct file_range range;
	bool is_unread;
};

struct pieces {
	const struct image *image;
	struct piece *list;
	size_t n;
};

/* Debug information that nothing here reads. */
static bool is_debug(const struct image_section *section)
{
	const char *name = section->name;

	return section->type == SHT_PROGBITS &&
	       (has_prefix(name, ".debug_") || has_prefix(name, ".zdebug_")) &&
	       !streq(name, ".debug_frame") && !streq(name, ".zdebug_frame");
}

bool *image_unread_sections(const struct image *image)
{
	bool *unread = calloc(image->n_sections + 1, sizeof(*unread));

	if (!unread)
		return NULL;
	for (size_t i = 0; i < image->n_sections; i++)
		unread[i] = is_debug(&image->sections[i]);
	/* A symbol table may use any section for its strings. */
	for (size_t i = 0; i < image->n_sections; i++)
		if (image->sections[i].link < image->n_sections)
			unread[image->sections[i].link] = false;
	return unread;
}

/* Adds the part of [OFFSET, OFFSET + SIZE) that lies in the file. */
static void add(struct pieces *p, uint64_t offset, uint64_t size, bool is_unread)
{
	uint64_t start = MIN(offset, p->image->size);
	uint64_t end = start + MIN(size, p->image->size - start);

	if (start < end)
		p->list[p->n++] = (struct piece){{start, end}, is_unread};
}

/* Adds the tables of headers, and what the program headers name. */
static void add_headers(struct pieces *p, const Elf64_Ehdr *h)
{
	uint64_t table = (uint64_t)h->e_phnum * sizeof(Elf64_Phdr);

	add(p, 0, sizeof(*h), false);
	add(p, h->e_phoff, table, false);
	add(p, h->e_shoff, p->image->n_sections * sizeof(Elf64_Shdr), false);
	if (h->e_phoff > p->image->size || table > p->image->size - h->e_phoff)
		return;
	for (size_t i = 0; i < h->e_phnum; i++) {
		Elf64_Phdr segment;

		memcpy(&segment, p->image->data + h->e_phoff + i * sizeof(segment),
		       sizeof(segment));
		add(p, segment.p_offset, segment.p_filesz, false);
	}
}

/* False: one of them does not lie in the file. */
static bool add_sections(struct pieces *p, const bool *unread)
{
	const struct image *image = p->image;

	for (size_t i = 0; i < image->n_sections; i++) {
		const struct image_section *s = &image->sections[i];

		if (s->type == SHT_NOBITS || s->type == SHT_NULL)
			continue;
		if (s->offset > image->size || s->size > image->size - s->offset)
			return false;
		add(p, s->offset, s->size, unread[i]);
	}
	return true;
}

static int compare(const void *a, const void *b)
{
	const struct piece *x = a, *y = b;

	return (x->range.start > y->range.start) - (x->range.start < y->range.start);
}

/* In order of their starts: does one that is not read have a byte in common with any other? */
static bool overlap(const struct pieces *p)
{
	uint64_t read_end = 0, unread_end = 0;

	for (size_t i = 0; i < p->n; i++) {
		const struct piece *piece = &p->list[i];
		uint64_t *end = piece->is_unread ? &unread_end : &read_end;

		if (piece->range.start < unread_end ||
		    (piece->is_unread && piece->range.start < read_end))
			return true;
		*end = MAX(*end, piece->range.end);
	}
	return false;
}

/* The whole blocks of those that are not read. The caller frees them; NULL when out of memory. */
static struct file_range *take_blocks(const struct pieces *p, size_t *ret_n)
{
	uint64_t last = p->image->size > UNREAD_BLOCK ? p->image->size - UNREAD_BLOCK : 0;
	struct file_range *ranges = calloc(p->n + 1, sizeof(*ranges));
	size_t n = 0;

	for (size_t i = 0; ranges && i < p->n; i++) {
		const struct piece *piece = &p->list[i];
		uint64_t start = ALIGN_UP(piece->range.start, UNREAD_BLOCK);
		uint64_t end = MIN(piece->range.end, last) / UNREAD_BLOCK * UNREAD_BLOCK;

		if (piece->is_unread && start < end)
			ranges[n++] = (struct file_range){start, end};
	}
	*ret_n = n;
	return ranges;
}

int image_unread_ranges(const struct image *image, struct file_range **ret, size_t *ret_n)
{
	_cleanup_free_ bool *unread = image_unread_sections(image);
	_cleanup_free_ struct piece *list = NULL;
	struct pieces p = {.image = image};
	struct file_range *ranges;
	Elf64_Ehdr h = {0};
	size_t n;

	if (image->size >= sizeof(h))
		memcpy(&h, image->data, sizeof(h));
	list = calloc(image->n_sections + h.e_phnum + 3, sizeof(*list));
	if (!unread || !list)
		return -ENOMEM;
	p.list = list;
	add_headers(&p, &h);
	if (!add_sections(&p, unread))
		p.n = 0;
	qsort(p.list, p.n, sizeof(*p.list), compare);
	if (overlap(&p))
		p.n = 0;
	ranges = take_blocks(&p, &n);
	if (!ranges)
		return -ENOMEM;
	*ret = ranges;
	*ret_n = n;
	return 0;
}
