// SPDX-License-Identifier: Apache-2.0
/*
 * Rows that are read from code written by hand: one instruction form or one control flow a test, as
 * bytes with their assembler beside them. Every image is a .text without any unwind information and
 * is compiled as a whole, so the rows are those that a walk would use. The last test reads musl's
 * library.
 */
#include <elf.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "agent/elf/arch.h"
#include "agent/elf/code_state.h"
#include "agent/elf/unwind.h"
#include "tests/fuzz/elf_image.h"

enum { TEXT = 0x1000, TABLE = 0x3000 };

struct table_symbol {
	uint64_t at, size; /* distance from TEXT */
};

static struct unwind_table *compile(const void *code, size_t size, const void *data,
				    size_t data_size, const struct table_symbol *symbols, size_t n)
{
	_cleanup_(image_unrefp) struct image *image = NULL;
	_cleanup_free_ uint8_t *file = NULL;
	Elf64_Sym syms[8] = {0};
	struct unwind_table *t;
	size_t file_size;

	for (size_t i = 0; i < n; i++)
		syms[i + 1] = (Elf64_Sym){.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
					  .st_shndx = 1,
					  .st_value = TEXT + symbols[i].at,
					  .st_size = symbols[i].size};
	const struct elf_image_section sections[] = {
	    {".text", code, size, TEXT, SHF_ALLOC | SHF_EXECINSTR, 0},
	    {".rodata", data, data_size, TABLE, SHF_ALLOC, 0},
	    {".symtab", syms, (n + 1) * sizeof(syms[0]), 0, 0, SHT_SYMTAB},
	};
	file = elf_image_make(sections, ARRAY_SIZE(sections), 0, &file_size);
	assert_non_null(file);
	assert_int_equal(image_from_memory(file, file_size, "test", &image, NULL), 0);
	assert_int_equal(unwind_compile(image, &t, NULL), 0);
	return t;
}

/* One function of CODE, as its symbol says. */
#define FUNCTION(code)                                                                             \
	compile(code, sizeof(code) - 1, "", 0,                                                     \
		&(struct table_symbol){.at = 0, .size = sizeof(code) - 1}, 1)

static void check(const struct unwind_table *t, uint64_t at, int reg, int cfa, int bp, int bx)
{
	const struct kiln_rule *r = unwind_lookup(t, TEXT + at);
	uint8_t flags = (uint8_t)((bp ? KILN_RULE_SAVED_FP : 0) | (bx ? KILN_RULE_SAVED_EXTRA : 0));

	if (r->kind != KILN_RULE_CFA || r->reg != reg || r->cfa_off != cfa || r->flags != flags ||
	    r->ra_off != -8 || r->fp_off != bp || r->extra_off != bx)
		print_message("at %llu: kind %d reg %d cfa %d flags %d bp %d bx %d\n",
			      (unsigned long long)at, r->kind, r->reg, r->cfa_off, r->flags,
			      r->fp_off, r->extra_off);
	assert_int_equal(r->kind, KILN_RULE_CFA);
	assert_int_equal(r->reg, reg);
	assert_int_equal(r->cfa_off, cfa);
	assert_int_equal(r->flags, flags);
	assert_int_equal(r->ra_off, -8);
	assert_int_equal(r->fp_off, bp);
	assert_int_equal(r->extra_off, bx);
}

static void check_kind(const struct unwind_table *t, uint64_t at, enum kiln_rule_kind kind)
{
	assert_int_equal(unwind_lookup(t, TEXT + at)->kind, kind);
}

static void at_sp(const struct unwind_table *t, uint64_t at, int depth)
{
	check(t, at, ARCH_REG_SP, depth, 0, 0);
}

/* ---- instructions -----------------------------------------------------------------------------
 */

