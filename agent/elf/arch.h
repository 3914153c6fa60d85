/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the unwind compiler must know about the processor: register numbers, the DWARF expressions
 * that its tool chains emit, and known code that comes without unwind information. One .c file per
 * architecture implements it (arch_x86_64.c).
 */
#pragma once

#include "agent/elf/image.h"
#include "agent/elf/span.h"
#include "bpf/types.h"

enum {
	ARCH_RA_OFFSET = -8,	/* of the return address from the CFA, where code has no CFI */
	ARCH_MCONTEXT_RA = 168, /* of the pc in ucontext_t: uc_mcontext.gregs[REG_RIP] */
	ARCH_PLT_ENTRY = 16,
	ARCH_CODE_RULES_MAX = 64,
};

/* DWARF numbers of the registers that a walk follows (psABI x86-64, fig. 3.36). */
enum arch_register {
	ARCH_REG_EXTRA = 3,
	ARCH_REG_FP = 6,
	ARCH_REG_SP = 7,
	ARCH_REG_RA = 16,
};

/* The CFA expression of .plt; RET_N is where in an entry the stack has grown. */
bool arch_plt_expression(struct cursor c, uint8_t *ret_n);

/* Known code without unwind information, and its one rule. */
struct code_rule {
	uint64_t start, end;
	struct kiln_rule rule;
};

/*
 * Finds such code outside of COVERED (sorted): entry points, signal trampolines, thread starts, PLT
 * sections, _init and _fini. Returns the number of rules, in no order, possibly overlapping: the
 * first one wins.
 */
size_t arch_known_code(const struct image *image, const struct spans *covered,
		       struct code_rule *rules, size_t max);
