/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes a changed copy of a table: with a runtime's marks, or with the rules of code that was read
 * later. The copy is written front to back by rows.h, with a row at each row of the old table and
 * at each border of a range or piece. Rules outside of the ranges are copied as they are. Any
 * thread; nothing is shared.
 */
#include "agent/elf/rows.h"

enum { MARKS = KILN_RULE_RUNTIME | KILN_RULE_FRAME_POINTER };

/* A position in a table: the next row, and the block that holds it. */
struct walker {
	const struct unwind_table *t;
	uint32_t row, block;
};

static uint64_t table_end(const struct unwind_table *t)
{
	return t->base + ((uint64_t)t->blocks << KILN_BLOCK_SHIFT);
}

/* The address of the row at which W stands; UINT64_MAX behind the last one. */
static uint64_t row_address(struct walker *w)
{
	const struct unwind_table *t = w->t;

	if (w->row >= t->n_rows)
		return UINT64_MAX;
	while (w->block + 1 < t->blocks && t->index[w->block + 1] <= w->row)
		w->block++;
	return t->base + ((uint64_t)w->block << KILN_BLOCK_SHIFT) +
	       (t->rows[w->row].low & ((1U << KILN_BLOCK_SHIFT) - 1));
}

static const struct unwind_range *range_of(const struct unwind_range *ranges, size_t n, uint64_t pc)
{
	for (size_t i = 0; i < n; i++)
		if (pc >= ranges[i].start && pc < ranges[i].end)
			return &ranges[i];
	return NULL;
}

static uint64_t next_border(const struct unwind_range *ranges, size_t n, uint64_t after)
{
	uint64_t next = UINT64_MAX;

	for (size_t i = 0; i < n; i++) {
		if (ranges[i].start >= ranges[i].end)
			continue;
		if (ranges[i].start > after)
			next = MIN(next, ranges[i].start);
		if (ranges[i].end > after)
			next = MIN(next, ranges[i].end);
	}
	return next;
}

static struct kiln_rule marked(const struct kiln_rule *rule, const struct unwind_range *range,
			       uint32_t runtime)
{
	struct kiln_rule r = *rule;

	/* Code belongs to the first runtime that claims it. */
	if (!range || (r.flags & MARKS))
		return r;
	if (range->frame_pointer)
		r = (struct kiln_rule){.kind = KILN_RULE_FP};
	else if (r.kind == KILN_RULE_DEREF)
		/* deref_off is in use: no place for the mark; signal trampolines and the like */
		return r;
	if (range->keeps_fp)
		r.flags |= KILN_RULE_FRAME_POINTER;
	if (!range->native) {
		r.flags |= KILN_RULE_RUNTIME;
		r.deref_off = (int32_t)runtime;
	}
	return r;
}

/* RULE, or the rule of PIECE (if not NULL) in place of KILN_RULE_UNREAD. */
static struct kiln_rule patched(const struct kiln_rule *rule, const struct code_piece *piece)
{
	struct kiln_rule r = *rule;

	if (!piece || r.kind != KILN_RULE_UNREAD)
		return r;
	r = piece->rule;
	if ((rule->flags & MARKS) && r.kind != KILN_RULE_DEREF) {
		r.flags |= rule->flags & MARKS;
		r.deref_off = rule->deref_off;
	}
	return r;
}

int unwind_table_patch(const struct unwind_table *old, const struct code_piece *pieces, size_t n,
		       struct unwind_table **ret)
{
	_cleanup_(rows_done) struct rows rows = {0};
	struct walker w = {.t = old};
	uint32_t rule = 0;
	uint64_t pc = old->base;
	int r = rows_init(&rows, old->base, table_end(old));

	for (size_t i = 0; r == 0 && pc < table_end(old);) {
		const struct code_piece *piece = NULL;
		uint64_t border = UINT64_MAX;
		struct kiln_rule now;

		while (row_address(&w) <= pc)
			rule = old->rows[w.row++].rule;
		while (i < n && pieces[i].end <= pc)
			i++;
		if (i < n) {
			piece = pieces[i].start <= pc ? &pieces[i] : NULL;
			border = piece ? piece->end : pieces[i].start;
		}
		now = patched(&old->rules[rule], piece);
		rows_add(&rows, pc, &now);
		pc = MIN(row_address(&w), border);
	}
	if (r == 0)
		r = rows_finish(&rows, ret);
	if (r < 0)
		return r;
	(*ret)->unsupported += old->unsupported;
	(*ret)->malformed += old->malformed;
	return 0;
}

int unwind_table_mark(struct unwind_table **table, const struct unwind_range *ranges, size_t n,
		      uint32_t runtime)
{
	struct unwind_table *old = *table;
	_cleanup_(rows_done) struct rows rows = {0};
	struct walker w = {.t = old};
	uint32_t rule = 0;
	uint64_t pc = old->base;
	int r = rows_init(&rows, old->base, table_end(old));

	while (r == 0 && pc < table_end(old)) {
		const struct unwind_range *range = range_of(ranges, n, pc);
		struct kiln_rule now;

		while (row_address(&w) <= pc)
			rule = old->rows[w.row++].rule;
		now = marked(&old->rules[rule], range, runtime);
		rows_add(&rows, pc, &now);
		pc = MIN(row_address(&w), next_border(ranges, n, pc));
	}
	if (r == 0)
		r = rows_finish(&rows, table);
	if (r < 0)
		return r;
	(*table)->unsupported += old->unsupported;
	(*table)->malformed += old->malformed;
	unwind_table_free(old);
	return 0;
}
