/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the unwind compiler must know about the processor besides bpf/arch.h, which has the roles of
 * registers: the DWARF expressions that its tool chains emit, and known code that comes without
 * unwind information. One .c file per architecture implements it (arch_x86_64.c, arch_arm64.c).
 */
#pragma once

#include "agent/elf/image.h"
#include "agent/elf/span.h"
#include "bpf/arch.h"

enum {
	ARCH_CODE_RULES_MAX = 64,
};

extern const uint16_t arch_machine;  /* e_machine */
extern const uint32_t arch_relative; /* the type of a relative relocation */

struct cfi_state;

/* Is this the kernel's signal frame? *RET is where its ucontext is from sp. */
bool arch_signal_frame(const struct cfi_state *s, int32_t *ret);

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
