/* SPDX-License-Identifier: Apache-2.0 */
/* An array of entries and an index of it; single entries are never removed. */
#include "agent/window/memo.h"

enum { CAP_KEPT = 1024, ENTRIES_MAX = 1 << 24 };

void memo_done(struct memo *m)
{
	ref_table_done(&m->index);
	free(m->entries);
	*m = (struct memo){};
}

void memo_begin(struct memo *m)
{
	if (m->cap > CAP_KEPT && m->n < m->cap / 8)
		memo_done(m);
	ref_table_clear(&m->index);
	m->n = 0;
}

static uint64_t hash_of(const void *where, uint64_t address, uint32_t pid)
{
	return mix64(address ^ mix64((uintptr_t)where + pid));
}

static bool equal(const void *memo, uint32_t index, const void *key)
{
	const struct memo_entry *a = ((const struct memo *)memo)->entries + index, *b = key;

	return a->address == b->address && a->where == b->where && a->pid == b->pid;
}

bool memo_add(struct memo *m, const void *where, uint64_t address, uint32_t pid, uint32_t value)
{
	if (grow_array((void **)&m->entries, &m->cap, (size_t)m->n + 1, sizeof(*m->entries),
		       ENTRIES_MAX) < 0 ||
	    ref_table_reserve(&m->index, 1) < 0)
		return false;
	m->entries[m->n] =
	    (struct memo_entry){.where = where, .address = address, .pid = pid, .value = value};
	ref_table_insert(&m->index, hash_of(where, address, pid), ++m->n);
	return true;
}

bool memo_find(const struct memo *m, const void *where, uint64_t address, uint32_t pid,
	       uint32_t *ret)
{
	const struct memo_entry key = {.where = where, .address = address, .pid = pid};
	uint32_t i = ref_table_index(&m->index, hash_of(where, address, pid), equal, m, &key);

	if (i == REF_TABLE_NONE)
		return false;
	*ret = m->entries[i].value;
	return true;
}

size_t memo_bytes(const struct memo *m)
{
	return m->cap * sizeof(*m->entries) + ref_table_bytes(&m->index);
}