static void test_push_and_pop(void **state)
{
	_cleanup_(unwind_table_freep) struct unwind_table *t =
	    FUNCTION("\x41\x54"		    /* 0 push %r12 */
		     "\x6a\x01"		    /* 2 push $1 */
		     "\x68\x00\x01\x00\x00" /* 4 push $256 */
		     "\xff\x37"		    /* 9 push (%rdi) */
		     "\x9c"		    /* 11 pushfq */
		     "\x66\x50"		    /* 12 push %ax */
		     "\x66\x58"		    /* 14 pop %ax */
		     "\x9d"		    /* 16 popfq */
		     "\x8f\x07"		    /* 17 pop (%rdi) */
		     "\x58\x59"		    /* 19 pop %rax; pop %rcx */
		     "\x41\x5c"		    /* 21 pop %r12 */
		     "\xc3");		    /* 23 ret */

	(void)state;
	at_sp(t, 0, 8);
	at_sp(t, 2, 16);
	at_sp(t, 4, 24);
	at_sp(t, 9, 32);
	at_sp(t, 11, 40);
	at_sp(t, 12, 48);
	at_sp(t, 14, 50);
	at_sp(t, 16, 48);
	at_sp(t, 17, 40);
	at_sp(t, 19, 32);
	at_sp(t, 21, 16);
	at_sp(t, 23, 8);
}

static void test_constants_move_the_stack_pointer(void **state)
{
	_cleanup_(unwind_table_freep) struct unwind_table *t =
	    FUNCTION("\x48\x83\xec\x18"		    /* 0 sub $24,%rsp */
		     "\x48\x81\xec\x00\x10\x00\x00" /* 4 sub $4096,%rsp */
		     "\x48\x83\xec\x80"		    /* 11 sub $-128,%rsp */
		     "\x48\x8d\x64\x24\x80"	    /* 15 lea -128(%rsp),%rsp */
		     "\x48\x81\xc4\x00\x10\x00\x00" /* 20 add $4096,%rsp */
		     "\x48\x8d\x64\x24\x18"	    /* 27 lea 24(%rsp),%rsp */
		     "\xc2\x08\x00");		    /* 32 ret $8 */

	(void)state;
	at_sp(t, 4, 32);
	at_sp(t, 11, 4128);
	at_sp(t, 15, 4000);
	at_sp(t, 20, 4128);
	at_sp(t, 27, 32);
	at_sp(t, 32, 8);
}

/* How far the stack pointer is below the CFA after sub $16,%rsp; and $-16,%rsp. */
static int32_t aligned_depth(bool cfa_is_aligned)
{
	static const uint8_t code[] = {0x48, 0x83, 0xec, 0x10, 0x48, 0x83, 0xe4, 0xf0};
	struct code_state s = code_state_at_entry();
	struct cursor c = cursor_of(code, sizeof(code));
	struct code_insn insn;

	s.is_aligned = cfa_is_aligned;
	while (cursor_left(&c)) {
		assert_true(code_decode(c, TEXT + c.pos, false, &insn));
		code_apply(&insn, &s);
		cursor_skip(&c, insn.size);
	}
	return s.reg[ARCH_REG_SP];
}

static void test_aligning_is_followed_where_the_cfa_is_aligned(void **state)
{
	assert_int_equal(aligned_depth(true), 32);
	assert_int_equal(aligned_depth(false), CODE_UNKNOWN);
}

static void test_frame_pointer(void **state)
{
	_cleanup_(unwind_table_freep) struct unwind_table *t =
	    FUNCTION("\x55"		    /* 0 push %rbp */
		     "\x48\x89\xe5"	    /* 1 mov %rsp,%rbp */
		     "\x53"		    /* 4 push %rbx */
		     "\x48\x83\xec\x28"	    /* 5 sub $40,%rsp */
		     "\x48\x83\xe4\xe0"	    /* 9 and $-32,%rsp */
		     "\x48\x29\xc4"	    /* 13 sub %rax,%rsp */
		     "\xe8\x00\x10\x00\x00" /* 16 call */
		     "\x48\x8d\x65\xf8"	    /* 21 lea -8(%rbp),%rsp */
		     "\x5b"		    /* 25 pop %rbx */
		     "\x5d"		    /* 26 pop %rbp */
		     "\xc3");		    /* 27 ret */

	(void)state;
	at_sp(t, 0, 8);
	check(t, 1, ARCH_REG_SP, 16, -2, 0);
	check(t, 4, ARCH_REG_FP, 16, -2, 0);
	check(t, 5, ARCH_REG_FP, 16, -2, -3);
	check(t, 13, ARCH_REG_FP, 16, -2, -3);
	check(t, 16, ARCH_REG_FP, 16, -2, -3);
	check(t, 25, ARCH_REG_FP, 16, -2, -3);
	check(t, 26, ARCH_REG_FP, 16, -2, 0);
	at_sp(t, 27, 8);
}

