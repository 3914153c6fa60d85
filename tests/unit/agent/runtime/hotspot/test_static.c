/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of the interpreter's code, where a method's frame is being built or has been left. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent/elf/unwind.h"
#include "agent/runtime/hotspot/hotspot.h"
#include "bpf/arch.h"

enum {
	CODE = 0x10000,
	NAME = 0x20000,
	FRAME_BYTECODE = 0x40, /* as JDK 8 has it; full once rsp is at rbp - this */
	RULE_FLAGS = KILN_HOTSPOT_ENTERS | KILN_HOTSPOT_LEAVES | KILN_HOTSPOT_SENDER_SAVED,
	RAX = 0,
	RBX = 3,
	RDI = 5,
	R13 = 13,
};

struct codelet {
	const uint8_t *code;
	size_t size;
	char name[64];
};

static int read_codelet(void *arg, uint64_t address, void *dst, size_t len)
{
	const struct codelet *c = arg;

	if (address >= CODE && address + len <= CODE + c->size)
		memcpy(dst, c->code + (address - CODE), len);
	else if (address >= NAME && address + len <= NAME + sizeof(c->name))
		memcpy(dst, c->name + (address - NAME), len);
	else
		return -EFAULT;
	return 0;
}

static struct unwind_table *table_of_kind(struct codelet *c, enum hotspot_piece_kind kind)
{
	struct hotspot_process p = {.kernel.frame_bytecode = FRAME_BYTECODE};
	struct target_memory memory = {.read = read_codelet, .arg = c};
	struct hotspot_piece piece = {
	    .start = CODE, .end = CODE + c->size, .name = NAME, .kind = kind, .bytecode = -1};
	struct hotspot_pieces pieces = {
	    .v = &piece, .n = 1, .interpreter = CODE, .interpreter_end = CODE + c->size};
	struct unwind_table *t = NULL;

	assert_int_equal(hotspot_static_table(&p, &memory, &pieces, &t), 0);
	return t;
}

static struct unwind_table *table_of(struct codelet *c)
{
	return table_of_kind(c, HOTSPOT_PIECE_CODELET);
}

static const struct kiln_rule *rule_at(const struct unwind_table *t, size_t offset, uint32_t code)
{
	const struct kiln_rule *rule = unwind_lookup(t, CODE + offset);

	assert_true(rule->flags & KILN_RULE_RUNTIME);
	assert_int_equal((uint32_t)rule->deref_off >> KILN_HOTSPOT_RULE_CODE_SHIFT & 7, code);
	return rule;
}

/* The CFA is rsp + CFA_OFF, and the return address lies right below it. */
static void assert_bare(const struct unwind_table *t, size_t offset, int cfa_off, uint32_t flags)
{
	const struct kiln_rule *rule = rule_at(t, offset, KILN_HOTSPOT_CODE_BARE);

	assert_int_equal(rule->kind, KILN_RULE_CFA);
	assert_int_equal(rule->reg, ARCH_REG_SP);
	assert_int_equal(rule->cfa_off, cfa_off);
	assert_int_equal((uint32_t)rule->deref_off & RULE_FLAGS, flags);
}

/* The return address is in register RA, and the caller's rsp in register SENDER. */
static void assert_in_register(const struct unwind_table *t, size_t offset, int ra, int sender,
			       uint32_t flags)
{
	const struct kiln_rule *rule = rule_at(t, offset, KILN_HOTSPOT_CODE_BARE);

	assert_int_equal(rule->kind, KILN_RULE_RA_REG);
	assert_int_equal(rule->ra_off, ra);
	assert_int_equal(rule->reg, sender);
	assert_int_equal((uint32_t)rule->deref_off & RULE_FLAGS, flags);
}

static void test_a_method_is_entered(void **state)
{
	static const uint8_t code[] = {
	    0x58,		    /*  0 pop %rax */
	    0x50,		    /*  1 push %rax */
	    0x55,		    /*  2 push %rbp */
	    0x48, 0x8b, 0xec,	    /*  3 mov %rsp,%rbp */
	    0x41, 0x55,		    /*  6 push %r13 */
	    0x6a, 0x00,		    /*  8 push $0 */
	    0x4c, 0x8b, 0x6b, 0x08, /* 10 mov 8(%rbx),%r13 */
	    0x4d, 0x8d, 0x6d, 0x30, /* 14 lea 0x30(%r13),%r13 */
	    0x53,		    /* 18 push %rbx */
	    0x53,		    /* 19 */
	    0x53,		    /* 20 */
	    0x53,		    /* 21 */
	    0x53,		    /* 22 */
	    0x41, 0x55,		    /* 23 push %r13 */
	    0x6a, 0x00,		    /* 25 push $0 */
	    0xff, 0xe0,		    /* 27 jmp *%rax */
	};
	struct codelet c = {code, sizeof(code), "method entry point (kind = zerolocals)"};
	_cleanup_(unwind_table_freep) struct unwind_table *t = table_of(&c);
	const uint32_t saved = KILN_HOTSPOT_ENTERS | KILN_HOTSPOT_SENDER_SAVED;

	assert_bare(t, 0, 8, KILN_HOTSPOT_ENTERS);
	assert_in_register(t, 1, RAX, R13, KILN_HOTSPOT_ENTERS);
	assert_bare(t, 2, 8, KILN_HOTSPOT_ENTERS);
	assert_bare(t, 3, 16, KILN_HOTSPOT_ENTERS);
	assert_bare(t, 6, 16, KILN_HOTSPOT_ENTERS);
	/* From here on r13 may have changed since it was pushed. */
	assert_bare(t, 8, 24, saved);
	assert_bare(t, 10, 32, saved);
	assert_bare(t, 14, 32, saved);
	assert_bare(t, 18, 32, saved);
	assert_bare(t, 23, 72, saved);
	/* The frame is complete: the frame pointer is enough. */
	assert_int_equal(rule_at(t, 27, KILN_HOTSPOT_CODE_INTERPRETER)->kind, KILN_RULE_FP);
}

