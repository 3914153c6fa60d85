// SPDX-License-Identifier: Apache-2.0
/*
 * Linear probing, at most 7/8 full, deletion by moving the followers back (Knuth 6.4, algorithm R).
 * So there are no tombstones, and a table with many insertions and deletions stays as fast as a new
 * one. Shrinks when less than an eighth is used; without memory for the smaller table it keeps its
 * size.
 */
#include "lib/ref_table.h"

enum { SIZE_MIN = 16 };
static const uint32_t size_max = 1u << 30;

/* The part of the hash that a slot stores, which also gives its home slot. 0 marks a free slot, so
 * it is replaced by 1. */
static uint32_t mark_of(uint64_t hash)
{
	uint32_t mark = (uint32_t)hash;

	return mark ? mark : 1;
}

static void place(struct ref_table *t, struct ref_slot slot)
{
	uint32_t mask = t->size - 1, i = slot.mark & mask;

	while (t->slots[i].mark)
		i = (i + 1) & mask;
	t->slots[i] = slot;
}

static int resize(struct ref_table *t, uint32_t size)
{
	struct ref_table old = *t;
	struct ref_slot *slots = calloc(size, sizeof(*slots));

	if (!slots)
		return -ENOMEM;
	t->slots = slots;
	t->size = size;
	for (uint32_t i = 0; i < old.size; i++)
		if (old.slots[i].mark)
			place(t, old.slots[i]);
	free(old.slots);
	return 0;
}

int ref_table_reserve(struct ref_table *t, uint32_t n)
{
	uint64_t want = (uint64_t)t->count + n, size = MAX(t->size, SIZE_MIN);

	while (want > size - size / 8)
		size *= 2;
	if (size > size_max)
		return -ENOMEM;
	return size == t->size ? 0 : resize(t, (uint32_t)size);
}

void ref_table_insert(struct ref_table *t, uint64_t hash, uint32_t ref)
{
	place(t, (struct ref_slot){.mark = mark_of(hash), .ref = ref});
	t->count++;
}

void ref_table_prefetch(const struct ref_table *t, uint64_t hash)
{
	if (t->size)
		__builtin_prefetch(&t->slots[mark_of(hash) & (t->size - 1)]);
}

uint32_t ref_table_next(const struct ref_table *t, uint64_t hash, uint32_t *pos)
{
	uint32_t mask = t->size - 1, mark = mark_of(hash), i;

	if (!t->size)
		return 0;
	i = *pos == REF_TABLE_START ? mark & mask : (*pos + 1) & mask;
	for (; t->slots[i].mark; i = (i + 1) & mask)
		if (t->slots[i].mark == mark) {
			*pos = i;
			return t->slots[i].ref;
		}
	return 0;
}

uint32_t ref_table_index(const struct ref_table *t, uint64_t hash, ref_table_equal equal,
			 const void *owner, const void *key)
{
	uint32_t pos = REF_TABLE_START, name;

	while ((name = ref_table_next(t, hash, &pos)))
		if (equal(owner, name - 1, key))
			return name - 1;
	return REF_TABLE_NONE;
}

bool ref_table_remove(struct ref_table *t, uint64_t hash, uint32_t ref)
{
	uint32_t mask = t->size - 1, pos = REF_TABLE_START, found, hole, i, home;

	while ((found = ref_table_next(t, hash, &pos)) && found != ref)
		;
	if (!found)
		return false;
	hole = pos;
	for (i = (hole + 1) & mask; t->slots[i].mark; i = (i + 1) & mask) {
		home = t->slots[i].mark & mask;
		/* The entry at I may move to the hole unless its home slot is after the hole and
		 * not after I. */
		if (((i - home) & mask) < ((i - hole) & mask))
			continue;
		t->slots[hole] = t->slots[i];
		hole = i;
	}
	t->slots[hole].mark = 0;
	t->count--;
	return true;
}

void ref_table_trim(struct ref_table *t)
{
	uint32_t size = t->size;

	while (size > SIZE_MIN && t->count < size / 8)
		size /= 2;
	if (size != t->size)
		(void)resize(t, size);
}

size_t ref_table_bytes(const struct ref_table *t)
{
	return (size_t)t->size * sizeof(*t->slots);
}

void ref_table_done(struct ref_table *t)
{
	free(t->slots);
	t->slots = NULL;
	t->size = t->count = 0;
}

void ref_table_clear(struct ref_table *t)
{
	if (t->slots)
		memset(t->slots, 0, ref_table_bytes(t));
	t->count = 0;
}
