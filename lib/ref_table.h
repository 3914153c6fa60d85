/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct ref_table: an open-addressing hash table of 32-bit references that are not 0, eight bytes
 * a slot. It stores no keys: the caller finds the key through the reference. Equal keys may be
 * inserted several times. Each slot also has half of the hash, so a lookup touches one place and
 * hardly ever a record of another key, and the table grows without touching the records. One thread
 * at a time.
 *
 * Use it for tables that are large or short-lived; where 56 bytes an entry do not matter, uthash is
 * used.
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
void ref_table_clear(struct ref_table *t); /* removes all references, keeps the memory */
/* Room for N more, so that ref_table_insert() cannot fail. -ENOMEM. */
int ref_table_reserve(struct ref_table *t, uint32_t n) _must_check_;
void ref_table_insert(struct ref_table *t, uint64_t hash, uint32_t ref);
/* Prefetches the slot of HASH, which will be looked up soon. */
void ref_table_prefetch(const struct ref_table *t, uint64_t hash);
/* False: REF was not in the table. */
bool ref_table_remove(struct ref_table *t, uint64_t hash, uint32_t ref);
/* Shrinks the table when few slots are used; not during a walk. */
void ref_table_trim(struct ref_table *t);
size_t ref_table_bytes(const struct ref_table *t);

/*
 * Iterates over the references whose hash may be HASH, one a call; 0 at the end:
 *   for (pos = REF_TABLE_START; (ref = ref_table_next(t, hash, &pos));)
 */
#define REF_TABLE_START UINT32_MAX
uint32_t ref_table_next(const struct ref_table *t, uint64_t hash, uint32_t *pos);

/*
 * The reference in slot I, 0 when the slot is free: for walking the whole table. Removing the
 * reference in slot I may move another one there: look at I again. The walk misses no reference
 * then, but may meet one twice.
 */
static inline uint32_t ref_table_slot(const struct ref_table *t, uint32_t i)
{
	return t->slots[i].mark ? t->slots[i].ref : 0;
}

/*
 * For an array with unique entries, in which entry I is inserted as the reference I + 1. Returns
 * the index of the entry with this HASH for which EQUAL(OWNER, index, KEY) is true; REF_TABLE_NONE:
 * there is none.
 */
#define REF_TABLE_NONE UINT32_MAX
typedef bool (*ref_table_equal)(const void *owner, uint32_t index, const void *key);
uint32_t ref_table_index(const struct ref_table *t, uint64_t hash, ref_table_equal equal,
			 const void *owner, const void *key);
