/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known of a frame before an instruction, learnt by reading code (code_state.c), and the
 * reader of instructions, which is the architecture's (code_x86_64.c, code_arm64.c).
 */
#pragma once

#include "bpf/arch.h"
#include "lib/base.h"
#include "lib/cursor.h"

enum {
	CODE_REGS = ARCH_GENERAL_REGS,	     /* by DWARF number */
	CODE_UNKNOWN = INT32_MAX,	     /* the register holds anything */
	CODE_CALLER = INT32_MAX - 1,	     /* what it held at the function's entry */
	CODE_RETURN_ADDRESS = INT32_MAX - 2, /* that, popped from the stack */
	CODE_OFFSET_MAX = 1 << 28,	     /* frames are no larger */
	CODE_WORD = 8,
	/* Of fp below the CFA where the frame pointer and the return address are saved first. */
	CODE_STANDARD_FRAME = 16,
};

/* The registers of the caller that are followed onto the stack, by role. */
enum code_role {
	CODE_FP,
	CODE_EXTRA,
	CODE_RA, /* only where calls leave it in a register: ARCH_RA_IN_REGISTER */
	CODE_ROLES
};

struct code_state {
	int32_t reg[CODE_REGS];	   /* the register is CFA - this, in bytes, or one of the above */
	int32_t saved[CODE_ROLES]; /* the caller's is at CFA - this; 0: not saved */
	uint32_t is_outermost;	   /* code that starts a thread or process: there is no caller */
	uint32_t is_aligned;	   /* the CFA is a multiple of 16 */
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
	CODE_OP_LOAD,  /* `to` from `from` + value; `second` from the word behind it */
	CODE_OP_STORE, /* `from` at `to` + value; `second` at the word behind it */
	CODE_OP_LEA,   /* `to` = `from` + value */
	CODE_OP_ADD,   /* `to` += value */
	CODE_OP_ALIGN, /* `to` down to a multiple of 16 */
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
	bool is_entry;	 /* only where indirect calls and jumps lead: endbr64, bti */
	int8_t to, from; /* registers */
	int8_t second;	 /* of a pair (arm64); -1: none */
	uint32_t writes; /* bit per register that becomes unknown */
	int32_t value;	 /* bytes */
	int32_t moves;	 /* what is added to the base register behind a load or store (arm64) */
	/* Of a jump or call, 0 when it is not known; CODE_INDIRECT: of the table of 8-byte
	   addresses; else: an address that the code takes. */
	uint64_t target;
};

/* At a function's first instruction. */
struct code_state code_state_at_entry(void);
/* As at a function's first instruction: nothing on the stack, nothing saved. */
bool code_state_is_entry(const struct code_state *s);
/* Has the frame pointer been saved, and does it point to where? */
bool code_state_has_frame(const struct code_state *s);
/* The rule that STATE amounts to. */
struct kiln_rule code_state_rule(const struct code_state *s);
/* Keeps in TO what it has in common with FROM. True when TO changed. */
bool code_state_join(struct code_state *to, const struct code_state *from);

/* Is VALUE, of a register, a distance from the CFA? */
static inline bool code_is_known(int32_t value)
{
	return value < CODE_RETURN_ADDRESS;
}
/* For code_apply(). REG becomes CFA - VALUE. */
void code_state_set(struct code_state *s, int reg, int64_t value);
/* REG, or -1 for anything else, is stored at CFA - SLOT. */
void code_state_store(struct code_state *s, int reg, int64_t slot);
/* REG is loaded from CFA - SLOT; 0: from anywhere. */
void code_state_load(struct code_state *s, int reg, int64_t slot);
/* Every register that the instruction writes to becomes unknown. */
void code_state_clobber(struct code_state *s, const struct code_insn *insn);

/*
 * Reads the instruction at C, whose address is VADDR. False when it is none, or cut short. With
 * ONLY_FLOW what it does to registers is left out, which is cheaper.
 */
bool code_decode(struct cursor c, uint64_t vaddr, bool only_flow, struct code_insn *ret);
/*
 * Does the instruction save a register as only the first instructions of a function do? S: the
 * state before it.
 */
bool code_saves_again(const struct code_insn *insn, const struct code_state *s);
/* Takes S behind the instruction. */
void code_apply(const struct code_insn *insn, struct code_state *s);

enum { CODE_REFERENCE_MAX = 8 };

/*
 * Do the CODE_REFERENCE_MAX bytes at P, whose address is VADDR, look like a direct call, or like
 * taking an address relative to the pc? *RET_TARGET is that of the call, or the address.
 */
bool code_reference(const uint8_t *p, uint64_t vaddr, uint64_t *ret_target);