static void test_enter_and_leave(void **state)
{
	_cleanup_(unwind_table_freep) struct unwind_table *t =
	    FUNCTION("\xc8\x20\x00\x00" /* 0 enter $32,$0 */
		     "\x48\x29\xc4"	/* 4 sub %rax,%rsp */
		     "\xc9"		/* 7 leave */
		     "\xc3");		/* 8 ret */

	(void)state;
	check(t, 4, ARCH_REG_FP, 16, -2, 0);
	check(t, 7, ARCH_REG_FP, 16, -2, 0);
	at_sp(t, 8, 8);
}

static void test_saved_by_mov(void **state)
{
	_cleanup_(unwind_table_freep) struct unwind_table *t =
	    FUNCTION("\x48\x83\xec\x28"	    /* 0 sub $40,%rsp */
		     "\x48\x89\x5c\x24\x10" /* 4 mov %rbx,16(%rsp) */
		     "\x48\x89\x6c\x24\x18" /* 9 mov %rbp,24(%rsp) */
		     "\x48\x89\xfb"	    /* 14 mov %rdi,%rbx */
		     "\x48\x89\xf5"	    /* 17 mov %rsi,%rbp */
		     "\x48\x89\x1c\x24"	    /* 20 mov %rbx,(%rsp): not the caller's */
		     "\x48\x8b\x5c\x24\x10" /* 24 mov 16(%rsp),%rbx */
		     "\x48\x8b\x6c\x24\x18" /* 29 mov 24(%rsp),%rbp */
		     "\x48\x83\xc4\x28"	    /* 34 add $40,%rsp */
		     "\xc3");		    /* 38 ret */

	(void)state;
	at_sp(t, 4, 48);
	check(t, 9, ARCH_REG_SP, 48, 0, -4);
	check(t, 14, ARCH_REG_SP, 48, -3, -4);
	check(t, 24, ARCH_REG_SP, 48, -3, -4);
	at_sp(t, 38, 8);
}

static void test_stack_pointer_kept_in_another_register(void **state)
{
	_cleanup_(unwind_table_freep) struct unwind_table *t =
	    FUNCTION("\x49\x89\xe3"	/* 0 mov %rsp,%r11 */
		     "\x48\x83\xe4\xc0" /* 3 and $-64,%rsp */
		     "\x48\x83\xec\x40" /* 7 sub $64,%rsp */
		     "\x4c\x89\xdc"	/* 11 mov %r11,%rsp */
		     "\xc3");		/* 14 ret */

	(void)state;
	at_sp(t, 3, 8);
	check(t, 7, 11, 8, 0, 0);
	check(t, 11, 11, 8, 0, 0);
	at_sp(t, 14, 8);
}

static void test_call_of_the_next_instruction_is_a_push(void **state)
{
	_cleanup_(unwind_table_freep) struct unwind_table *t =
	    FUNCTION("\xe8\x00\x00\x00\x00" /* 0 call 5 */
		     "\x58"		    /* 5 pop %rax */
		     "\xc3");		    /* 6 ret */

	(void)state;
	at_sp(t, 5, 16);
	at_sp(t, 6, 8);
}

static void test_calls_change_the_registers_they_may(void **state)
{
	_cleanup_(unwind_table_freep) struct unwind_table *t =
	    FUNCTION("\x49\x89\xe3"	    /* 0 mov %rsp,%r11 */
		     "\x48\x83\xe4\xc0"	    /* 3 and $-64,%rsp */
		     "\xe8\x00\x01\x00\x00" /* 7 call */
		     "\x90\xc3");	    /* 12 nop; ret */

	(void)state;
	check(t, 7, 11, 8, 0, 0);
	check_kind(t, 12, KILN_RULE_INVALID);
}

