/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known of a frame before an instruction, learnt by reading code; and the reader of
 * instructions, which is the architecture's (code_x86_64.c).
 */
#pragma once

#include "bpf/types.h"
#include "lib/base.h"
#include "lib/cursor.h"

enum {
	CODE_REGS = 16,			     /* by DWARF number */
	CODE_UNKNOWN = INT32_MAX,	     /* the register holds anything */
	CODE_CALLER = INT32_MAX - 1,	     /* what it held at the function's entry */
	CODE_RETURN_ADDRESS = INT32_MAX - 2, /* that, popped from the stack */
	CODE_OFFSET_MAX = 1 << 28,	     /* frames are no larger */
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
	CODE_END,  /* does not go on: ud2 */
	CODE_HALT, /* does not go on either, but compilers do not know: hlt in assembler */
};

enum code_op {
	CODE_OP_NONE,  /* does nothing but to write */
	CODE_OP_PUSH,  /* `from` (-1: something else), `value` bytes */
	CODE_OP_POP,   /* into `to` (-1: elsewhere), `value` bytes */
	CODE_OP_COPY,  /* `from` to `to` */
	CODE_OP_LOAD,  /* `to` from `from` + value */
	CODE_OP_STORE, /* `from` at `to` + value */
	CODE_OP_LEA,   /* `to` = `from` + value */
	CODE_OP_ADD,   /* `to` += value */
	CODE_OP_CLEAR, /* `to` = 0 */
	CODE_OP_LEAVE,
	CODE_OP_ENTER, /* `value` bytes of locals */
	CODE_OP_CALL,
};

/* An instruction, as far as it matters here. */
struct code_insn {
	uint8_t size;
	uint8_t flow; /* enum code_flow_kind */
	uint8_t op;   /* enum code_op */
	bool is_padding;
	bool is_entry;	 /* only where indirect calls and jumps lead: endbr64 */
	int8_t to, from; /* registers */
	uint16_t writes; /* bit per register that becomes unknown */
	int32_t value;	 /* bytes */
	/* Of a jump or call, 0 when it is not known; CODE_INDIRECT: of the table of 8-byte
	   addresses; else: an address that the code takes. */
	uint64_t target;
};

/* At a function's first instruction. */
struct code_state code_state_at_entry(void);
/* The rule that STATE amounts to. */
struct kiln_rule code_state_rule(const struct code_state *s);
/* Keeps in TO what it has in common with FROM. True when TO changed. */
bool code_state_join(struct code_state *to, const struct code_state *from);
/*
 * Reads the instruction at C, whose address is VADDR. False when it is none, or cut short. With
 * ONLY_FLOW what it does to registers is left out, which is cheaper.
 */
bool code_decode(struct cursor c, uint64_t vaddr, bool only_flow, struct code_insn *ret);
/* Takes S behind the instruction. */
void code_apply(const struct code_insn *insn, struct code_state *s);

enum { CODE_REFERENCE_MAX = 7 }; /* bytes */

/*
 * Do these CODE_REFERENCE_MAX bytes look like a direct call, or like taking an address relative to
 * the pc? Returns the size of that instruction, which ends with the distance in 4 bytes, or 0.
 */
size_t code_reference(const uint8_t *p);
