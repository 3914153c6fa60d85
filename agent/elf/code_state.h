/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known of a frame before an instruction, learnt by reading code; and the one function that
 * reads instructions, which is the architecture's (code_x86_64.c).
 */
#pragma once

#include "bpf/types.h"
#include "lib/base.h"
#include "lib/cursor.h"

enum {
	CODE_REGS = 16,		     /* by DWARF number */
	CODE_UNKNOWN = INT32_MAX,    /* the register holds anything */
	CODE_CALLER = INT32_MAX - 1, /* what it held at the function's entry */
	CODE_OFFSET_MAX = 1 << 28,   /* frames are no larger */
};

struct code_state {
	int32_t reg[CODE_REGS];	    /* the register is CFA - this, in bytes, or one of the above */
	int32_t saved_bp, saved_bx; /* the caller's is at CFA - this; 0: not saved */
	uint32_t is_outermost;	    /* code that starts a thread or process: there is no caller */
};

enum code_flow_kind {
	CODE_NEXT,     /* goes on behind itself */
	CODE_BRANCH,   /* that, or jumps to `target` */
	CODE_JUMP,     /* to `target` */
	CODE_INDIRECT, /* jumps to where a register or a table says */
	CODE_CALL,     /* goes on behind itself when `target` (0: not known) returns */
	CODE_RETURN,
	CODE_END, /* does not go on: ud2, hlt */
};

struct code_step {
	uint8_t size;
	uint8_t flow; /* enum code_flow_kind */
	bool is_padding;
	uint64_t target;
	uint64_t address; /* that it takes; CODE_INDIRECT: of a table of 8-byte addresses; or 0 */
};

/* At a function's first instruction. */
struct code_state code_state_at_entry(void);
/* The rule that STATE amounts to. */
struct kiln_rule code_state_rule(const struct code_state *s);
/* Keeps in TO what it has in common with FROM. True when TO changed. */
bool code_state_join(struct code_state *to, const struct code_state *from);
/*
 * Reads the instruction at C, whose address is VADDR; takes STATE behind it, unless NULL. False
 * when it is none, or cut short.
 */
bool code_step(struct cursor c, uint64_t vaddr, struct code_state *state, struct code_step *ret);