static void test_unknown_stack_pointer_has_no_rule(void **state)
{
	_cleanup_(unwind_table_freep) struct unwind_table *t =
	    FUNCTION("\x48\x8b\x27" /* 0 mov (%rdi),%rsp */
		     "\x48\x89\xc3" /* 3 mov %rax,%rbx */
		     "\xff\xe1");   /* 6 jmp *%rcx */

	(void)state;
	at_sp(t, 0, 8);
	check_kind(t, 3, KILN_RULE_INVALID);
	check_kind(t, 6, KILN_RULE_INVALID);
}

static void test_cleared_frame_pointer_is_the_outermost_frame(void **state)
{
	_cleanup_(unwind_table_freep) struct unwind_table *t =
	    FUNCTION("\x85\xc0"		/* 0 test %eax,%eax */
		     "\x75\x0a"		/* 2 jne 14 */
		     "\x31\xed"		/* 4 xor %ebp,%ebp */
		     "\x5f"		/* 6 pop %rdi */
		     "\x41\xff\xd1"	/* 7 call *%r9 */
		     "\x0f\x0b\x90\x90" /* 10 ud2 */
		     "\xc3");		/* 14 ret */
	_cleanup_(unwind_table_freep) struct unwind_table *saved =
	    FUNCTION("\x55"	  /* 0 push %rbp */
		     "\x31\xed"	  /* 1 xor %ebp,%ebp */
		     "\x5d\xc3"); /* 3 pop %rbp; ret */

	(void)state;
	at_sp(t, 4, 8);
	check_kind(t, 6, KILN_RULE_STOP);
	check_kind(t, 9, KILN_RULE_STOP);
	at_sp(t, 14, 8);
	check(saved, 3, ARCH_REG_SP, 16, -2, 0);
}

/* ---- flow -------------------------------------------------------------------------------------
 */

static void test_both_sides_of_a_branch(void **state)
{
	_cleanup_(unwind_table_freep) struct unwind_table *t =
	    FUNCTION("\x53"		/* 0 push %rbx */
		     "\x85\xff"		/* 1 test %edi,%edi */
		     "\x74\x08"		/* 3 je 13 */
		     "\x48\x83\xec\x10" /* 5 sub $16,%rsp */
		     "\x48\x83\xc4\x10" /* 9 add $16,%rsp */
		     "\x5b"		/* 13 pop %rbx */
		     "\xc3"		/* 14 ret */
		     "\x90"		/* 15 nop */
		     "\xeb\xfb");	/* 16 jmp 13: nothing leads here */

	(void)state;
	check(t, 5, ARCH_REG_SP, 16, 0, -2);
	check(t, 9, ARCH_REG_SP, 32, 0, -2);
	check(t, 13, ARCH_REG_SP, 16, 0, -2);
	at_sp(t, 14, 8);
}

/* The cold block at the end is entered with the frame of its jump. */
static void test_code_behind_a_return(void **state)
{
	_cleanup_(unwind_table_freep) struct unwind_table *t =
	    FUNCTION("\x48\x83\xec\x18"	    /* 0 sub $24,%rsp */
		     "\x85\xff"		    /* 4 test %edi,%edi */
		     "\x75\x05"		    /* 6 jne 13 */
		     "\x48\x83\xc4\x18"	    /* 8 add $24,%rsp */
		     "\xc3"		    /* 12 ret */
		     "\xe8\x00\x01\x00\x00" /* 13 call */
		     "\xeb\xf4");	    /* 18 jmp 8 */

	(void)state;
	at_sp(t, 12, 8);
	at_sp(t, 13, 32);
	at_sp(t, 18, 32);
}

/* abort() does not return: the block behind the call belongs to another path. */
static void test_call_that_does_not_return(void **state)
{
	_cleanup_(unwind_table_freep) struct unwind_table *t =
	    FUNCTION("\x85\xff"		    /* 0 test %edi,%edi */
		     "\x74\x09"		    /* 2 je 13 */
		     "\x48\x83\xec\x18"	    /* 4 sub $24,%rsp */
		     "\xe8\x00\x01\x00\x00" /* 8 call abort */
		     "\x31\xc0"		    /* 13 xor %eax,%eax */
		     "\xc3");		    /* 15 ret */

	(void)state;
	at_sp(t, 8, 32);
	at_sp(t, 12, 32);
	at_sp(t, 13, 8);
	at_sp(t, 15, 8);
}

