// SPDX-License-Identifier: Apache-2.0
/*
 * Go's functions on arm64 (Go: src/cmd/internal/obj/arm64/obj7.go, preprocess): CFA = sp + the
 * table's distance. A function with a frame has the return address at sp and, below sp, the
 * caller's x29, to which its own x29 points. One without has the return address in x30. Any
 * thread; nothing is shared.
 */
#include "agent/elf/arch.h"
#include "agent/elf/go_arch.h"

enum {
	PROLOGUE_MAX = 192, /* bytes in which x29 is stored, the stack check included */
	FP_OFFSET = -8,	    /* of the saved x29 from sp */
};

const uint32_t go_function_align = 16; /* Go: cmd/link/internal/arm64/l.go, funcAlign */

/* asmcgocall loads the x29 of the stack that it switches to; it saves its own in struct g. */
enum go_kind go_arch_asmcgocall(void)
{
	return GO_LOSES;
}

static bool instruction_at(const struct go_code *code, uint64_t vaddr, uint32_t *ret)
{
	const uint8_t *p = go_code_at(code, vaddr, sizeof(*ret));

	if (p)
		memcpy(ret, p, sizeof(*ret));
	return p != NULL;
}

/* stp x29, x30, [xN, #-8]: a large frame, before mov sp, xN makes it. */
static bool is_large(uint32_t w)
{
	return (w & 0xfffffc1f) == 0xa93ff81d;
}

/* mov sp, xN, except for the one that makes a large frame */
uint64_t go_arch_sp_load(const struct go_code *code, uint64_t end)
{
	uint32_t w, before = 0;

	for (uint64_t at = code->entry; at < end && instruction_at(code, at, &w); at += 4) {
		if ((w & 0xfffffc1f) == 0x9100001f && !is_large(before))
			return at;
		before = w;
	}
	return end;
}

/* stur x29, [sp, #-8]; in a large frame x29 is stored before sp is moved */
uint64_t go_arch_saves_fp(const struct go_code *code, const struct gopclntab_run *run,
			  int32_t before)
{
	uint64_t limit = MIN(run->end, code->entry + PROLOGUE_MAX);
	uint32_t w;

	(void)before;
	if (run->start >= code->entry + 8 && instruction_at(code, run->start - 8, &w) &&
	    is_large(w))
		return run->start;
	for (uint64_t at = run->start; at < limit && instruction_at(code, at, &w); at += 4)
		if (w == 0xf81f83fd)
			return at + 4;
	return UINT64_MAX;
}

/* ldur x29, [sp, #-8]; or ldp x29, x30, [sp, #-8] */
uint64_t go_arch_restores_fp(const struct go_code *code, uint64_t start, uint64_t end)
{
	uint32_t w;

	for (uint64_t at = start; at < end && instruction_at(code, at, &w); at += 4)
		if (w == 0xf85f83fd || w == 0xa97ffbfd)
			return at + 4;
	return UINT64_MAX;
}

struct kiln_rule go_arch_rule(int32_t delta, bool has_fp)
{
	struct kiln_rule rule = {.kind = KILN_RULE_CFA,
				 .reg = ARCH_REG_SP,
				 .flags = KILN_RULE_AT_BASE,
				 .cfa_off = delta};

	if (delta == 0)
		return (struct kiln_rule){
		    .kind = KILN_RULE_RA_REG, .reg = ARCH_REG_SP, .ra_off = ARCH_REG_RA};
	if (has_fp) {
		rule.flags |= KILN_RULE_SAVED_FP;
		rule.fp_off = FP_OFFSET / 8;
	}
	return rule;
}

/* x29 points to the saved x29, which is 8 bytes below the sp of the frame. */
struct kiln_rule go_arch_rule_by_fp(int32_t delta, bool has_fp)
{
	if (!has_fp || delta < 16 || delta > INT32_MAX + FP_OFFSET)
		return (struct kiln_rule){.kind = KILN_RULE_INVALID};
	return (struct kiln_rule){.kind = KILN_RULE_CFA,
				  .reg = ARCH_REG_FP,
				  .flags =
				      KILN_RULE_SAVED_FP | KILN_RULE_SWITCH | KILN_RULE_AT_BASE,
				  .ra_off = 1,
				  .cfa_off = delta - FP_OFFSET};
}
