// SPDX-License-Identifier: Apache-2.0
/*
 * Code without unwind information: entry points, signal trampolines, thread starts, PLT sections
 * and _init get their rules from their bytes; everything else stays invalid. Bytes as found in
 * musl 1.2.3, binutils 2.40 and lld 14; and a static musl program when there is a musl-gcc.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent/elf/unwind.h"
#include "tests/fuzz/elf_image.h"

enum { TEXT = 0x1000, PLT = 0x8000, INIT = 0x9000 };

static const uint8_t musl_start[] = {0x48, 0x31, 0xed, 0x48, 0x89, 0xe7, 0x48, 0x8d,
				     0x35, 0,	 0,    0,    0,	   0x48, 0x83, 0xe4,
				     0xf0, 0xe8, 0,    0,    0,	   0,	 0x90};
static const uint8_t restore_rt[] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};
static const uint8_t musl_clone[] = {0x31, 0xed, 0x5f, 0x41, 0xff, 0xd1, 0x89, 0xc7,
				     0x31, 0xc0, 0xb0, 0x3c, 0x0f, 0x05, 0xf4};

/* PLT: 64 bytes, for a section called PLT_NAME. INIT: the code of .init. */
static struct unwind_table *compile(const uint8_t *text, size_t text_size, const uint8_t *plt,
				    const char *plt_name, const uint8_t *init, size_t init_size)
{
	const struct elf_image_section sections[] = {
	    {".text", text, text_size, TEXT, SHF_ALLOC | SHF_EXECINSTR, 0},
	    {plt_name, plt, 64, PLT, SHF_ALLOC | SHF_EXECINSTR, 0},
	    {".init", init, init_size, INIT, SHF_ALLOC | SHF_EXECINSTR, 0},
	};
	_cleanup_(image_unrefp) struct image *image = NULL;
	_cleanup_free_ uint8_t *file = NULL;
	struct unwind_table *t = NULL;
	size_t size;

	file = elf_image_make(sections, ARRAY_SIZE(sections), TEXT, &size);
	assert_non_null(file);
	assert_int_equal(image_from_memory(file, size, "test", &image, NULL), 0);
	assert_int_equal(unwind_compile(image, &t, NULL), 0);
	return t;
}

static void expect(const struct unwind_table *t, uint64_t pc, enum kiln_rule_kind kind, int off)
{
	const struct kiln_rule *r = unwind_lookup(t, pc);

	if (r->kind != kind || r->cfa_off != off)
		fail_msg("%#llx: kind %d off %d, want kind %d off %d", (unsigned long long)pc,
			 r->kind, r->cfa_off, kind, off);
}

static void musl_is_known_by_its_bytes(void **state)
{
	uint8_t text[512], plt[64] = {0}, init[1] = {0x90};
	_cleanup_(unwind_table_freep) struct unwind_table *t = NULL;

	memset(text, 0x90, sizeof(text));
	memcpy(text, musl_start, sizeof(musl_start));
	memcpy(text + 0x80, restore_rt, sizeof(restore_rt));
	memcpy(text + 0xc0, musl_clone, sizeof(musl_clone));
	t = compile(text, sizeof(text), plt, ".other", init, 1);
	expect(t, TEXT, KILN_RULE_STOP, 0);
	expect(t, TEXT + 21, KILN_RULE_STOP, 0); /* the call's last byte */
	expect(t, TEXT + 0x40, KILN_RULE_INVALID, 0);
	expect(t, TEXT + 0x7f, KILN_RULE_SIGNAL, 0); /* its address as a return address, minus 1 */
	expect(t, TEXT + 0x88, KILN_RULE_SIGNAL, 0);
	expect(t, TEXT + 0xc5, KILN_RULE_STOP, 0); /* the call of the thread's function */
	expect(t, TEXT + 0x100, KILN_RULE_INVALID, 0);
	expect(t, PLT, KILN_RULE_INVALID, 0);
}

static void the_entry_point_of_other_libraries_stops(void **state)
{
	static const uint8_t starts[][16] = {
	    /* xor %ebp,%ebp; mov %rdx,%r9; call *; hlt */
	    {0x31, 0xed, 0x49, 0x89, 0xd1, 0xff, 0x15, 1, 2, 3, 4, 0xf4},
	    {0xf3, 0x0f, 0x1e, 0xfa, 0x31, 0xed, 0xff, 0x15, 1, 2, 3, 0xf4},
	    /* mov %rsp,%rdi; call; jmp *%r12 */
	    {0x48, 0x89, 0xe7, 0xe8, 1, 2, 3, 4, 0x90, 0x41, 0xff, 0xe4},
	};
	uint8_t text[64], plt[64] = {0}, init[1] = {0x90};

	for (size_t i = 0; i < ARRAY_SIZE(starts); i++) {
		_cleanup_(unwind_table_freep) struct unwind_table *t = NULL;

		memset(text, 0xcc, sizeof(text));
		memcpy(text, starts[i], 12);
		t = compile(text, sizeof(text), plt, ".other", init, 1);
		expect(t, TEXT, KILN_RULE_STOP, 0);
		expect(t, TEXT + 11, KILN_RULE_STOP, 0);
		expect(t, TEXT + 40, KILN_RULE_INVALID, 0);
	}
}

