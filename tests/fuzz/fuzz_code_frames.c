// SPDX-License-Identifier: Apache-2.0
/*
 * Any bytes as code without unwind information. The first byte says how much of the rest is a
 * table of addresses or distances that the code may jump through, the second where a symbol's
 * function ends.
 */
#include "agent/elf/code_frames.h"
#include "agent/elf/unwind.h"
#include "tests/fuzz/elf_image.h"

enum { TEXT = 0x1000, TABLE = 0x100000 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Rows ascend and lie in their functions, functions ascend, and the work has its bound. */
static void check(const struct image *image)
{
	_cleanup_(code_frames_done) struct code_frames c = {0};
	_cleanup_(spans_done) struct spans none = {0}, spans = {0};

	if (code_frames_collect(&c, image, &none, &spans) < 0)
		abort();
	for (size_t i = 0; i < spans.n; i++) {
		const struct code_function *f = &c.functions[spans.v[i].item];

		if ((i && span_end(&spans.v[i - 1]) > spans.v[i].start) || f->size > f->room ||
		    f->first_row + f->n_rows > c.n_rows)
			abort();
		for (uint32_t k = 0; k < f->n_rows; k++) {
			const struct code_row *row = &c.rows[f->first_row + k];

			if (row->vaddr - f->start >= f->size ||
			    (k && row[-1].vaddr >= row->vaddr) ||
			    (row->rule.kind == KILN_RULE_CFA && row->rule.reg >= CODE_REGS))
				abort();
		}
	}
	if (c.flow.n_states > CODE_STATES_MAX || c.flow.budget > c.bytes * CODE_STEPS_PER_BYTE)
		abort();
}

/*
 * Reads places all over the code. Pieces ascend, and every place that is not a guess is in a piece.
 */
static void check_places(const struct image *image, size_t size)
{
	_cleanup_(code_pieces_done) struct code_pieces p = {0};
	struct code_place places[64];
	uint64_t bytes;
	size_t k = 0;

	for (size_t i = 0; i < ARRAY_SIZE(places); i++)
		places[i] = (struct code_place){.vaddr = TEXT + i * 37 % (size + 2),
						.is_guess = i % 3 == 1};
	if (code_places_read(image, places, ARRAY_SIZE(places), &p, &bytes) < 0)
		abort();
	for (size_t i = 0; i < p.n; i++)
		if (p.v[i].start >= p.v[i].end || (i && p.v[i - 1].end > p.v[i].start))
			abort();
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		while (k < p.n && p.v[k].end <= places[i].vaddr)
			k++;
		if (!places[i].is_guess && (k == p.n || p.v[k].start > places[i].vaddr))
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_(unwind_table_freep) struct unwind_table *t = NULL;
	_cleanup_(image_unrefp) struct image *image = NULL;
	_cleanup_free_ uint8_t *file = NULL;
	Elf64_Sym syms[2] = {0};
	size_t code, file_size;

	if (size < 4)
		return 0;
	code = (size - 2) - (size - 2) * (data[0] & 0x7f) / 255;
	syms[1] = (Elf64_Sym){.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
			      .st_shndx = 1,
			      .st_value = TEXT + data[1] / 16,
			      .st_size = (size_t)data[1] * 4};
	const struct elf_image_section sections[] = {
	    {".text", data + 2, code, TEXT, SHF_ALLOC | SHF_EXECINSTR, 0},
	    {".rodata", data + 2 + code, size - 2 - code, TABLE, SHF_ALLOC, 0},
	    {".symtab", syms, data[0] & 0x80 ? sizeof(syms) : 0, 0, 0, SHT_SYMTAB},
	};
	file = elf_image_make(sections, ARRAY_SIZE(sections), TEXT + 1, &file_size);
	if (!file || image_from_memory(file, file_size, "fuzz", &image, NULL) < 0)
		abort();
	check(image);
	check_places(image, code);
	if (unwind_compile(image, &t, NULL) < 0)
		abort(); /* bytes that are no code are skipped, never fatal */
	for (uint32_t i = 0; i < t->n_rows; i++)
		if (t->rows[i].rule >= t->n_rules)
			abort();
	return 0;
}