static void test_paths_that_contradict_each_other_have_no_rule(void **state)
{
	_cleanup_(unwind_table_freep) struct unwind_table *t =
	    FUNCTION("\x85\xff" /* 0 test %edi,%edi */
		     "\x74\x01" /* 2 je 5 */
		     "\x50"	/* 4 push %rax */
		     "\x89\xf8" /* 5 mov %edi,%eax */
		     "\xc3");	/* 7 ret */

	(void)state;
	at_sp(t, 4, 8);
	check_kind(t, 5, KILN_RULE_INVALID);
	check_kind(t, 7, KILN_RULE_INVALID);
}

/* A loop that grows the stack (alloca) keeps the rule of the frame pointer. */
static void test_loop_that_moves_the_stack_pointer(void **state)
{
	_cleanup_(unwind_table_freep) struct unwind_table *t =
	    FUNCTION("\x55"	    /* 0 push %rbp */
		     "\x48\x89\xe5" /* 1 mov %rsp,%rbp */
		     "\x50"	    /* 4 push %rax */
		     "\xff\xcf"	    /* 5 dec %edi */
		     "\x75\xfb"	    /* 7 jne 4 */
		     "\xc9\xc3");   /* 9 leave; ret */

	(void)state;
	check(t, 4, ARCH_REG_FP, 16, -2, 0);
	check(t, 5, ARCH_REG_FP, 16, -2, 0);
	check(t, 9, ARCH_REG_FP, 16, -2, 0);
	at_sp(t, 10, 8);
}

static const char switch_code[] = "\x48\x83\xec\x08"		 /* 0 sub $8,%rsp */
				  "\x48\x8d\x15\xf5\x1f\x00\x00" /* 4 lea TABLE(%rip),%rdx */
				  "\x48\x63\x04\xba"		 /* 11 movslq (%rdx,%rdi,4) */
				  "\x48\x01\xd0"		 /* 15 add %rdx,%rax */
				  "\xff\xe0"			 /* 18 jmp *%rax */
				  "\x50\x58"			 /* 20 push; pop */
				  "\x48\x83\xc4\x08\xc3"	 /* 22 add $8,%rsp; ret */
				  "\x57\x5f"			 /* 27 push; pop */
				  "\x48\x83\xc4\x08\xc3";	 /* 29 add $8,%rsp; ret */

static void check_switch(const struct unwind_table *t)
{
	at_sp(t, 18, 16);
	at_sp(t, 20, 16);
	at_sp(t, 21, 24);
	at_sp(t, 26, 8);
	at_sp(t, 27, 16);
	at_sp(t, 28, 24);
	at_sp(t, 33, 8);
}

static void test_switch_through_a_table(void **state)
{
	int32_t table[] = {TEXT + 27 - TABLE, TEXT + 20 - TABLE, 0x70000000};
	_cleanup_(unwind_table_freep) struct unwind_table *t =
	    compile(switch_code, sizeof(switch_code) - 1, table, sizeof(table), NULL, 0);

	(void)state;
	check_switch(t);
}

/*
 * The switch's table is missing: blocks that no known jump reaches get the state of the switch's
 * jump.
 */
static void test_switch_without_its_table(void **state)
{
	_cleanup_(unwind_table_freep) struct unwind_table *t = FUNCTION(switch_code);

	(void)state;
	check_switch(t);
}

static void test_switch_through_addresses(void **state)
{
	static const char code[] = "\x53"			  /* 0 push %rbx */
				   "\xff\x24\xfd\x00\x30\x00\x00" /* 1 jmp *TABLE(,%rdi,8) */
				   "\x5b\xc3"			  /* 8 pop %rbx; ret */
				   "\x57\x5f"			  /* 10 push; pop */
				   "\x5b\xc3";			  /* 12 pop %rbx; ret */
	uint64_t table[] = {TEXT + 8, TEXT + 10, 0};
	_cleanup_(unwind_table_freep) struct unwind_table *t =
	    compile(code, sizeof(code) - 1, table, sizeof(table), NULL, 0);

	(void)state;
	check(t, 8, ARCH_REG_SP, 16, 0, -2);
	at_sp(t, 9, 8);
	check(t, 11, ARCH_REG_SP, 24, 0, -2);
	at_sp(t, 13, 8);
}

