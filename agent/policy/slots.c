/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The samples of a window name their policy by its entry, and their rate is the entry's. So an
 * entry that no policy uses any more is not reused for as long as a window may refer to it: the one
 * that is being named, those that wait for metadata, and the current one.
 */
#include "agent/policy/slots.h"

#include "agent/policy/policy.h"

void policy_slots_begin(struct policy_slots *s)
{
	for (uint32_t i = POLICY_FIRST; i < KILN_MAX_POLICIES; i++)
		s->slots[i].wanted = false;
}

static bool is_free(const struct policy_slots *s, const struct policy_slot *slot)
{
	if (slot->wanted || slot->live)
		return false;
	return !slot->used || s->window - slot->retired_window >= POLICY_REUSE_WINDOWS;
}

bool policy_slots_free(const struct policy_slots *s, uint32_t index)
{
	return is_free(s, &s->slots[index]);
}

static bool is_same(const struct policy_slot *a, const struct policy_slot *b)
{
	return a->id == b->id && a->hz == b->hz && a->tracers == b->tracers &&
	       a->off_cpu == b->off_cpu;
}

int policy_slots_get(struct policy_slots *s, const struct policy_slot *want, uint32_t *ret)
{
	uint32_t found = 0;

	for (uint32_t i = POLICY_FIRST; i < KILN_MAX_POLICIES; i++) {
		struct policy_slot *slot = &s->slots[i];

		if (slot->used && is_same(slot, want)) {
			slot->wanted = slot->live = true;
			*ret = i;
			return 0;
		}
	}
	for (uint32_t i = POLICY_FIRST; i < KILN_MAX_POLICIES && !found; i++)
		if (is_free(s, &s->slots[i]))
			found = i;
	if (!found)
		return -ENOSPC;
	s->slots[found] = *want;
	s->slots[found].limit_hz = want->hz;
	s->slots[found].born = ++s->births;
	s->slots[found].used = s->slots[found].wanted = s->slots[found].live = true;
	*ret = found;
	return 1;
}

void policy_slots_end(struct policy_slots *s)
{
	for (uint32_t i = POLICY_FIRST; i < KILN_MAX_POLICIES; i++) {
		struct policy_slot *slot = &s->slots[i];

		if (slot->live && !slot->wanted)
			slot->retired_window = s->window;
		slot->live = slot->wanted;
	}
}

bool policy_slots_off_cpu(const struct policy_slots *s)
{
	for (uint32_t i = 0; i < KILN_MAX_POLICIES; i++)
		if (s->slots[i].wanted && s->slots[i].off_cpu)
			return true;
	return false;
}

uint32_t policy_slots_rate(const struct policy_slots *s)
{
	uint32_t rate = 0;

	for (uint32_t i = 0; i < KILN_MAX_POLICIES; i++)
		if (s->slots[i].wanted)
			rate = MAX(rate, s->slots[i].limit_hz);
	return rate;
}

uint32_t policy_slots_count(const struct policy_slots *s)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < KILN_MAX_POLICIES; i++)
		n += s->slots[i].wanted;
	return n;
}
