/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deoptimization data: the interpreted frames that V8 would make from a frame of optimized code.
 * V8's own stack traces take the positions of callers from it.
 */
#pragma once

#include "agent/runtime/v8/object.h"

enum {
	V8_DEOPT_FRAMES_MAX = SYMBOL_INLINE_MAX,
	V8_DEOPT_OPCODES_MAX = 64,
};

/* How many operands each opcode of a translation has. */
struct v8_opcodes {
	uint8_t operands[V8_DEOPT_OPCODES_MAX];
	uint32_t n;	/* 0: not known */
	uint32_t begin; /* BEGIN_WITHOUT_FEEDBACK; the opcode after it begins translations, too */
};

/* The deoptimization data of one Code. */
struct v8_deopt {
	const struct v8_heap *heap;
	const struct v8_opcodes *opcodes;
	uint64_t data;	/* DeoptimizationData */
	uint32_t count; /* places where code can be left */
	uint8_t *bytes; /* of the translations; NULL: not read yet */
	size_t n;
	int32_t checks;	 /* the first so many places belong to checks, the others to calls */
	int64_t exits;	 /* offset in the code of the exits: one for each place, in order */
	uint32_t budget; /* opcodes that may still be looked at */
};

/* An interpreted frame that deoptimization would make. */
struct v8_deopt_frame {
	uint64_t shared; /* SharedFunctionInfo */
	int32_t offset;	 /* in its bytecode; -1: at its entry */
};

/*
 * Fills RET from TABLE: 4-byte integers of the file, the number of operands of each opcode (V8 12.4
 * and later). -ENOTSUP: TABLE is something else; *RET is untouched.
 */
int v8_opcodes_init(struct v8_opcodes *ret, struct cursor table);

/*
 * Prepares D to read the DeoptimizationData DATA. -EFAULT: there is none, or it makes no sense;
 * then nothing has to be released.
 */
int v8_deopt_init(struct v8_deopt *d, const struct v8_heap *h, const struct v8_opcodes *opcodes,
		  uint64_t data);
void v8_deopt_done(struct v8_deopt *d);

/*
 * Puts the JavaScript frames of place INDEX into RET, outermost first. Returns how many, or
 * -EFAULT.
 */
int v8_deopt_frames(struct v8_deopt *d, uint32_t index,
		    struct v8_deopt_frame ret[V8_DEOPT_FRAMES_MAX]);
/*
 * Finds the place whose exit is at OFFSET of the code: a check jumps to its exit. -ENOENT: there is
 * no exit.
 */
int v8_deopt_exit(const struct v8_deopt *d, int64_t offset, uint32_t *ret);
bool v8_deopt_is_call(const struct v8_deopt *d, uint32_t index);
/*
 * Returns the offset in Turbofan's code that the call of place INDEX returns to; OTHERWISE: not
 * known.
 */
uint32_t v8_deopt_call(const struct v8_deopt *d, uint32_t index, uint32_t otherwise);
/*
 * Finds the place of the call in Maglev's code that returns to OFFSET, by the code's safepoint
 * table, which is at the address TABLE. -ENOENT: V8 cannot leave the code there.
 */
int v8_deopt_index(const struct v8_heap *h, uint64_t table, uint32_t offset, uint32_t *ret);

/* Finds the SharedFunctionInfo that literal ID of the DeoptimizationData DATA is. 0 or -EFAULT. */
int v8_deopt_function(const struct v8_heap *h, uint64_t data, int32_t id, uint64_t *ret);
