/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the Code object that holds an address, and source positions by the tables that V8 keeps
 * with bytecode and with baseline code.
 */
#pragma once

#include "agent/runtime/v8/object.h"

enum {
	V8_CODE_MAX = 1 << 20, /* bytes of machine code that are searched for its beginning */
	V8_INLINE_MAX = SYMBOL_INLINE_MAX,
	V8_BYTECODES_MAX = 256, /* bytecodes of one operand scale */
};

/* The length in bytes of each bytecode, by operand scale. 0: not known. */
struct v8_bytecodes {
	uint8_t sizes[3][V8_BYTECODES_MAX];
	uint32_t n;
};

/* A Code object and its instructions. */
struct v8_code {
	uint64_t object;      /* Code */
	uint64_t start, size; /* of its instructions */
	bool baseline, maglev;
};

/* A place in source, and the function that it is in. */
struct v8_place {
	uint64_t shared;  /* SharedFunctionInfo */
	int32_t position; /* in the script; -1: not known */
};

/*
 * Finds the Code whose instructions hold PC. *HINT is the map in front of the instructions that
 * were found last, 0 at first; it is updated. -ENOENT, -EFAULT.
 */
int v8_code_find(const struct v8_heap *h, uint64_t pc, uint64_t *hint, struct v8_code *ret);

/* Finds the BytecodeArray of SHARED. 0 or -EFAULT. */
int v8_bytecode_of(const struct v8_heap *h, uint64_t shared, uint64_t *ret);
/* Returns the position in the script of the bytecode at OFFSET of ARRAY; -1: not known. */
int32_t v8_bytecode_position(const struct v8_heap *h, uint64_t array, uint32_t offset);
/*
 * Returns the offset in the BytecodeArray ARRAY of the bytecode that the instruction at OFFSET of
 * the baseline code CODE was made from; -1: not known.
 */
int32_t v8_baseline_offset(const struct v8_heap *h, const struct v8_code *code, uint64_t array,
			   const struct v8_bytecodes *sizes, uint32_t offset);
