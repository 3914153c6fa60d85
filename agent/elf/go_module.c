// SPDX-License-Identifier: Apache-2.0
/*
 * Finds runtime.firstmoduledata without symbols: its first word is the address of the function
 * table, its second the address of the names, which is also in the table's header. The words are in
 * the file (section .go.module from Go 1.26 on, else anywhere in writable data), or in relative
 * relocations. Offsets: Go 1.18, 1.20, 1.26: src/runtime/symtab.go, type moduledata.
 */
#include "agent/elf/go_module.h"

#include <elf.h>

#include "agent/elf/arch.h"

enum {
	WORDS = 48, /* of moduledata, as far as they are read */
	WORD_NAMES = 1,
	WORD_TEXT = 22,
	WORD_GOFUNC_118 = 38,
	WORD_GOFUNC_120 = 40, /* covctrs and ecovctrs lie before it */
	HEADER_NAMES = 32,    /* funcnameOffset in the table's header */
};

/* A large program has 50 MB of relocations, which are read up to 17 times; sections may overlap. */
#define RELOCATION_BYTES_MAX (1ULL << 30)

struct finder {
	const struct image *image;
	uint64_t table, names;
	size_t gofunc;
	uint64_t left; /* bytes of relocations that may still be read */
	struct go_module *ret;
};

static struct cursor relocations(struct finder *f, size_t *next)
{
	struct cursor c;

	while (*next < f->image->n_sections) {
		const struct image_section *s = &f->image->sections[(*next)++];

		if (s->type != SHT_RELA || !(s->flags & SHF_ALLOC))
			continue;
		c = image_section_data(f->image, s);
		c.size = (size_t)MIN(c.size, c.pos + f->left);
		f->left -= cursor_left(&c);
		return c;
	}
	return (struct cursor){.bad = true};
}

/* Puts the relocated words of [at, at + sizeof(words)) into WORDS. */
static void apply(struct finder *f, uint64_t at, uint64_t *words)
{
	size_t next = 0;

	while (next < f->image->n_sections) {
		struct cursor c = relocations(f, &next);

		while (cursor_left(&c) >= sizeof(Elf64_Rela)) {
			uint64_t offset = cursor_u64(&c), info = cursor_u64(&c);
			uint64_t addend = cursor_u64(&c);

			if (ELF64_R_TYPE(info) == arch_relative && offset >= at &&
			    offset - at < WORDS * 8 && offset % 8 == 0)
				words[(offset - at) / 8] = addend;
		}
	}
}

/* Is there a moduledata at AT? */
static bool try(struct finder *f, uint64_t at, bool relocated)
{
	struct cursor c = image_at_vaddr(f->image, at);
	uint64_t words[WORDS];

	for (size_t i = 0; i < WORDS; i++)
		words[i] = cursor_u64(&c);
	if (c.bad || at % 8)
		return false;
	if (relocated)
		apply(f, at, words);
	if (words[0] != f->table || words[WORD_NAMES] != f->names ||
	    !image_is_code(f->image, words[WORD_TEXT]))
		return false;
	f->ret->text = words[WORD_TEXT];
	/* The base of inline trees must lie in the file; without it inlined calls are not
	 * resolved. */
	c = image_at_vaddr(f->image, words[f->gofunc]);
	f->ret->gofunc = c.bad ? 0 : words[f->gofunc];
	return true;
}

static bool try_words(struct finder *f, struct cursor c, uint64_t vaddr)
{
	for (size_t at = 0; !c.bad && at + 16 <= c.size; at += 8) {
		uint64_t word;

		memcpy(&word, c.data + at, 8);
		if (word == f->table && try(f, vaddr + at, false))
			return true;
	}
	return false;
}

static bool try_relocations(struct finder *f)
{
	size_t next = 0, tries = 0;

	while (next < f->image->n_sections) {
		struct cursor c = relocations(f, &next);

		while (cursor_left(&c) >= sizeof(Elf64_Rela)) {
			uint64_t offset = cursor_u64(&c), info = cursor_u64(&c);

			if (cursor_u64(&c) != f->table || ELF64_R_TYPE(info) != arch_relative)
				continue;
			/* A handful of words point to the table; each try reads all relocations. */
			if (++tries > 16)
				return false;
			if (try(f, offset, true))
				return true;
		}
	}
	return false;
}

bool go_module_find(const struct image *image, uint64_t table, bool is_120, struct go_module *ret)
{
	struct finder f = {.image = image,
			   .table = table,
			   .left = RELOCATION_BYTES_MAX,
			   .gofunc = is_120 ? WORD_GOFUNC_120 : WORD_GOFUNC_118,
			   .ret = ret};
	const struct image_section *module = image_section(image, ".go.module");
	struct cursor header = image_at_vaddr(image, table);

	cursor_skip(&header, HEADER_NAMES);
	f.names = table + cursor_u64(&header);
	if (header.bad)
		return false;
	if (module && try_words(&f, image_section_data(image, module), module->vaddr))
		return true;
	if (try_relocations(&f))
		return true;
	for (size_t i = 0; i < image->n_segments; i++)
		if ((image->segments[i].flags & PF_W) &&
		    try_words(&f, image_at_vaddr(image, image->segments[i].vaddr),
			      image->segments[i].vaddr))
			return true;
	return false;
}
