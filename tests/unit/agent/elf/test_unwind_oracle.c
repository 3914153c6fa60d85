// SPDX-License-Identifier: Apache-2.0
/*
 * The unwind compiler, for the architecture that it is compiled for, against libdw (elfutils),
 * which has its own CFI interpreter: for real files of this machine, every row that libdw knows
 * must be the rule that unwind_lookup() gives, at its first and its last byte. What a rule cannot
 * express must be the invalid rule. Files that are not here are skipped by name; libc, ld.so and
 * the vDSO always are.
 */
#include <dwarf.h>
#include <elf.h>
#include <elfutils/libdw.h>
#include <fcntl.h>
#include <gelf.h>
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "agent/elf/arch.h"
#include "agent/elf/unwind.h"

struct checker {
	const struct image *image;
	const struct unwind_table *t;
	Dwarf_CFI *cfi;
	size_t rows, invalid, wrong;
};

/* reg + off of an operation; false when it is none. */
static bool is_base(const Dwarf_Op *op, uint64_t *reg, int64_t *off)
{
	if (op->atom >= DW_OP_breg0 && op->atom <= DW_OP_breg31) {
		*reg = op->atom - DW_OP_breg0;
		*off = (int64_t)op->number;
		return true;
	}
	if (op->atom == DW_OP_bregx) {
		*reg = op->number;
		*off = (int64_t)op->number2;
		return true;
	}
	return false;
}

static bool expect_cfa(const Dwarf_Op *ops, size_t n, struct kiln_rule *rule)
{
	static const uint8_t plt[] = {DW_OP_breg7, DW_OP_breg16, DW_OP_lit15, DW_OP_and, 0,
				      DW_OP_ge,	   DW_OP_lit3,	 DW_OP_shl,   DW_OP_plus};
	uint64_t reg;
	int64_t off;
	bool is_plt = n == ARRAY_SIZE(plt);

	for (size_t i = 0; is_plt && i < n; i++)
		is_plt = plt[i] == 0 || ops[i].atom == plt[i];
	if (is_plt) {
		rule->kind = KILN_RULE_PLT;
		rule->reg = ARCH_REG_SP;
		rule->cfa_off = ops[4].atom - DW_OP_lit0;
		return true;
	}
	if (n == 0 || !is_base(&ops[0], &reg, &off) || off != (int32_t)off)
		return false;
	rule->reg = (uint8_t)reg;
	rule->cfa_off = (int32_t)off;
	if (n == 1) {
		rule->kind = KILN_RULE_CFA;
		return true;
	}
	if (ops[1].atom != DW_OP_deref || n > 3)
		return false;
	rule->kind = KILN_RULE_DEREF;
	if (n == 3) {
		if (ops[2].atom != DW_OP_plus_uconst)
			return false;
		rule->deref_off = (int32_t)ops[2].number;
	}
	return true;
}

enum where { SAME, UNDEFINED, AT_CFA, AT_REG, IN_REG, OTHER };

/* libdw: ops is NULL for an unchanged register, and an empty list for a lost one. */
static enum where place(Dwarf_Frame *frame, int reg, uint64_t *ret_reg, int64_t *ret_off)
{
	Dwarf_Op memory[3], *ops;
	size_t n;

	*ret_off = 0;
	assert_int_equal(dwarf_frame_register(frame, reg, memory, &ops, &n), 0);
	if (n == 0)
		return ops ? UNDEFINED : SAME;
	if (n == 1 && ops[0].atom == DW_OP_regx) {
		*ret_reg = ops[0].number;
		return IN_REG;
	}
	if (n == 1 && ops[0].atom >= DW_OP_reg0 && ops[0].atom <= DW_OP_reg31) {
		*ret_reg = ops[0].atom - DW_OP_reg0;
		return IN_REG;
	}
	if (ops[0].atom != DW_OP_call_frame_cfa)
		return OTHER;
	if (n == 1)
		return AT_CFA;
	if (n == 2 && ops[1].atom == DW_OP_plus_uconst) {
		*ret_off = (int64_t)ops[1].number;
		return AT_CFA;
	}
	/* An expression, whose initial stack holds the CFA. */
	if (n == 2 && is_base(&ops[1], ret_reg, ret_off))
		return AT_REG;
	return OTHER;
}

/* Converts to the rule's form: BASE is how far below the CFA the rule's offsets begin. */
static bool expect_saved(Dwarf_Frame *frame, int reg, int64_t base, uint8_t flag,
			 struct kiln_rule *rule, int16_t *ret)
{
	const uint8_t both = KILN_RULE_SAVED_FP | KILN_RULE_SAVED_EXTRA;
	uint64_t of = 0;
	int64_t off;
	enum where w = place(frame, reg, &of, &off);

