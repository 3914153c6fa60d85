// SPDX-License-Identifier: Apache-2.0
/*
 * Reading single places in code written by hand: the start of a function must be found from its
 * bytes alone, and bytes that could belong to another function must get no rule. Every image is a
 * .text of several functions. The last tests patch a table with the rules that were read.
 */
#include <elf.h>

#include "agent/elf/arch.h"
#include "agent/elf/code_starts.h"
#include "agent/elf/unwind.h"
#include "tests/fuzz/elf_image.h"
#include "tests/support/test.h"

enum { TEXT = 0x1000 };

#define FRAME "\x55\x48\x89\xe5" /* push %rbp; mov %rsp,%rbp */
#define BACK  "\x5d\xc3"	 /* pop %rbp; ret */
#define CALL  "\xe8\x00\x01\x00\x00"
#define NOP8  "\x0f\x1f\x84\x00\x00\x00\x00\x00"

static struct image *image_of(const void *code, size_t size)
{
	_cleanup_free_ uint8_t *file = NULL;
	struct image *image;
	size_t file_size;
	const struct elf_image_section sections[] = {
	    {".text", code, size, TEXT, SHF_ALLOC | SHF_EXECINSTR, 0},
	};

	file = elf_image_make(sections, ARRAY_SIZE(sections), 0, &file_size);
	assert_non_null(file);
	assert_int_equal(image_from_memory(file, file_size, "test", &image, NULL), 0);
	return image;
}

/* The rule of the place AT, when no other place is read. */
static struct kiln_rule rule_at(const void *code, size_t size, uint64_t at)
{
	_cleanup_(image_unrefp) struct image *image = image_of(code, size);
	_cleanup_(code_pieces_done) struct code_pieces pieces = {0};
	struct code_place place = {.vaddr = TEXT + at};
	uint64_t bytes;

	assert_int_equal(code_places_read(image, &place, 1, &pieces, &bytes), 0);
	assert_true(bytes > 0);
	for (size_t i = 0; i < pieces.n; i++) {
		assert_true(pieces.v[i].start < pieces.v[i].end);
		assert_true(i == 0 || pieces.v[i - 1].end <= pieces.v[i].start);
		if (TEXT + at >= pieces.v[i].start && TEXT + at < pieces.v[i].end)
			return pieces.v[i].rule;
	}
	fail_msg("nothing is said of the place");
	return (struct kiln_rule){0};
}

#define AT(code, at) rule_at(code, sizeof(code) - 1, at)

static void assert_cfa(struct kiln_rule r, int reg, int cfa, int bp)
{
	assert_int_equal(r.kind, KILN_RULE_CFA);
	assert_int_equal(r.reg, reg);
	assert_int_equal(r.cfa_off, cfa);
	assert_int_equal(r.ra_off, -8);
	assert_int_equal(r.flags, bp ? KILN_RULE_SAVED_FP : 0);
	assert_int_equal(r.fp_off, bp);
}

static void assert_none(struct kiln_rule r)
{
	assert_int_equal(r.kind, KILN_RULE_INVALID);
}

/* 0: a function with a frame, 16: one without */
static const char two[] = FRAME "\x90\x90\x90\x90\x90\x90" BACK "\xcc\xcc\xcc\xcc"
				"\x89\xf8\x01\xf0\xc3";

static void every_instruction_of_a_framed_function_has_its_rule(void **state)
{
	assert_cfa(AT(two, 0), ARCH_REG_SP, 8, 0);
	assert_cfa(AT(two, 1), ARCH_REG_SP, 16, -2);
	assert_cfa(AT(two, 4), ARCH_REG_FP, 16, -2);
	assert_cfa(AT(two, 10), ARCH_REG_FP, 16, -2);
	assert_cfa(AT(two, 11), ARCH_REG_SP, 8, 0);
}

static void a_leaf_without_a_frame_behind_int3_is_one(void **state)
{
	assert_cfa(AT(two, 16), ARCH_REG_SP, 8, 0);
	assert_cfa(AT(two, 20), ARCH_REG_SP, 8, 0);
}

