// SPDX-License-Identifier: Apache-2.0
/*
 * Rules read from code against call frame information: in real files of this machine, every
 * function that an FDE describes is followed without looking at the FDE. At every instruction that
 * is reached the state must be what the FDE says: the CFA from the same register, and the caller's
 * return address, fp and extra at the same places. Differences are counted by kind and printed.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "agent/elf/arch.h"
#include "agent/elf/cfi.h"
#include "agent/elf/code_frames.h"

struct score {
	size_t functions, fragments, clean;
	size_t code, reached; /* instructions */
	size_t right, wrong_cfa, unknown_cfa, wrong_saved, special;
	size_t shown;
};

static struct image *open_image(const char *path)
{
	struct image *image;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || image_open(fd, path, &image, NULL) < 0)
		return NULL;
	return image;
}

static void show(struct score *s, uint64_t pc, const char *what, const struct kiln_rule *want,
		 const struct code_state *got)
{
	if (s->shown++ < 12)
		print_message("  %#llx: %s: CFI reg %d%+d flags %d bp %d bx %d; read sp %d bp %d "
			      "saved bp %d bx %d\n",
			      (unsigned long long)pc, what, want->reg, want->cfa_off, want->flags,
			      want->fp_off, want->extra_off, got->reg[ARCH_REG_SP],
			      got->reg[ARCH_REG_FP], got->saved[CODE_FP], got->saved[CODE_EXTRA]);
}

/* Converts the offset OFF of RULE, in units of UNIT bytes, to a distance below the CFA in bytes. */
static int32_t slot_of(const struct kiln_rule *rule, int off, int unit)
{
	return -off * unit + (rule->flags & KILN_RULE_AT_BASE ? rule->cfa_off : 0);
}

/* A register that is not saved yet, or is restored already, holds the caller's value. */
static bool saved_right(const struct kiln_rule *want, uint8_t flag, int off, int reg,
			const struct code_state *got, enum code_role role)
{
	return !(want->flags & flag) || got->reg[reg] == CODE_CALLER ||
	       got->saved[role] == slot_of(want, off, CODE_WORD);
}

static bool return_address_right(const struct kiln_rule *want, const struct code_state *got)
{
	if (!ARCH_RA_IN_REGISTER || got->reg[ARCH_REG_RA % CODE_REGS] == CODE_CALLER)
		return true;
	/* Some FDEs tell of the restored return address only where the frame ends. */
	return got->saved[CODE_RA] &&
	       (want->kind == KILN_RULE_RA_REG ||
		got->saved[CODE_RA] == slot_of(want, want->ra_off, ARCH_RA_UNIT));
}

static bool is_plain(const struct kiln_rule *rule)
{
	return (rule->kind == KILN_RULE_CFA && !(rule->flags & KILN_RULE_SAVED_AT_FP)) ||
	       (rule->kind == KILN_RULE_RA_REG && rule->ra_off == ARCH_REG_RA);
}

static void check(struct score *s, uint64_t pc, const struct kiln_rule *want,
		  const struct code_state *got)
{
	if (!is_plain(want)) {
		s->special++;
	} else if (code_state_rule(got).kind == KILN_RULE_INVALID) {
		s->unknown_cfa++;
		show(s, pc, "no rule", want, got);
	} else if (got->reg[want->reg] != want->cfa_off) {
		s->wrong_cfa++;
		show(s, pc, "CFA", want, got);
	} else if (!saved_right(want, KILN_RULE_SAVED_FP, want->fp_off, ARCH_REG_FP, got,
				CODE_FP) ||
		   !saved_right(want, KILN_RULE_SAVED_EXTRA, want->extra_off, ARCH_REG_EXTRA, got,
				CODE_EXTRA) ||
		   !return_address_right(want, got)) {
		s->wrong_saved++;
		show(s, pc, "saved", want, got);
	} else {
		s->right++;
	}
}

