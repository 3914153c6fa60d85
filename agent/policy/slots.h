/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct policy_slots: the kernel's array of policies, and which policy of the operator each entry
 * is. What an entry says never changes while samples of it may be around. Pure.
 */
#pragma once

#include "bpf/types.h"
#include "lib/base.h"

struct policy_slot {
	uint64_t id;
	uint32_t hz, tracers, off_cpu; /* as in struct kiln_policy */
	uint32_t limit_hz;	       /* what the budget leaves of hz; 0: nothing */
	uint32_t priority;	       /* the budget cuts the lowest first */
	uint64_t born;		       /* order in which they came */
	bool used;		       /* ever given out */
	bool wanted;		       /* since the last begin */
	bool live;		       /* wanted, or was at the last end */
	uint32_t retired_window;
};

struct policy_slots {
	struct policy_slot slots[KILN_MAX_POLICIES];
	uint32_t window;
	uint64_t births;
};

/* All but those of the caller begin unwanted: get those that still count, then end. */
void policy_slots_begin(struct policy_slots *s);
/*
 * The entry of the policy WANT->id with the contents of WANT, in *ret. Positive when it is new: to
 * be written. -ENOSPC when all are taken.
 */
int policy_slots_get(struct policy_slots *s, const struct policy_slot *want,
		     uint32_t *ret) _must_check_;
/* Nothing refers to entry INDEX any more. */
bool policy_slots_free(const struct policy_slots *s, uint32_t index);
void policy_slots_end(struct policy_slots *s);
/* Does one that is wanted sample off-CPU time? */
bool policy_slots_off_cpu(const struct policy_slots *s);
/* The highest rate of all that are wanted, as far as the budget leaves it; 0 when none is. */
uint32_t policy_slots_rate(const struct policy_slots *s);
uint32_t policy_slots_count(const struct policy_slots *s);