static void test_a_method_returns(void **state)
{
	static const uint8_t code[] = {
	    0x48, 0x8b, 0x5d, 0xf8, /* 0 mov -8(%rbp),%rbx */
	    0xc9,		    /* 4 leave */
	    0x5f,		    /* 5 pop %rdi */
	    0x48, 0x8b, 0xe3,	    /* 6 mov %rbx,%rsp */
	    0xff, 0xe7,		    /* 9 jmp *%rdi */
	};
	struct codelet c = {code, sizeof(code), "return"};
	_cleanup_(unwind_table_freep) struct unwind_table *t = table_of(&c);

	rule_at(t, 0, KILN_HOTSPOT_CODE_INTERPRETER);
	rule_at(t, 4, KILN_HOTSPOT_CODE_INTERPRETER);
	assert_bare(t, 5, 8, KILN_HOTSPOT_LEAVES);
	assert_in_register(t, 6, RDI, RBX, 0);
	assert_in_register(t, 9, RDI, RBX, 0);
}

/* Only until the stack pointer is moved to make room for the frames. */
static void test_frames_are_brought_back(void **state)
{
	static const uint8_t code[] = {
	    0x59,		    /*  0 pop %rcx */
	    0xe8, 0,	0,    0, 0, /*  1 call */
	    0x48, 0x8b, 0xd8,	    /*  6 mov %rax,%rbx */
	    0x48, 0x2b, 0xe3,	    /*  9 sub %rbx,%rsp */
	    0xe8, 0,	0,    0, 0, /* 12 call */
	    0xc3,		    /* 17 ret */
	};
	static const char *const names[] = {"Cont thaw", "cont_thaw"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct codelet c = {code, sizeof(code), ""};
		_cleanup_(unwind_table_freep) struct unwind_table *t = NULL;

		snprintf(c.name, sizeof(c.name), "%s", names[i]);
		t = table_of_kind(&c, HOTSPOT_PIECE_STUB);
		assert_true(rule_at(t, 5, KILN_HOTSPOT_CODE_THAW)->deref_off &
			    KILN_HOTSPOT_STILL_FROZEN);
		assert_true(rule_at(t, 9, KILN_HOTSPOT_CODE_THAW)->deref_off &
			    KILN_HOTSPOT_STILL_FROZEN);
		assert_false(rule_at(t, 16, KILN_HOTSPOT_CODE_THAW)->deref_off &
			     KILN_HOTSPOT_STILL_FROZEN);
	}
}

/* As generic_arraycopy: the jump before the entry is only reached when the frame is set up. */
static void test_a_stub_with_a_jump_before_its_entry(void **state)
{
	static const uint8_t code[] = {
	    0x0f, 0x1f, 0x40, 0x00, /*  0 nopl 0(%rax) */
	    0xeb, 0x0d,		    /*  4 jmp 19 */
	    0x55,		    /*  6 push %rbp */
	    0x48, 0x8b, 0xec,	    /*  7 mov %rsp,%rbp */
	    0x48, 0x85, 0xff,	    /* 10 test %rdi,%rdi */
	    0x74, 0xf5,		    /* 13 je 4 */
	    0x77, 0x02,		    /* 15 ja 19 */
	    0xc9,		    /* 17 leave */
	    0xc3,		    /* 18 ret */
	    0x48, 0x31, 0xc0,	    /* 19 xor %rax,%rax */
	    0xc9,		    /* 22 leave */
	    0xc3,		    /* 23 ret */
	};
	/* The stack pointer's, or the frame pointer's, distance from the CFA. */
	static const struct {
		size_t at;
		uint8_t reg;
		int32_t cfa_off;
	} expected[] = {
	    {4, ARCH_REG_FP, 16},  {6, ARCH_REG_SP, 8},	  {7, ARCH_REG_SP, 16},
	    {10, ARCH_REG_FP, 16}, {15, ARCH_REG_FP, 16}, {18, ARCH_REG_SP, 8},
	    {19, ARCH_REG_FP, 16}, {23, ARCH_REG_SP, 8},
	};
	struct codelet c = {code, sizeof(code), "generic_arraycopy"};
	_cleanup_(unwind_table_freep) struct unwind_table *t =
	    table_of_kind(&c, HOTSPOT_PIECE_STUB);

	for (size_t i = 0; i < ARRAY_SIZE(expected); i++) {
		const struct kiln_rule *rule = rule_at(t, expected[i].at, KILN_HOTSPOT_CODE_STUB);

		assert_int_equal(rule->kind, KILN_RULE_CFA);
		assert_int_equal(rule->reg, expected[i].reg);
		assert_int_equal(rule->cfa_off, expected[i].cfa_off);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_a_method_is_entered),
	    cmocka_unit_test(test_a_method_returns),
	    cmocka_unit_test(test_frames_are_brought_back),
	    cmocka_unit_test(test_a_stub_with_a_jump_before_its_entry),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