/* ---- functions --------------------------------------------------------------------------------
 */

/* The second function is called by the first, the third by nobody. */
static const char three[] = "\x50"		   /* 0 push %rax */
			    "\xe8\x0a\x00\x00\x00" /* 1 call 16 */
			    "\x5a\xc3"		   /* 6 pop %rdx; ret */
			    "\xcc\xcc\xcc\xcc\xcc\xcc\xcc\xcc"
			    "\x41\x54\x41\x55"	   /* 16 push %r12; push %r13 */
			    "\x41\x5d\x41\x5c\xc3" /* 20 pop; pop; ret */
			    "\x66\x90\x0f\x1f\x44\x00\x00"
			    "\x48\x83\xec\x58"	    /* 32 sub $88,%rsp */
			    "\x48\x83\xc4\x58\xc3"; /* 36 add $88,%rsp; ret */

static void check_three(const struct unwind_table *t)
{
	at_sp(t, 0, 8);
	at_sp(t, 1, 16);
	at_sp(t, 16, 8);
	at_sp(t, 20, 24);
	at_sp(t, 24, 8);
	at_sp(t, 32, 8);
	at_sp(t, 36, 96);
	at_sp(t, 40, 8);
}

static void test_functions_without_symbols(void **state)
{
	_cleanup_(unwind_table_freep) struct unwind_table *t =
	    compile(three, sizeof(three) - 1, "", 0, NULL, 0);

	(void)state;
	check_three(t);
}

static void test_functions_with_symbols(void **state)
{
	const struct table_symbol symbols[] = {{32, 9}, {0, 8}, {16, 0}};
	_cleanup_(unwind_table_freep) struct unwind_table *t =
	    compile(three, sizeof(three) - 1, "", 0, symbols, ARRAY_SIZE(symbols));

	(void)state;
	check_three(t);
}

/* gcc's .cold: a function of its own by its symbol, entered by a jump out of a frame. */
static void test_part_of_a_function_that_lies_elsewhere(void **state)
{
	static const char code[] = "\xe8\x1b\x00\x00\x00" /* 0 call 32 */
				   "\x0f\x0b"		  /* 5 ud2 */
				   "\x90\x90\x90\x90\x90\x90\x90\x90\x90"
				   "\x53"      /* 16 push %rbx */
				   "\x85\xff"  /* 17 test %edi,%edi */
				   "\x75\xeb"  /* 19 jne 0 */
				   "\x5b\xc3"; /* 21 pop %rbx; ret */
	const struct table_symbol symbols[] = {{0, 7}, {16, 7}};
	_cleanup_(unwind_table_freep) struct unwind_table *t =
	    compile(code, sizeof(code) - 1, "", 0, symbols, ARRAY_SIZE(symbols));

	(void)state;
	check(t, 0, ARCH_REG_SP, 16, 0, -2);
	check(t, 4, ARCH_REG_SP, 16, 0, -2);
	at_sp(t, 16, 8);
	at_sp(t, 22, 8);
}

/* Data between functions: no known code leads to it, and it is not taken for a function. */
static void test_what_is_no_code_has_no_rule(void **state)
{
	static const char code[] =
	    "\x50\x58\xc3\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90"
	    "\x50\x06\x06\x06\x06\x06\x06\x06\x06\x06\x06\x06\x06\x06\x06\x06"
	    "\x50\x58\xc3";
	const struct table_symbol symbols[] = {{0, 3}};
	_cleanup_(unwind_table_freep) struct unwind_table *t =
	    compile(code, sizeof(code) - 1, "", 0, symbols, 1);

	(void)state;
	at_sp(t, 1, 16);
	check_kind(t, 16, KILN_RULE_INVALID);
	check_kind(t, 17, KILN_RULE_INVALID);
	at_sp(t, 33, 16);
}

/*
 * Data before a function decodes as code, so a guess of where functions begin is wrong; calls tell
 * it.
 */