static void lazy_plt_entries_push(void **state)
{
	static const uint8_t gnu[64] = {0xff, 0x35, 0,	  0, 0, 0, 0xff, 0x25, 0, 0,
					0,    0,    0,	  0, 0, 0, 0xff, 0x25, 0, 0,
					0,    0,    0x68, 0, 0, 0, 0,	 0xe9};
	static const uint8_t ibt[64] = {0xff, 0x35, 0,	  0, 0, 0, 0xff, 0x25, 0,
					0,    0,    0,	  0, 0, 0, 0,	 0xf3, 0x0f,
					0x1e, 0xfa, 0x68, 0, 0, 0, 0,	 0xe9};
	uint8_t text[16] = {0xcc}, init[1] = {0x90};

	for (int i = 0; i < 2; i++) {
		_cleanup_(unwind_table_freep) struct unwind_table *t =
		    compile(text, sizeof(text), i ? ibt : gnu, ".plt", init, 1);

		expect(t, PLT, KILN_RULE_CFA, 16);
		expect(t, PLT + 6, KILN_RULE_CFA, 24);
		expect(t, PLT + 16, KILN_RULE_PLT, i ? 9 : 11);
		expect(t, PLT + 63, KILN_RULE_PLT, i ? 9 : 11);
		expect(t, PLT + 64, KILN_RULE_INVALID, 0);
	}
}

static void other_plt_sections_only_jump(void **state)
{
	static const uint8_t jumps[64] = {0xff, 0x25, 0, 0, 0, 0, 0x66, 0x90};
	static const char *const names[] = {".plt.got", ".plt.sec", ".iplt"};
	uint8_t text[16] = {0xcc}, init[1] = {0x90};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		_cleanup_(unwind_table_freep) struct unwind_table *t =
		    compile(text, sizeof(text), jumps, names[i], init, 1);

		expect(t, PLT, KILN_RULE_CFA, 8);
		expect(t, PLT + 63, KILN_RULE_CFA, 8);
	}
}

static void init_moves_the_stack_by_8(void **state)
{
	static const uint8_t code[] = {0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x83, 0xec, 0x08, 0xe8,
				       0,    0,	   0,	 0,    0x48, 0x83, 0xc4, 0x08, 0xc3};
	uint8_t text[16] = {0xcc}, plt[64] = {0};
	_cleanup_(unwind_table_freep) struct unwind_table *t =
	    compile(text, sizeof(text), plt, ".other", code, sizeof(code));

	expect(t, INIT, KILN_RULE_CFA, 8);
	expect(t, INIT + 7, KILN_RULE_CFA, 8);
	expect(t, INIT + 8, KILN_RULE_CFA, 16);
	expect(t, INIT + 16, KILN_RULE_CFA, 16);
	expect(t, INIT + 17, KILN_RULE_CFA, 8);
}

static void a_static_musl_program_ends_its_stacks(void **state)
{
#ifdef MUSL_PROGRAM
	_cleanup_(unwind_table_freep) struct unwind_table *t = NULL;
	_cleanup_(image_unrefp) struct image *image = NULL;
	unsigned int stops = 0, signals = 0;

	assert_int_equal(image_open(open(MUSL_PROGRAM, O_RDONLY), "musl", &image, NULL), 0);
	assert_int_equal(unwind_compile(image, &t, NULL), 0);
	expect(t, image->entry, KILN_RULE_STOP, 0);
	for (uint32_t i = 0; i < t->n_rows; i++) {
		stops += t->rules[t->rows[i].rule].kind == KILN_RULE_STOP;
		signals += t->rules[t->rows[i].rule].kind == KILN_RULE_SIGNAL;
	}
	assert_int_equal(stops, 2); /* _start and the thread's start in __clone */
	assert_int_equal(signals, 1);
#else
	skip();
#endif
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(musl_is_known_by_its_bytes),
	    cmocka_unit_test(the_entry_point_of_other_libraries_stops),
	    cmocka_unit_test(lazy_plt_entries_push),
	    cmocka_unit_test(other_plt_sections_only_jump),
	    cmocka_unit_test(init_moves_the_stack_by_8),
	    cmocka_unit_test(a_static_musl_program_ends_its_stacks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
