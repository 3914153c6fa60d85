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

/*
 * Does S, the state of a CIE with augmentation 'S', describe the kernel's signal frame? *RET: bytes
 * from sp to its ucontext.
 */
bool arch_signal_frame(const struct cfi_state *s, int32_t *ret);

/*
 * Is C the CFA expression of .plt (bpf/types.h, KILN_RULE_PLT)? *RET_N: the offset in a PLT entry
 * behind the instruction that pushes one word.
 */
bool arch_plt_expression(struct cursor c, uint8_t *ret_n);

/* Known code without unwind information, and its one rule. */
struct code_rule {
	uint64_t start, end;
	struct kiln_rule rule;
};

/*
 * Finds known code without unwind information: entry points, signal trampolines, thread starts, PLT
 * sections, _init and _fini. Byte patterns are searched for only outside of COVERED (sorted).
 * Writes at most MAX rules to RULES and returns their number. They are in no order and may overlap:
 * of two with the same start the first one counts.
 */
size_t arch_known_code(const struct image *image, const struct spans *covered,
		       struct code_rule *rules, size_t max);