static void a_leaf_without_a_frame_behind_nops_is_one(void **state)
{
	static const char code[] = FRAME "\x90\x90" BACK NOP8 "\x89\xf8\x01\xf0\xc3";

	assert_cfa(AT(code, 18), ARCH_REG_SP, 8, 0);
}

static void a_leaf_right_behind_another_function_is_one(void **state)
{
	static const char code[] = FRAME "\x90\x90" BACK "\x89\xf8\x01\xf0\xc3";

	assert_cfa(AT(code, 10), ARCH_REG_SP, 8, 0);
}

static void a_prologue_may_have_other_instructions_in_it(void **state)
{
	static const char code[] = "\x55\x31\xc0\x89\xfa\x48\x89\xe5" CALL BACK;

	assert_cfa(AT(code, 3), ARCH_REG_SP, 16, -2);
	assert_cfa(AT(code, 12), ARCH_REG_FP, 16, -2);
}

/* A loop's first instruction is aligned like a function's: it must not be taken for one. */
static void a_block_of_a_framed_function_is_no_leaf(void **state)
{
	static const char code[] = FRAME "\x31\xc0\x66\x90" NOP8 /* 16: */
					 "\xff\xc0\x39\xf8\x75\xfa" BACK;

	assert_cfa(AT(code, 16), ARCH_REG_FP, 16, -2);
	assert_cfa(AT(code, 18), ARCH_REG_FP, 16, -2);
}

/*
 * ENDS: the first function ends with a call that does not return, and the bytes at 16 are a leaf
 * whose start nothing marks for certain. LOOP: the bytes at 16 belong to the first function.
 */
static void what_lies_behind_a_call_is_not_this_functions(void **state)
{
	static const char ends[] = FRAME CALL "\x66\x90\x66\x90\x66\x66\x90" /* 16: */
					      "\x89\xf8" CALL "\xc3",
			  loop[] = FRAME CALL "\x66\x90\x66\x90\x66\x66\x90" /* 16: */
					      "\xff\xc0\x39\xf8\x75\xfa" BACK;

	assert_none(AT(ends, 16));
	assert_cfa(AT(ends, 4), ARCH_REG_FP, 16, -2);
	assert_cfa(AT(ends, 8), ARCH_REG_FP, 16, -2);
	assert_cfa(AT(loop, 16), ARCH_REG_FP, 16, -2);
}

/*
 * The function has no frame pointer and makes calls: its start and its stack's depth are unknown.
 */
static void functions_without_frame_pointers_have_no_rule(void **state)
{
	static const char code[] = "\x90\x90\x90\x90\x90\x90\x90\xc3" NOP8 /* 16: */
				   "\x48\x83\xec\x08" CALL "\x48\x83\xc4\x08\xc3";

	assert_none(AT(code, 20));
	assert_none(AT(code, 24));
}

static void a_jump_to_another_function_is_a_tail_call(void **state)
{
	/* 0: add $-16,%rdi; jmp 16; 16: the function */
	static const char thunk[] =
	    "\x48\x83\xc7\xf0\xeb\x0a\xcc\xcc\xcc\xcc\xcc\xcc\xcc\xcc\xcc\xcc" FRAME "\x90" BACK;

	assert_cfa(AT(thunk, 0), ARCH_REG_SP, 8, 0);
	assert_cfa(AT(thunk, 4), ARCH_REG_SP, 8, 0);
	assert_cfa(AT(thunk, 20), ARCH_REG_FP, 16, -2);
}

/* V8: pop %rcx; lea (%rsp,%rdx,8),%rsp; push %rcx; ret */
static void a_return_address_that_is_put_back_is_an_entry_again(void **state)
{
	static const char code[] =
	    "\xcc\xcc\xcc\xcc\xcc\xcc\xcc\xcc\xcc\xcc\xcc\xcc\xcc\xcc\xcc\xcc" /* 16: */
	    "\x59\x48\x8d\x24\xd4\x51\x90\xc3";

	assert_cfa(AT(code, 16), ARCH_REG_SP, 8, 0);
	assert_none(AT(code, 17));
	assert_none(AT(code, 21));
	assert_cfa(AT(code, 22), ARCH_REG_SP, 8, 0);
}