static void check_function(struct score *s, struct code_flow *flow, const struct unwind_table *t,
			   const struct span *span)
{
	struct code_state entry = code_state_at_entry();
	const struct kiln_rule *first = unwind_lookup(t, span->start);
	struct code_insn insn;

	if (!is_plain(first) || first->reg != ARCH_REG_SP || first->flags ||
	    first->cfa_off != entry.reg[ARCH_REG_SP]) {
		s->fragments++; /* .cold parts, the signal trampoline */
		return;
	}
	flow->n_seeds = 0;
	flow->budget = UINT64_MAX;
	assert_int_equal(code_flow_run(flow, span->start, span->size, true, &entry), 0);
	s->functions++;
	s->clean += !flow->is_contradictory;
	for (uint32_t offset = 0; offset < flow->size; offset += insn.size) {
		if (!code_flow_insn(flow, offset, &insn)) {
			insn.size = 1;
			continue;
		}
		if (insn.is_padding && !code_flow_at(flow, offset))
			continue;
		s->code++;
		if (!code_flow_at(flow, offset))
			continue;
		s->reached++;
		check(s, span->start + offset, unwind_lookup(t, span->start + offset),
		      code_flow_at(flow, offset));
	}
}

/*
 * WANT: percentage of the reached instructions with a plain rule in the FDE at which both must
 * agree. WANT_REACHED: percentage of the instructions that must be reached.
 */
static void check_file(const char *path, double want, double want_reached)
{
	_cleanup_(image_unrefp) struct image *image = open_image(path);
	_cleanup_(unwind_table_freep) struct unwind_table *t = NULL;
	_cleanup_(code_frames_done) struct code_frames frames = {0};
	_cleanup_(spans_done) struct spans spans = {0}, none = {0}, found = {0};
	struct score s = {0};
	struct cfi cfi;
	double agree;

	if (!image) {
		print_message("%s: not here\n", path);
#ifdef KILN_TARGET_ARM64
		fail();
#endif
		return;
	}
	assert_int_equal(unwind_compile(image, &t, NULL), 0);
	assert_int_equal(cfi_open_eh_frame(&cfi, image), 0);
	assert_int_equal(cfi_collect(&cfi, &spans), 0);
	assert_int_equal(spans_sort(&spans), 0);
	/* The flow needs the ends of switch tables, which this finds. */
	assert_int_equal(code_frames_collect(&frames, image, &none, &found), 0);
	for (size_t i = 0; i < spans.n; i++)
		check_function(&s, &frames.flow, t, &spans.v[i]);
	cfi_done(&cfi);
	agree = 100.0 * (double)s.right / (double)(s.reached - s.special);
	print_message(
	    "%s: %zu functions (%zu clean, %zu fragments), %zu of %zu instructions "
	    "reached (%.2f %%)\n"
	    "  %.3f %% agree; CFA wrong %zu, no rule %zu, saved register %zu; not a plain "
	    "rule %zu\n",
	    path, s.functions, s.clean, s.fragments, s.reached, s.code,
	    100.0 * (double)s.reached / (double)s.code, agree, s.wrong_cfa, s.unknown_cfa,
	    s.wrong_saved, s.special);
	assert_true(s.functions > 0);
	assert_true(agree >= want);
	assert_true(100.0 * (double)s.reached / (double)s.code >= want_reached);
}

#ifdef KILN_TARGET_ARM64
static void programs_of_ours(void **state)
{
	(void)state;
	check_file(TEST_DATA "/arm64/gcc", 100, 99);
	check_file(TEST_DATA "/arm64/gcc-nofp", 100, 99);
	check_file(TEST_DATA "/arm64/gcc-pac", 100, 99);
	check_file(TEST_DATA "/arm64/clang", 100, 99);
	check_file(TEST_DATA "/arm64/clang-pac", 100, 99);
}
#else
static void test_libc(void **state)
{
	(void)state;
	check_file("/lib/x86_64-linux-gnu/libc.so.6", 99.9, 99);
}

static void test_more(void **state)
{
	(void)state;
	check_file("/lib64/ld-linux-x86-64.so.2", 99.9, 99);
	check_file("/usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0", 99.8, 99);
	check_file("/usr/bin/perl", 99.5, 95);
	check_file("/usr/bin/bash", 99.9, 99);
	check_file("/usr/lib/x86_64-linux-gnu/libcrypto.so.3", 99.5, 99);
}
#endif

static void named_file(void **state)
{
	check_file(*state, 99.8, 98);
}

/* Without arguments, files of this machine; else the one that the argument names. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
#ifdef KILN_TARGET_ARM64
	    cmocka_unit_test(programs_of_ours),
#else
	    cmocka_unit_test(test_libc),
	    cmocka_unit_test(test_more),
#endif
	};

	if (argc > 1) {
		const struct CMUnitTest named[] = {{argv[1], named_file, NULL, NULL, argv[1]}};

		return cmocka_run_group_tests(named, NULL, NULL);
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
