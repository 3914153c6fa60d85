/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deoptimization data: which interpreted frames V8 would put in the place of a frame of optimized
 * code. V8's own stack traces tell from it where callers are.
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
	uint32_t begin; /* BEGIN_WITHOUT_FEEDBACK; the next one is the other that begins */
};

/* The deoptimization data of one Code. */
struct v8_deopt {
	const struct v8_heap *heap;
	const struct v8_opcodes *opcodes;
	uint64_t data;	/* DeoptimizationData */
	uint32_t count; /* of places where code can be left */
	uint8_t *bytes; /* of the translations; NULL: not read yet */
	size_t n;
	int32_t checks;	 /* so many places come first that are of checks; then those of calls */
	int64_t exits;	 /* offset in the code of what leaves it, place by place */
	uint32_t budget; /* of opcodes that are looked at */
};

/* A frame that would be made. */
struct v8_deopt_frame {
	uint64_t shared; /* SharedFunctionInfo */
	int32_t offset;	 /* in its bytecode; -1: where it is entered */
};

/*
 * The number of operands of each opcode, N integers of the file, as they were read: what V8 from
 * 12.4 on has. -ENOTSUP: they are no such table, and *RET is as it was.
 */
int v8_opcodes_init(struct v8_opcodes *ret, struct cursor table);

/* -EFAULT: there is none, or it is not understood. Nothing is to be released then. */
int v8_deopt_init(struct v8_deopt *d, const struct v8_heap *h, const struct v8_opcodes *opcodes,
		  uint64_t data);
void v8_deopt_done(struct v8_deopt *d);

/* The frames of JavaScript at place INDEX, outermost first: how many, or -EFAULT. */
int v8_deopt_frames(struct v8_deopt *d, uint32_t index,
		    struct v8_deopt_frame ret[V8_DEOPT_FRAMES_MAX]);
/* The place whose exit is at OFFSET: a check jumps there. -ENOENT: none. */
int v8_deopt_exit(const struct v8_deopt *d, int64_t offset, uint32_t *ret);
bool v8_deopt_is_call(const struct v8_deopt *d, uint32_t index);
/* The offset that the call at place INDEX of Turbofan's code returns to; OTHERWISE: not known. */
uint32_t v8_deopt_call(const struct v8_deopt *d, uint32_t index, uint32_t otherwise);
/*
 * The place of the call in Maglev's code that returns to OFFSET; TABLE is where its safepoints are.
 * -ENOENT: V8 cannot leave it there.
 */
int v8_deopt_index(const struct v8_heap *h, uint64_t table, uint32_t offset, uint32_t *ret);

/* The function with number ID among the literals of DATA. */
int v8_deopt_function(const struct v8_heap *h, uint64_t data, int32_t id, uint64_t *ret);