	if (w == SAME || w == UNDEFINED)
		return true;
	off += w == AT_CFA ? base : 0;
	if ((w != AT_CFA && !(w == AT_REG && of == ARCH_REG_FP)) || off % 8 ||
	    off / 8 != (int16_t)(off / 8))
		return false;
	if ((rule->flags & both) && (w == AT_REG) != !!(rule->flags & KILN_RULE_SAVED_AT_FP))
		return false;
	rule->flags |= flag | (w == AT_REG ? KILN_RULE_SAVED_AT_FP : 0);
	*ret = (int16_t)(off / 8);
	return true;
}

static bool expect_all_saved(Dwarf_Frame *frame, int64_t base, struct kiln_rule *rule)
{
	struct kiln_rule r = *rule;
	uint64_t reg = 0;
	int64_t off;
	enum where ra = place(frame, ARCH_REG_RA, &reg, &off);

	r.flags |= base ? KILN_RULE_AT_BASE : 0;
	off += base;
	if (ra == IN_REG || (ra == SAME && ARCH_RA_IN_REGISTER)) {
		r.kind = KILN_RULE_RA_REG;
		r.ra_off = (int8_t)(ra == SAME ? ARCH_REG_RA : reg);
	} else if (ra == AT_CFA && off % ARCH_RA_UNIT == 0 &&
		   off / ARCH_RA_UNIT == (int8_t)(off / ARCH_RA_UNIT)) {
		r.ra_off = (int8_t)(off / ARCH_RA_UNIT);
	} else {
		return false;
	}
	if (!expect_saved(frame, ARCH_REG_FP, base, KILN_RULE_SAVED_FP, &r, &r.fp_off) ||
	    !expect_saved(frame, ARCH_REG_EXTRA, base, KILN_RULE_SAVED_EXTRA, &r, &r.extra_off))
		return false;
	*rule = r;
	return true;
}

/* The kernel's frame, as x86-64's CFI describes it. */
static bool expect_signal(enum where ra, uint64_t reg, int64_t off, struct kiln_rule *rule)
{
	const int64_t pc_in_ucontext = 168;

	if (ra != AT_REG || rule->kind != KILN_RULE_DEREF)
		return false;
	*rule = (struct kiln_rule){.kind = KILN_RULE_SIGNAL,
				   .reg = (uint8_t)reg,
				   .cfa_off = (int32_t)(off - pc_in_ucontext)};
	return true;
}

/* FRAME of libdw as a rule; the invalid rule when a rule cannot express it. */
static struct kiln_rule expect(Dwarf_Frame *frame)
{
	struct kiln_rule rule = {0}, invalid = {.kind = KILN_RULE_INVALID};
	Dwarf_Op *ops;
	size_t n;
	uint64_t reg = 0;
	int64_t off;
	bool is_signal;
	enum where ra;

	dwarf_frame_info(frame, NULL, NULL, &is_signal);
	ra = place(frame, ARCH_REG_RA, &reg, &off);
	if (ra == UNDEFINED)
		return (struct kiln_rule){.kind = KILN_RULE_STOP};
	if (dwarf_frame_cfa(frame, &ops, &n) != 0 || !expect_cfa(ops, n, &rule))
		return invalid;
	if (is_signal && expect_signal(ra, reg, off, &rule))
		return rule;
	if (expect_all_saved(frame, 0, &rule) ||
	    (ARCH_HAS_BASE && rule.kind == KILN_RULE_CFA && rule.cfa_off &&
	     expect_all_saved(frame, rule.cfa_off, &rule)))
		return rule;
	return invalid;
}

static void print_rule(const char *what, const struct kiln_rule *r)
{
	print_message("  %s: kind %d reg %d flags %d ra %d cfa %d bp %d bx %d deref %d\n", what,
		      r->kind, r->reg, r->flags, r->ra_off, r->cfa_off, r->fp_off, r->extra_off,
		      r->deref_off);
}

static void check_at(struct checker *c, uint64_t pc, const struct kiln_rule *want)
{
	const struct kiln_rule *got = unwind_lookup(c->t, pc);

	if (memcmp(got, want, sizeof(*got)) == 0)
		return;
	if (c->wrong++ < 5) {
		print_message("%s: %#llx\n", c->image->path, (unsigned long long)pc);
		print_rule("libdw", want);
		print_rule("kiln", got);
	}
}

static void check_segment(struct checker *c, const struct image_segment *s, size_t stride)
{
	uint64_t pc = s->vaddr, end = s->vaddr + s->memsz;

	while (pc < end) {
		_cleanup_free_ Dwarf_Frame *frame = NULL;
		struct kiln_rule want;
		Dwarf_Addr from, to;

		if (dwarf_cfi_addrframe(c->cfi, pc, &frame) != 0) {
			pc++;
			continue;
		}
		dwarf_frame_info(frame, &from, &to, NULL);
		want = expect(frame);
		c->invalid += want.kind == KILN_RULE_INVALID;
		c->rows++;
		check_at(c, MAX(from, pc), &want);
		check_at(c, to - 1, &want);
		assert_true(to > pc);
		pc = to + (c->rows * 7919 * stride) % (stride + 1);
	}
}

