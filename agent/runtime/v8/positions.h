/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables of source positions, of bytecode and of machine code.
 */
#pragma once

#include "agent/runtime/v8/object.h"

/* A table and its current entry. */
struct v8_positions {
	struct cursor c;
	uint32_t flags; /* v8_position_flags() */
	int64_t at;	/* offset in the code */
	uint64_t value; /* struct SourcePosition's bits */
};

struct v8_positions v8_positions_of(const struct v8_layout *l, const uint8_t *bytes, size_t n);
/* Goes to the next entry. False: there is none. */
bool v8_positions_next(struct v8_positions *p);

/* Finds the value of the last entry of the table at or before OFFSET. -ENOENT: none. */
int v8_position_in(const struct v8_layout *l, const uint8_t *bytes, size_t n, uint32_t offset,
		   uint64_t *ret);
/* As v8_position_in(), for the array TABLE in the process. */
int v8_position_at(const struct v8_heap *h, uint64_t table, uint32_t offset, uint64_t *ret);

/* The position in the script that VALUE has; -1: it is no place in JavaScript. */
static inline int32_t v8_script_position(uint64_t value)
{
	return value & 1 ? -1 : (int32_t)(value >> 1 & 0x3fffffff) - 1;
}

/* The inlining id that VALUE has; -1: it is in no inlined function. */
static inline int32_t v8_inlining_id(uint64_t value)
{
	return (int32_t)(value >> 31 & 0xffff) - 1;
}
