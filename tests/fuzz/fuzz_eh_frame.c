// SPDX-License-Identifier: Apache-2.0
/*
 * Call frame information inside of a sound ELF file. The first byte says which section the rest is,
 * .eh_frame, .debug_frame, or half of it each.
 */
#include "agent/elf/unwind.h"
#include "tests/fuzz/elf_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t text[8192];
	_cleanup_(unwind_table_freep) struct unwind_table *t = NULL;
	_cleanup_(image_unrefp) struct image *image = NULL;
	_cleanup_free_ uint8_t *file = NULL;
	size_t eh, file_size;

	if (size < 1)
		return 0;
	eh = data[0] % 3 == 0 ? size - 1 : data[0] % 3 == 1 ? 0 : (size - 1) / 2;
	const struct elf_image_section sections[] = {
	    {".text", text, sizeof(text), 0x1000, SHF_ALLOC | SHF_EXECINSTR, 0},
	    {".eh_frame", data + 1, eh, 0x8000, SHF_ALLOC, 0},
	    {".debug_frame", data + 1 + eh, size - 1 - eh, 0, 0, 0},
	};
	file = elf_image_make(sections, ARRAY_SIZE(sections), 0x1000, &file_size);
	if (!file || image_from_memory(file, file_size, "fuzz", &image, NULL) < 0)
		abort();
	if (unwind_compile(image, &t, NULL) < 0)
		abort(); /* bad call frame information is skipped, never fatal */
	for (uint32_t i = 0; i < t->n_rows; i++)
		if (t->rows[i].rule >= t->n_rules)
			abort();
	for (uint64_t pc = 0xfff; pc < 0x1000 + sizeof(text) + 1024; pc += 13)
		(void)unwind_lookup(t, pc);
	return 0;
}
