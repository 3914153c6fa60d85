/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct rows: builds a struct unwind_table front to back. Rows come in ascending order; a rule
 * equal to the one before adds no row; two rows at one address: the later one stays. Rules are
 * interned. The first failure (-ENOMEM, -E2BIG) sticks and is returned by rows_finish().
 */
#pragma once

#include "agent/elf/unwind.h"
#include "lib/ref_table.h"

enum { ROWS_RECENT_SHIFT = 7 };

struct rows {
	struct unwind_table *t;
	size_t rows_cap, rules_cap;
	struct ref_table rules; /* by their content */
	uint64_t seed;		/* of its hash */
	uint16_t recent[1 << ROWS_RECENT_SHIFT];
	uint32_t next_block; /* index entries below are filled in */
	uint64_t last_pc;
	bool row_at_last; /* the last row stands exactly at last_pc */
	int error;
};

/*
 * Begins a table for the code from START (rounded down to 1 KiB) to END. -E2BIG: more than
 * UNWIND_SPAN_MAX bytes.
 */
int rows_init(struct rows *r, uint64_t start, uint64_t end) _must_check_;
void rows_done(struct rows *r);
void rows_add(struct rows *r, uint64_t pc, const struct kiln_rule *rule);
int rows_finish(struct rows *r, struct unwind_table **ret) _must_check_;
