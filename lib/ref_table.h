/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct ref_table: an open-addressing hash table of 32-bit names that are not 0, eight bytes a
 * slot. It stores no keys: the key is wherever the name points; equal keys may stand in it several
 * times. Beside each name stands half of its hash: a probe looks at one place and hardly ever at a
 * foreign record, and a table grows without looking at any. One thread at a time.
 *
 * It is the hash table for what is many or short-lived; where 56 bytes an entry do not matter,
 * uthash is.
 */
#pragma once

#include "lib/base.h"

struct ref_table {
	struct ref_slot {
		uint32_t mark; /* of the hash; 0: free */
		uint32_t ref;
	} * slots;
	uint32_t size; /* 0 or a power of two */
	uint32_t count;
};

void ref_table_done(struct ref_table *t);
void ref_table_clear(struct ref_table *t); /* forgets all names, keeps the memory */
/* Room for N more, so that ref_table_insert() cannot fail. -ENOMEM. */
int ref_table_reserve(struct ref_table *t, uint32_t n) _must_check_;
void ref_table_insert(struct ref_table *t, uint64_t hash, uint32_t ref);
/* HASH will be looked for soon: its place is on the way from memory meanwhile. */
void ref_table_prefetch(const struct ref_table *t, uint64_t hash);
/* False: it is not there. */
bool ref_table_remove(struct ref_table *t, uint64_t hash, uint32_t ref);
/* Gives memory back when few are left; not during a walk. */
void ref_table_trim(struct ref_table *t);
size_t ref_table_bytes(const struct ref_table *t);

/*
 * The names whose hash may be HASH, one a call, then 0:
 *   for (pos = REF_TABLE_START; (ref = ref_table_next(t, hash, &pos));)
 */
#define REF_TABLE_START UINT32_MAX
uint32_t ref_table_next(const struct ref_table *t, uint64_t hash, uint32_t *pos);

/*
 * Walks all names by slot, 0 for a free one. What is removed at slot I may be followed there by
 * another: look at I again. No name is missed that way, though one may be met twice.
 */
static inline uint32_t ref_table_slot(const struct ref_table *t, uint32_t i)
{
	return t->slots[i].mark ? t->slots[i].ref : 0;
}

/*
 * For an array whose entries are to be unique: the entry I of it has the name I + 1. The index of
 * the entry of HASH that EQUAL says is KEY; REF_TABLE_NONE: there is none.
 */
#define REF_TABLE_NONE UINT32_MAX
typedef bool (*ref_table_equal)(const void *owner, uint32_t index, const void *key);
uint32_t ref_table_index(const struct ref_table *t, uint64_t hash, ref_table_equal equal,
			 const void *owner, const void *key);
