// SPDX-License-Identifier: Apache-2.0
/*
 * A Go function table inside of a sound ELF file with a moduledata that fits, so that inline trees
 * are reached too. Input: two bytes say how much of the rest is the inline trees; then those, then
 * the table.
 */
#include "agent/elf/gopclntab.h"
#include "agent/elf/unwind.h"
#include "tests/fuzz/elf_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TEXT = 0x1000, TABLE = 0x100000, GOFUNC = 0x40000, MODULE = 0x8000 };

static void use(const struct gopclntab *t)
{
	struct gopclntab_frame frames[GOPCLNTAB_INLINE_MAX];
	size_t length = 0;

	for (uint64_t pc = TEXT; pc < TEXT + 0x1000; pc += 7) {
		size_t n = gopclntab_symbolize(t, pc, frames, ARRAY_SIZE(frames));

		for (size_t i = 0; i < n; i++)
			length += strlen(frames[i].name) + strlen(frames[i].file);
	}
	if (length == SIZE_MAX)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t text[4096];
	_cleanup_(unwind_table_freep) struct unwind_table *u = NULL;
	_cleanup_(gopclntab_freep) struct gopclntab *t = NULL;
	_cleanup_(image_unrefp) struct image *image = NULL;
	_cleanup_free_ uint8_t *file = NULL;
	uint64_t module[64] = {[0] = TABLE, [22] = TEXT, [38] = GOFUNC, [40] = GOFUNC};
	size_t tree, file_size;

	if (size < 2 || size > 0xf000)
		return 0;
	tree = MIN((size_t)(data[0] | data[1] << 8), size - 2);
	data += 2;
	size -= 2;
	if (size - tree >= 40) { /* moduledata and the header agree on the names' offset */
		memcpy(&module[1], data + tree + 32, 8);
		module[1] += TABLE;
	}
	const struct elf_image_section sections[] = {
	    {".text", text, sizeof(text), TEXT, SHF_ALLOC | SHF_EXECINSTR, 0},
	    {".go.module", module, sizeof(module), MODULE, SHF_ALLOC | SHF_WRITE, 0},
	    {".go.func", data, tree, GOFUNC, SHF_ALLOC, 0},
	    {".gopclntab", data + tree, size - tree, TABLE, SHF_ALLOC, 0},
	};
	file = elf_image_make(sections, ARRAY_SIZE(sections), TEXT, &file_size);
	if (!file || image_from_memory(file, file_size, "fuzz", &image, NULL) < 0)
		abort();
	if (gopclntab_open(image, &t, NULL) == 0)
		use(t);
	if (unwind_compile(image, &u, NULL) < 0)
		abort();
	return 0;
}
