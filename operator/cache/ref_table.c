// SPDX-License-Identifier: Apache-2.0
/*
 * Linear probing, at most 7/8 full, deletion by moving the followers back (Knuth 6.4, algorithm R),
 * so there are no tombstones and a table that lives long under churn stays as fast as a new one.
 * Shrinks when less than an eighth is used; when there is no memory for that, it stays.
 */
#include "operator/cache/ref_table.h"

enum { SIZE_MIN = 16 };
static const uint32_t size_max = 1u << 30;

static uint8_t tag_of(uint64_t hash)
{
	uint8_t tag = (uint8_t)(hash >> 56);

	return tag ? tag : 1;
}

static void place(struct ref_table *t, uint64_t hash, uint32_t ref)
{
	uint32_t mask = t->size - 1, i = (uint32_t)hash & mask;

	while (t->tags[i])
		i = (i + 1) & mask;
	t->tags[i] = tag_of(hash);
	t->refs[i] = ref;
}

static int resize(struct ref_table *t, uint32_t size)
{
	_cleanup_free_ uint32_t *refs = malloc((size_t)size * sizeof(*refs));
	_cleanup_free_ uint8_t *tags = calloc(size, 1);
	struct ref_table old = *t;

	if (!refs || !tags)
		return -ENOMEM;
	t->refs = TAKE_PTR(refs);
	t->tags = TAKE_PTR(tags);
	t->size = size;
	for (uint32_t i = 0; i < old.size; i++)
		if (old.tags[i])
			place(t, t->hash(t->arg, old.refs[i]), old.refs[i]);
	free(old.refs);
	free(old.tags);
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
	place(t, hash, ref);
	t->count++;
}

uint32_t ref_table_next(const struct ref_table *t, uint64_t hash, uint32_t *pos)
{
	uint32_t mask = t->size - 1, i;
	uint8_t tag = tag_of(hash);

	if (!t->size)
		return 0;
	i = *pos == REF_TABLE_START ? (uint32_t)hash & mask : (*pos + 1) & mask;
	for (; t->tags[i]; i = (i + 1) & mask)
		if (t->tags[i] == tag) {
			*pos = i;
			return t->refs[i];
		}
	return 0;
}

bool ref_table_remove(struct ref_table *t, uint64_t hash, uint32_t ref)
{
	uint32_t mask = t->size - 1, pos = REF_TABLE_START, found, hole, i, home;

	while ((found = ref_table_next(t, hash, &pos)) && found != ref)
		;
	if (!found)
		return false;
	hole = pos;
	for (i = (hole + 1) & mask; t->tags[i]; i = (i + 1) & mask) {
		home = (uint32_t)t->hash(t->arg, t->refs[i]) & mask;
		/* It may move to the hole unless its home lies after the hole, up to I. */
		if (((i - home) & mask) < ((i - hole) & mask))
			continue;
		t->tags[hole] = t->tags[i];
		t->refs[hole] = t->refs[i];
		hole = i;
	}
	t->tags[hole] = 0;
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
	return (size_t)t->size * (sizeof(*t->refs) + sizeof(*t->tags));
}

void ref_table_done(struct ref_table *t)
{
	free(t->refs);
	free(t->tags);
	t->refs = NULL;
	t->tags = NULL;
	t->size = t->count = 0;
}
