/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unwind rows of code that has no unwind information, from the code itself: the stack pointer is
 * followed through every function. The last source that the compiler asks (docs/unwinding/
 * code-frames.md).
 */
#pragma once

#include "agent/elf/code_flow.h"
#include "agent/elf/code_starts.h"
#include "agent/elf/rows.h"
#include "agent/elf/span.h"

enum {
	CODE_ROWS_MAX = 1 << 19,
	CODE_STEPS_PER_BYTE = 4, /* on average over all gaps; compiled code takes about one */
};

struct code_row {
	uint64_t vaddr;
	struct kiln_rule rule;
};

struct code_function {
	uint64_t start;
	uint32_t size; /* from the first to behind the last instruction that has a row */
	uint32_t room; /* bytes to the next function */
	uint32_t first_row, n_rows;
	uint8_t from; /* enum code_start_from */
	bool is_sized;
};

struct code_frames {
	struct code_starts starts;
	struct code_flow flow;
	struct code_function *functions; /* ascending */
	size_t n_functions, functions_cap;
	struct code_row *rows;
	size_t n_rows, rows_cap;
	uint64_t *tails; /* targets of jumps out of functions in the state of an entry */
	size_t n_tails, tails_cap;
	uint64_t bytes;	      /* of the gaps */
	uint32_t unsupported; /* functions that have instructions without a rule */
};

/*
 * Reads the code of IMAGE's executable segments that COVERED (sorted) leaves out, and adds a span
 * of source SPAN_FLOW for every function with rows, in order. When that code is more than
 * CODE_BYTES_MAX bytes nothing is read, and every gap becomes spans of source SPAN_UNREAD.
 */
int code_frames_collect(struct code_frames *c, const struct image *image,
			const struct spans *covered, struct spans *spans) _must_check_;
/* Adds the rows of the function that SPAN names, inside of SPAN. */
void code_frames_execute(const struct code_frames *c, const struct span *span, struct rows *rows);
void code_frames_done(struct code_frames *c);
