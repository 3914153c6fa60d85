/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct code_state: what is known of a frame before an instruction, learnt by reading code
 * (code_state.c). struct code_insn: one decoded instruction; each architecture has its own decoder
 * (code_x86_64.c, code_arm64.c).
 */
#pragma once

#include "bpf/arch.h"
#include "lib/base.h"
#include "lib/cursor.h"

enum {
	CODE_REGS = ARCH_GENERAL_REGS, /* by DWARF number */
	CODE_UNKNOWN = INT32_MAX,      /* the register's value is not known */
	CODE_CALLER = INT32_MAX - 1,   /* the value that the register had at the function's entry */
	CODE_RETURN_ADDRESS = INT32_MAX - 2, /* the return address, popped from the stack */
	CODE_OFFSET_MAX = 1 << 28,	     /* bytes; frames are no larger */
	CODE_WORD = 8,
	/* Bytes of fp below the CFA in a function that saves return address and frame pointer
	 * first. */
	CODE_STANDARD_FRAME = 16,
};

/* The registers of the caller whose place on the stack is tracked, by role. */
enum code_role {
	CODE_FP,
	CODE_EXTRA,
	CODE_RA, /* only where calls leave it in a register: ARCH_RA_IN_REGISTER */
	CODE_ROLES
};

struct code_state {
	int32_t reg[CODE_REGS];	   /* value: CFA - reg[i], in bytes, or one of the above */
	int32_t saved[CODE_ROLES]; /* the caller's register is at CFA - saved[i]; 0: not saved */
	uint32_t is_outermost;	   /* code that starts a thread or process: there is no caller */
	uint32_t is_aligned;	   /* the CFA is a multiple of 16 */
};

enum code_flow_kind {
	CODE_NEXT,     /* continues with the next instruction */
	CODE_BRANCH,   /* continues, or jumps to `target` */
	CODE_JUMP,     /* jumps to `target` */
	CODE_INDIRECT, /* jumps to where a register or a table says */
	CODE_CALL,     /* continues when the function at `target` (0: not known) returns */
	CODE_RETURN,
	CODE_END,  /* does not continue: ud2 */
	CODE_HALT, /* does not continue, but compilers do not know that: hlt in inline assembler */
};

enum code_op {
	CODE_OP_NONE,  /* has no effect but on the registers in `writes` */
	CODE_OP_PUSH,  /* pushes `from` (-1: something else), `value` bytes */
	CODE_OP_POP,   /* pops `value` bytes into `to` (-1: elsewhere) */
	CODE_OP_COPY,  /* `from` to `to` */
	CODE_OP_LOAD,  /* `to` from `from` + value; `second` from the word behind it */
	CODE_OP_STORE, /* `from` at `to` + value; `second` at the word behind it */
	CODE_OP_LEA,   /* `to` = `from` + value */
	CODE_OP_ADD,   /* `to` += value */
	CODE_OP_ALIGN, /* rounds `to` down to a multiple of 16 */
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
	bool is_entry;	 /* entry mark, as targets of indirect calls and jumps have: endbr64, bti */
	int8_t to, from; /* registers */
	int8_t second;	 /* second register of a pair (arm64); -1: none */
	uint32_t writes; /* bit per register that becomes unknown */
	int32_t value;	 /* bytes */
	int32_t moves;	 /* bytes added to the base register by a load or store (arm64) */
	/* Jumps and calls: where they lead, 0 when that is not known. CODE_INDIRECT: the address
	 * of the table of 8-byte addresses, or 0. Others: an address that the instruction takes,
	 * or 0. */
	uint64_t target;
};

/* The state before a function's first instruction. */
struct code_state code_state_at_entry(void);
/* Is S like the state before a function's first instruction: nothing pushed, nothing saved? */
bool code_state_is_entry(const struct code_state *s);
/* Is the caller's frame pointer saved, and does fp point to that place? */
bool code_state_has_frame(const struct code_state *s);
/* The unwind rule that S gives; KILN_RULE_INVALID when S knows too little. */
struct kiln_rule code_state_rule(const struct code_state *s);
/* Keeps in TO what it has in common with FROM. True when TO changed. */
bool code_state_join(struct code_state *to, const struct code_state *from);

/* Is VALUE, of a register in code_state, a distance from the CFA and none of the special values? */
static inline bool code_is_known(int32_t value)
{
	return value < CODE_RETURN_ADDRESS;
}
/* This and the next three are for code_apply(). REG becomes CFA - VALUE. */
void code_state_set(struct code_state *s, int reg, int64_t value);
/* REG, or -1 for anything else, is stored at CFA - SLOT. */
void code_state_store(struct code_state *s, int reg, int64_t slot);
/* REG is loaded from CFA - SLOT; SLOT 0: from an unknown address. */
void code_state_load(struct code_state *s, int reg, int64_t slot);
/* Every register that the instruction writes to becomes unknown. */
void code_state_clobber(struct code_state *s, const struct code_insn *insn);

/*
 * Decodes the instruction at C, whose address is VADDR. False when the bytes are no instruction, or
 * cut short. With ONLY_FLOW, effects on registers are not decoded, which is cheaper.
 */
bool code_decode(struct cursor c, uint64_t vaddr, bool only_flow, struct code_insn *ret);
/*
 * Does INSN save a register as only prologues do, although S, the state before it, has it saved
 * already? Then another function begins here.
 */
bool code_saves_again(const struct code_insn *insn, const struct code_state *s);
/* Applies INSN to S, which becomes the state behind the instruction. */
void code_apply(const struct code_insn *insn, struct code_state *s);

enum { CODE_REFERENCE_MAX = 8 };

/*
 * Do the CODE_REFERENCE_MAX bytes at P, whose address is VADDR, look like a direct call, or like
 * taking an address relative to the pc? *RET_TARGET: the target of the call, or the address that is
 * taken.
 */
bool code_reference(const uint8_t *p, uint64_t vaddr, uint64_t *ret_target);
