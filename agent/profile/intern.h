/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct intern: hash -> index, for arrays whose entries are to be unique. It stores no entries:
 * the caller keeps them in an array of its own and says whether entry INDEX is the wanted one.
 * Entries are never removed. One owner, no locking.
 */
#pragma once

#include "lib/base.h"

#define INTERN_NONE UINT32_MAX

struct intern_slot {
	uint64_t hash;
	uint32_t index; /* INTERN_NONE: free */
};

struct intern {
	struct intern_slot *slots;
	size_t cap; /* power of two, or 0 */
	size_t n;
};

typedef bool (*intern_equal)(const void *owner, uint32_t index, const void *key);

void intern_done(struct intern *t);
void intern_clear(struct intern *t); /* forgets all entries, keeps the memory */
/* The index of the entry that equals KEY, or INTERN_NONE. */
uint32_t intern_find(const struct intern *t, uint64_t hash, intern_equal equal, const void *owner,
		     const void *key);
/* Room for one more entry: after it, the next intern_add() cannot fail. */
int intern_reserve(struct intern *t) _must_check_;
void intern_add(struct intern *t, uint64_t hash, uint32_t index);
