// SPDX-License-Identifier: Apache-2.0
/*
 * Go's functions on x86-64: CFA = rsp + the table's distance + 8. The caller's rbp is at CFA - 16
 * once the prologue has stored it: since Go 1.21 by a push, in older versions by a store behind the
 * sub. Any thread; nothing is shared.
 */
#include "agent/elf/arch.h"
#include "agent/elf/go_arch.h"

enum {
	PROLOGUE_MAX = 192, /* bytes in which rbp is stored, the stack check included */
	FP_OFFSET = -16,    /* of the saved rbp from the CFA */
};

const uint32_t go_function_align = 32; /* Go: cmd/link/internal/amd64/l.go, funcAlign */

enum go_kind go_arch_asmcgocall(void)
{
	return GO_SWITCHES;
}

/* mov %rbp, disp(%rsp): its length and displacement; 0 when it is something else. */
static size_t stores_fp(const uint8_t *p, int32_t *ret_disp)
{
	if (!p || p[0] != 0x48 || p[1] != 0x89)
		return 0;
	if (p[2] == 0x2c && p[3] == 0x24) {
		*ret_disp = 0;
		return 4;
	}
	if (p[2] == 0x6c && p[3] == 0x24) {
		*ret_disp = (int8_t)p[4];
		return 5;
	}
	if (p[2] == 0xac && p[3] == 0x24) {
		memcpy(ret_disp, p + 4, 4);
		return 8;
	}
	return 0;
}

/* mov something, %rsp or and $n, %rsp */
uint64_t go_arch_sp_load(const struct go_code *code, uint64_t end)
{
	for (uint64_t at = code->entry; at < end; at++) {
		const uint8_t *p = go_code_at(code, at, 3);

		if (!p)
			break;
		if ((p[0] == 0x48 || p[0] == 0x49) &&
		    ((p[1] == 0x8b && (p[2] & 0x38) == 0x20) || /* mov r/m, %rsp */
		     (p[1] == 0x89 && (p[2] & 0xc7) == 0xc4) || /* mov r, %rsp */
		     (p[1] == 0x83 && p[2] == 0xe4)))		/* and $n, %rsp */
			return at;
	}
	return end;
}

uint64_t go_arch_saves_fp(const struct go_code *code, const struct gopclntab_run *run,
			  int32_t before)
{
	uint64_t limit = MIN(run->end, code->entry + PROLOGUE_MAX);
	const uint8_t *p = run->start > code->entry ? go_code_at(code, run->start - 1, 1) : NULL;
	int32_t disp = 0;

	if (before == 0 && run->value == 8 && p && *p == 0x55) /* push %rbp */
		return run->start;
	for (uint64_t at = run->start; at < limit; at++) {
		size_t n = stores_fp(go_code_at(code, at, 8), &disp);

		if (n && disp == run->value + 8 + FP_OFFSET)
			return at + n;
	}
	return UINT64_MAX;
}

/* None: pop %rbp restores it and ends the frame at once. */
uint64_t go_arch_restores_fp(const struct go_code *code, uint64_t start, uint64_t end)
{
	(void)code;
	(void)start;
	(void)end;
	return UINT64_MAX;
}

struct kiln_rule go_arch_rule(int32_t delta, bool has_fp)
{
	struct kiln_rule rule = {.kind = KILN_RULE_CFA,
				 .reg = ARCH_REG_SP,
				 .ra_off = ARCH_RA_OFFSET,
				 .cfa_off = delta + 8};

	if (has_fp) {
		rule.flags = KILN_RULE_SAVED_FP;
		rule.fp_off = FP_OFFSET / 8;
	}
	return rule;
}

struct kiln_rule go_arch_rule_by_fp(int32_t delta, bool has_fp)
{
	(void)delta;
	(void)has_fp;
	return (struct kiln_rule){.kind = KILN_RULE_FP,
				  .reg = ARCH_REG_FP,
				  .flags = KILN_RULE_SAVED_FP | KILN_RULE_SWITCH,
				  .ra_off = ARCH_RA_OFFSET,
				  .cfa_off = 16,
				  .fp_off = FP_OFFSET / 8};
}