static void test_functions_that_are_called_need_no_guess(void **state)
{
	static const char code[] = "\xe8\x0a\x00\x00\x00" /* 0 call 15 */
				   "\xe8\x08\x00\x00\x00" /* 5 call 18 */
				   "\xc3"		  /* 10 ret */
				   "\x50\x50\xb8\x01"	  /* 11 data: push; push; mov $..,%eax */
				   "\x50\x58\xc3"	  /* 15 push; pop; ret */
				   "\x51\x59\xc3";	  /* 18 push; pop; ret */
	const struct table_symbol symbols[] = {{0, 11}};
	_cleanup_(unwind_table_freep) struct unwind_table *sized = compile(code, sizeof(code) - 1,
									   "", 0, symbols, 1),
							  *stripped =
							      compile(code, sizeof(code) - 1, "", 0,
								      NULL, 0);

	(void)state;
	at_sp(sized, 15, 8);
	at_sp(sized, 16, 16);
	at_sp(sized, 19, 16);
	at_sp(stripped, 15, 8);
	at_sp(stripped, 16, 16);
	at_sp(stripped, 19, 16);
}

/* ---- musl -------------------------------------------------------------------------------------
 */

static void test_musl(void **state)
{
	static const char path[] = "/usr/lib/x86_64-linux-musl/libc.so";
	_cleanup_(unwind_table_freep) struct unwind_table *t = NULL;
	_cleanup_(image_unrefp) struct image *image = NULL;
	const struct image_section *s;
	size_t bytes = 0, invalid = 0;
	struct cursor c;
	Elf64_Sym sym;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	(void)state;
	if (fd < 0)
		skip();
	assert_int_equal(image_open(fd, path, &image, NULL), 0);
	assert_int_equal(unwind_compile(image, &t, NULL), 0);
	s = image_section(image, ".dynsym");
	assert_non_null(s);
	c = image_section_data(image, s);
	for (const uint8_t *p; (p = cursor_bytes(&c, sizeof(sym)));) {
		memcpy(&sym, p, sizeof(sym));
		if (ELF64_ST_TYPE(sym.st_info) != STT_FUNC || sym.st_shndx == SHN_UNDEF)
			continue;
		for (uint64_t i = 0; i < MAX(sym.st_size, 1u); i++) {
			bytes++;
			invalid += unwind_lookup(t, sym.st_value + i)->kind == KILN_RULE_INVALID;
		}
	}
	print_message("%s: %zu of %zu bytes of its functions have no rule\n", path, invalid, bytes);
	assert_true(bytes > 100000);
	assert_true(invalid * 1000 < bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_push_and_pop),
	    cmocka_unit_test(test_constants_move_the_stack_pointer),
	    cmocka_unit_test(test_aligning_is_followed_where_the_cfa_is_aligned),
	    cmocka_unit_test(test_frame_pointer),
	    cmocka_unit_test(test_enter_and_leave),
	    cmocka_unit_test(test_saved_by_mov),
	    cmocka_unit_test(test_stack_pointer_kept_in_another_register),
	    cmocka_unit_test(test_call_of_the_next_instruction_is_a_push),
	    cmocka_unit_test(test_calls_change_the_registers_they_may),
	    cmocka_unit_test(test_unknown_stack_pointer_has_no_rule),
	    cmocka_unit_test(test_cleared_frame_pointer_is_the_outermost_frame),
	    cmocka_unit_test(test_both_sides_of_a_branch),
	    cmocka_unit_test(test_code_behind_a_return),
	    cmocka_unit_test(test_call_that_does_not_return),
	    cmocka_unit_test(test_paths_that_contradict_each_other_have_no_rule),
	    cmocka_unit_test(test_loop_that_moves_the_stack_pointer),
	    cmocka_unit_test(test_switch_through_a_table),
	    cmocka_unit_test(test_switch_without_its_table),
	    cmocka_unit_test(test_switch_through_addresses),
	    cmocka_unit_test(test_functions_without_symbols),
	    cmocka_unit_test(test_functions_with_symbols),
	    cmocka_unit_test(test_part_of_a_function_that_lies_elsewhere),
	    cmocka_unit_test(test_what_is_no_code_has_no_rule),
	    cmocka_unit_test(test_functions_that_are_called_need_no_guess),
	    cmocka_unit_test(test_musl),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
