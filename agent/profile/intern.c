/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open addressing with linear probing, at most 3/4 full. The whole hash is kept in the slot, so
 * that growing needs no look at the entries and a probe seldom calls equal() in vain.
 */
#include "agent/profile/intern.h"

void intern_done(struct intern *t)
{
	free(t->slots);
	*t = (struct intern){0};
}

static void wipe(struct intern_slot *slots, size_t n)
{
	memset(slots, 0xff, n * sizeof(*slots)); /* every index becomes INTERN_NONE */
}

void intern_clear(struct intern *t)
{
	if (t->slots)
		wipe(t->slots, t->cap);
	t->n = 0;
}

uint32_t intern_find(const struct intern *t, uint64_t hash, intern_equal equal, const void *owner,
		     const void *key)
{
	const struct intern_slot *slot;

	if (!t->cap)
		return INTERN_NONE;
	for (size_t i = hash & (t->cap - 1);; i = (i + 1) & (t->cap - 1)) {
		slot = &t->slots[i];
		if (slot->index == INTERN_NONE)
			return INTERN_NONE;
		if (slot->hash == hash && equal(owner, slot->index, key))
			return slot->index;
	}
}

static void place(struct intern_slot *slots, size_t cap, uint64_t hash, uint32_t index)
{
	size_t i = hash & (cap - 1);

	while (slots[i].index != INTERN_NONE)
		i = (i + 1) & (cap - 1);
	slots[i] = (struct intern_slot){.hash = hash, .index = index};
}

int intern_reserve(struct intern *t)
{
	struct intern_slot *slots;
	size_t cap = t->cap ? t->cap * 2 : 32;

	if (t->cap && (t->n + 1) * 4 <= t->cap * 3)
		return 0;
	slots = malloc(cap * sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	wipe(slots, cap);
	for (size_t i = 0; i < t->cap; i++)
		if (t->slots[i].index != INTERN_NONE)
			place(slots, cap, t->slots[i].hash, t->slots[i].index);
	free(t->slots);
	t->slots = slots;
	t->cap = cap;
	return 0;
}

void intern_add(struct intern *t, uint64_t hash, uint32_t index)
{
	place(t->slots, t->cap, hash, index);
	t->n++;
}