static void what_starts_a_thread_is_not_believed(void **state)
{
	/* a block: xor %ebp,%ebp; pop %rbx; ret, behind a jump and nops */
	static const char code[] = FRAME "\x53\xeb\x09" NOP8 "\x90" /* 16: */ "\x31\xed\x5b\xc3";

	assert_int_not_equal(AT(code, 16).kind, KILN_RULE_STOP);
	assert_int_not_equal(AT(code, 18).reg, ARCH_REG_SP);
}

static void guesses_are_read_behind_calls_only(void **state)
{
	static const char code[] = FRAME CALL "\x90\x90\x90" BACK;
	_cleanup_(image_unrefp) struct image *image = image_of(code, sizeof(code) - 1);
	_cleanup_(code_pieces_done) struct code_pieces none = {0}, some = {0};
	struct code_place behind = {.vaddr = TEXT + 8, .is_guess = true},
			  others[] = {{.vaddr = TEXT + 9, .is_guess = true},
				      {.vaddr = TEXT + 10, .is_guess = true},
				      {.vaddr = TEXT - 1, .is_guess = true},
				      {.vaddr = UINT64_MAX, .is_guess = true}};
	uint64_t bytes;

	assert_int_equal(code_places_read(image, others, ARRAY_SIZE(others), &none, &bytes), 0);
	assert_int_equal(none.n, 0);
	assert_int_equal(code_places_read(image, &behind, 1, &some, &bytes), 0);
	assert_true(some.n > 0);
}

static void a_place_outside_of_all_code_is_said_to_have_no_rule(void **state)
{
	assert_none(AT(two, 0x100000));
	assert_none(AT(two, sizeof(two)));
}

/* ---- tables -----------------------------------------------------------------------------------
 */

/* An image with more code than is read as a whole: two functions, CODE_BYTES_MAX apart. */
static struct image *large_image(size_t *ret_second)
{
	size_t second = CODE_BYTES_MAX, size = second + sizeof(two) - 1;
	_cleanup_free_ uint8_t *code = malloc(size);

	assert_non_null(code);
	memset(code, 0xcc, size);
	memcpy(code, two, sizeof(two) - 1);
	memcpy(code + second, two, sizeof(two) - 1);
	*ret_second = second;
	return image_of(code, size);
}

static void code_beyond_the_limit_is_unread_until_it_is_met(void **state)
{
	_cleanup_(unwind_table_freep) struct unwind_table *t = NULL, *patched = NULL;
	_cleanup_(code_pieces_done) struct code_pieces pieces = {0};
	_cleanup_(image_unrefp) struct image *image = NULL;
	struct code_place place;
	uint64_t bytes;
	size_t second;

	image = large_image(&second);
	assert_int_equal(unwind_compile(image, &t, NULL), 0);
	assert_int_equal(unwind_lookup(t, TEXT)->kind, KILN_RULE_UNREAD);
	assert_int_equal(unwind_lookup(t, TEXT + second + 4)->kind, KILN_RULE_UNREAD);
	place = (struct code_place){.vaddr = TEXT + second + 4};
	assert_int_equal(code_places_read(image, &place, 1, &pieces, &bytes), 0);
	assert_int_equal(unwind_table_patch(t, pieces.v, pieces.n, &patched), 0);
	assert_cfa(*unwind_lookup(patched, TEXT + second), ARCH_REG_SP, 8, 0);
	assert_cfa(*unwind_lookup(patched, TEXT + second + 4), ARCH_REG_FP, 16, -2);
	assert_int_equal(unwind_lookup(patched, TEXT)->kind, KILN_RULE_UNREAD);
	assert_int_equal(unwind_lookup(patched, TEXT + second - 1)->kind, KILN_RULE_UNREAD);
	assert_int_equal(unwind_lookup(patched, TEXT + second + 13)->kind, KILN_RULE_UNREAD);
}

