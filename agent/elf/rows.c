// SPDX-License-Identifier: Apache-2.0
/*
 * The one writer of unwind tables; see rows.h. The block index is filled while rows arrive: entry b
 * is the number of rows before block b, known as soon as a row at or behind block b comes.
 * One thread per struct rows.
 */
#include "agent/elf/rows.h"

#include <sys/random.h>

enum { BLOCK = 1 << KILN_BLOCK_SHIFT };

int rows_init(struct rows *r, uint64_t start, uint64_t end)
{
	uint64_t base = start & ~(uint64_t)(BLOCK - 1);
	struct kiln_rule invalid = {.kind = KILN_RULE_INVALID};
	uint64_t blocks = (end - base + BLOCK - 1) >> KILN_BLOCK_SHIFT;

	*r = (struct rows){};
	if (getrandom(&r->seed, sizeof(r->seed), GRND_NONBLOCK) != sizeof(r->seed))
		r->seed = mix64((uintptr_t)r);
	if (end <= base || end - base > UNWIND_SPAN_MAX)
		return -E2BIG;
	r->t = calloc(1, sizeof(*r->t));
	if (!r->t)
		return -ENOMEM;
	r->t->base = base;
	r->t->blocks = (uint32_t)blocks;
	r->t->index = calloc(blocks + 1, sizeof(*r->t->index));
	if (!r->t->index)
		return -ENOMEM;
	rows_add(r, base, &invalid); /* gives the rule its id 0 */
	return r->error;
}

void rows_done(struct rows *r)
{
	unwind_table_free(r->t);
	ref_table_done(&r->rules);
	*r = (struct rows){0};
}

/* SEED is random, so that nobody can craft a file whose rules all have the same hash. */
static uint64_t rule_hash(const struct kiln_rule *rule, uint64_t seed)
{
	uint64_t w[2];

	_Static_assert(sizeof(w) == sizeof(*rule), "whole rules");
	memcpy(w, rule, sizeof(w));
	return mix64(mix64(w[0] ^ seed) ^ w[1]);
}

static bool same_rule(const void *table, uint32_t index, const void *rule)
{
	const struct unwind_table *t = table;

	return memcmp(&t->rules[index], rule, sizeof(t->rules[index])) == 0;
}

/*
 * Caches rule ids, because most rules recur soon: the place where the id of a rule equal to RULE
 * may be.
 */
static uint16_t *recent_of(struct rows *r, const struct kiln_rule *rule)
{
	uint64_t w[2];

	memcpy(w, rule, sizeof(w));
	return &r->recent[((w[0] ^ w[1]) * 0x9e3779b97f4a7c15ULL) >> (64 - ROWS_RECENT_SHIFT)];
}

/*
 * *RET: the id of RULE, which is added if it is new. When the table has UNWIND_RULES_MAX rules
 * already, 0: the invalid rule.
 */
static int intern(struct rows *r, const struct kiln_rule *rule, uint16_t *ret)
{
	struct unwind_table *t = r->t;
	uint16_t *recent = recent_of(r, rule);
	uint64_t hash;
	uint32_t index;
	int e;

	if (*recent < t->n_rules && same_rule(t, *recent, rule)) {
		*ret = *recent;
		return 0;
	}
	hash = rule_hash(rule, r->seed);
	index = ref_table_index(&r->rules, hash, same_rule, t, rule);
	if (index != REF_TABLE_NONE) {
		*ret = *recent = (uint16_t)index;
		return 0;
	}
	if (t->n_rules == UNWIND_RULES_MAX) {
		t->unsupported++;
		*ret = 0;
		return 0;
	}
	e = ref_table_reserve(&r->rules, 1);
	if (e < 0)
		return e;
	e = grow_array((void **)&t->rules, &r->rules_cap, t->n_rules + 1, sizeof(*rule),
		       UNWIND_RULES_MAX);
	if (e < 0)
		return e;
	t->rules[t->n_rules++] = *rule;
	ref_table_insert(&r->rules, hash, t->n_rules);
	*ret = (uint16_t)(t->n_rules - 1);
	return 0;
}

static int add(struct rows *r, uint64_t pc, const struct kiln_rule *rule)
{
	struct unwind_table *t = r->t;
	uint32_t block = (uint32_t)((pc - t->base) >> KILN_BLOCK_SHIFT);
	uint16_t id;
	int e;

	if (r->row_at_last && r->last_pc == pc)
		t->n_rows--;
	r->row_at_last = false;
	r->last_pc = pc;
	if (t->n_rows && memcmp(&t->rules[t->rows[t->n_rows - 1].rule], rule, sizeof(*rule)) == 0)
		return 0;
	e = intern(r, rule, &id);
	if (e < 0)
		return e;
	if (t->n_rows && t->rows[t->n_rows - 1].rule == id)
		return 0;
	e = grow_array((void **)&t->rows, &r->rows_cap, (size_t)t->n_rows + 1, sizeof(*t->rows),
		       UNWIND_ROWS_MAX);
	if (e < 0)
		return e;
	while (r->next_block <= block)
		t->index[r->next_block++] = t->n_rows;
	t->rows[t->n_rows++] = (struct kiln_row){.low = (uint16_t)(pc - t->base), .rule = id};
	r->row_at_last = true;
	return 0;
}

void rows_add(struct rows *r, uint64_t pc, const struct kiln_rule *rule)
{
	if (r->error || pc < r->t->base || pc < r->last_pc ||
	    pc - r->t->base >= (uint64_t)r->t->blocks << KILN_BLOCK_SHIFT)
		return;
	r->error = add(r, pc, rule);
}

int rows_finish(struct rows *r, struct unwind_table **ret)
{
	struct unwind_table *t = r->t;
	void *p;

	if (r->error)
		return r->error;
	while (r->next_block <= t->blocks)
		t->index[r->next_block++] = t->n_rows;
	p = realloc(t->rows, MAX(t->n_rows, 1u) * sizeof(*t->rows));
	if (p)
		t->rows = p;
	p = realloc(t->rules, t->n_rules * sizeof(*t->rules));
	if (p)
		t->rules = p;
	*ret = TAKE_PTR(r->t);
	return 0;
}