static void check_image(const struct image *image, Elf *elf)
{
	_cleanup_(unwind_table_freep) struct unwind_table *t = NULL;
	struct checker c = {.image = image};
	struct error err = {0};
	size_t code = 0;

	assert_int_equal(unwind_compile(image, &t, &err), 0);
	assert_int_equal(t->malformed, 0);
	c.t = t;
	c.cfi = dwarf_getcfi_elf(elf);
	assert_non_null(c.cfi);
	for (size_t i = 0; i < image->n_segments; i++)
		code += image->segments[i].flags & PF_X ? image->segments[i].memsz : 0;
	for (size_t i = 0; i < image->n_segments; i++)
		if (image->segments[i].flags & PF_X)
			check_segment(&c, &image->segments[i], code / (1 << 21));
	print_message("%s: %zu rows checked, %zu not expressible, %zu wrong\n", image->path, c.rows,
		      c.invalid, c.wrong);
	assert_int_equal(c.wrong, 0);
	assert_true(c.rows >= 5);
	assert_true(c.invalid * 1000 <= c.rows + 20000);
	dwarf_cfi_end(c.cfi);
}

/* STATE: a pattern of paths; the first that is there counts. */
static void file_agrees(void **state)
{
	_cleanup_(image_unrefp) struct image *image = NULL;
	const char *pattern = *state;
	struct error err = {0};
	glob_t found;
	int fd;
	Elf *elf;

	if (glob(pattern, 0, NULL, &found) != 0) {
		print_message("%s: not here, skipped\n", pattern);
		globfree(&found);
		skip();
	}
	fd = open(found.gl_pathv[0], O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(image_open(dup(fd), found.gl_pathv[0], &image, &err), 0);
	elf_version(EV_CURRENT);
	elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
	assert_non_null(elf);
	check_image(image, elf);
	elf_end(elf);
	close(fd);
	globfree(&found);
}

#ifndef KILN_TARGET_ARM64
static void vdso_agrees(void **state)
{
	_cleanup_(image_unrefp) struct image *image = NULL;
	struct error err = {0};
	Elf *elf;

	if (image_vdso(&image, &err) == -ENOENT)
		skip();
	assert_non_null(image);
	elf_version(EV_CURRENT);
	elf = elf_memory((char *)image->data, image->size);
	assert_non_null(elf);
	check_image(image, elf);
	elf_end(elf);
}
#endif

#define FILE_TEST(name, pattern)                                                                   \
	{                                                                                          \
		name, file_agrees, NULL, NULL, (void *)(uintptr_t)(pattern)                        \
	}

/* Without arguments, files of this machine; else those that the arguments name. */
int main(int argc, char **argv)
{
	struct CMUnitTest tests[] = {
#ifndef KILN_TARGET_ARM64
	    FILE_TEST("libc_agrees", "/lib/x86_64-linux-gnu/libc.so.6"),
	    FILE_TEST("ld_so_agrees", "/lib64/ld-linux-x86-64.so.2"),
	    cmocka_unit_test(vdso_agrees),
	    FILE_TEST("libcrypto_agrees", "/lib/x86_64-linux-gnu/libcrypto.so.3"),
	    FILE_TEST("perl_agrees", "/usr/bin/perl"),
	    FILE_TEST("libpython_agrees", "/root/.pyenv/versions/3.13*/lib/libpython3.13.so.1.0"),
	    FILE_TEST("libjvm_agrees", "/usr/lib/jvm/*/lib/server/libjvm.so"),
	    FILE_TEST("node_agrees", "/usr/bin/node"),
	    FILE_TEST("libllvm_agrees", "/usr/lib/*/libLLVM-14.so.1"),
	    FILE_TEST("this_program_agrees", "/proc/self/exe"),
#else
	    FILE_TEST("gcc_agrees", TEST_DATA "/arm64/gcc"),
	    FILE_TEST("gcc_without_frame_pointers_agrees", TEST_DATA "/arm64/gcc-nofp"),
	    FILE_TEST("gcc_with_signed_addresses_agrees", TEST_DATA "/arm64/gcc-pac"),
	    FILE_TEST("clang_agrees", TEST_DATA "/arm64/clang"),
	    FILE_TEST("clang_with_signed_addresses_agrees", TEST_DATA "/arm64/clang-pac"),
	    FILE_TEST("a_shared_library_agrees", TEST_DATA "/arm64/libframes.so"),
#endif
	};
	struct CMUnitTest *named = NULL;
	int failed;

	if (argc < 2)
		return cmocka_run_group_tests(tests, NULL, NULL);
	named = calloc((size_t)argc - 1, sizeof(*named));
	for (int i = 1; named && i < argc; i++)
		named[i - 1] = (struct CMUnitTest)FILE_TEST(argv[i], argv[i]);
	failed = named ? _cmocka_run_group_tests("named", named, (size_t)argc - 1, NULL, NULL) : 1;
	free(named);
	return failed;
}
