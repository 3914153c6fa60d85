/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a place in code or bytecode to places in source: the tables that V8 keeps with both.
 */
#pragma once

#include "agent/runtime/v8/object.h"

enum {
	V8_CODE_MAX = 1 << 20, /* bytes of machine code that are searched for its beginning */
	V8_INLINE_MAX = SYMBOL_INLINE_MAX,
	V8_BYTECODES_MAX = 256, /* of one operand scale */
};

/* How long each bytecode is, by operand scale. Zero: not known. */
struct v8_bytecodes {
	uint8_t sizes[3][V8_BYTECODES_MAX];
	uint32_t n;
};

/* The object with the machine code that holds some address. */
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

/* Finds the code around PC. *HINT is the map of the last one's object, 0 at first. */
int v8_code_find(const struct v8_heap *h, uint64_t pc, uint64_t *hint, struct v8_code *ret);

/* The BytecodeArray of SHARED. */
int v8_bytecode_of(const struct v8_heap *h, uint64_t shared, uint64_t *ret);
/* The position in the script of the bytecode at OFFSET of ARRAY; -1: not known. */
int32_t v8_bytecode_position(const struct v8_heap *h, uint64_t array, uint32_t offset);
/*
 * The offset in the BytecodeArray ARRAY of the bytecode whose baseline code holds OFFSET of CODE;
 * -1: not known.
 */
int32_t v8_baseline_offset(const struct v8_heap *h, const struct v8_code *code, uint64_t array,
			   const struct v8_bytecodes *sizes, uint32_t offset);