static void only_unread_code_is_patched(void **state)
{
	const struct code_piece all = {0, UINT64_MAX, {.kind = KILN_RULE_STOP}},
				parts[] = {{TEXT + 1, TEXT + 3, {.kind = KILN_RULE_STOP}},
					   {TEXT + 3, TEXT + 4, {.kind = KILN_RULE_FP}},
					   {TEXT + 3000, TEXT + 3001, {.kind = KILN_RULE_FP}}};
	_cleanup_(unwind_table_freep) struct unwind_table *t = NULL, *some = NULL, *rest = NULL;
	_cleanup_(image_unrefp) struct image *image = NULL;
	const struct unwind_range range = {.start = TEXT + 2, .end = TEXT + 3};
	size_t second;

	image = large_image(&second);
	assert_int_equal(unwind_compile(image, &t, NULL), 0);
	assert_int_equal(unwind_table_mark(&t, &range, 1, 2), 0);
	assert_int_equal(unwind_table_patch(t, parts, ARRAY_SIZE(parts), &some), 0);
	assert_int_equal(unwind_lookup(some, TEXT)->kind, KILN_RULE_UNREAD);
	assert_int_equal(unwind_lookup(some, TEXT + 1)->kind, KILN_RULE_STOP);
	assert_int_equal(unwind_lookup(some, TEXT + 1)->flags, 0);
	assert_int_equal(unwind_lookup(some, TEXT + 2)->kind, KILN_RULE_STOP);
	assert_int_equal(unwind_lookup(some, TEXT + 2)->flags, KILN_RULE_RUNTIME);
	assert_int_equal(unwind_lookup(some, TEXT + 2)->deref_off, 2);
	assert_int_equal(unwind_lookup(some, TEXT + 3)->kind, KILN_RULE_FP);
	assert_int_equal(unwind_lookup(some, TEXT + 4)->kind, KILN_RULE_UNREAD);
	assert_int_equal(unwind_lookup(some, TEXT + 3000)->kind, KILN_RULE_FP);
	assert_int_equal(unwind_lookup(some, TEXT + 3001)->kind, KILN_RULE_UNREAD);
	assert_int_equal(unwind_table_patch(some, &all, 1, &rest), 0);
	assert_int_equal(unwind_lookup(rest, TEXT + 3)->kind, KILN_RULE_FP);
	assert_int_equal(unwind_lookup(rest, TEXT + 4)->kind, KILN_RULE_STOP);
	assert_int_equal(unwind_lookup(rest, TEXT + second)->kind, KILN_RULE_STOP);
	for (uint64_t at = 0; at < second; at += 61)
		assert_int_not_equal(unwind_lookup(rest, TEXT + at)->kind, KILN_RULE_UNREAD);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_instruction_of_a_framed_function_has_its_rule),
	    cmocka_unit_test(a_leaf_without_a_frame_behind_int3_is_one),
	    cmocka_unit_test(a_leaf_without_a_frame_behind_nops_is_one),
	    cmocka_unit_test(a_leaf_right_behind_another_function_is_one),
	    cmocka_unit_test(a_prologue_may_have_other_instructions_in_it),
	    cmocka_unit_test(a_block_of_a_framed_function_is_no_leaf),
	    cmocka_unit_test(what_lies_behind_a_call_is_not_this_functions),
	    cmocka_unit_test(functions_without_frame_pointers_have_no_rule),
	    cmocka_unit_test(a_jump_to_another_function_is_a_tail_call),
	    cmocka_unit_test(a_return_address_that_is_put_back_is_an_entry_again),
	    cmocka_unit_test(what_starts_a_thread_is_not_believed),
	    cmocka_unit_test(guesses_are_read_behind_calls_only),
	    cmocka_unit_test(a_place_outside_of_all_code_is_said_to_have_no_rule),
	    cmocka_unit_test(code_beyond_the_limit_is_unread_until_it_is_met),
	    cmocka_unit_test(only_unread_code_is_patched),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
