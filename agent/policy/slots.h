/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct policy_slots: the kernel's array of policies, and which policy of the operator each entry
 * holds. The content of an entry does not change while samples of it may exist. Pure.
 */
#pragma once

#include "bpf/types.h"
#include "lib/base.h"

struct policy_slot {
	uint64_t id;
	uint32_t hz, tracers, off_cpu; /* as in struct kiln_policy */
	uint32_t limit_hz;	       /* what the budget leaves of hz; 0: nothing */
	uint32_t priority;	       /* the budget cuts the lowest first */
	uint64_t born;		       /* order of arrival */
	bool used;		       /* has held a policy */
	bool wanted;		       /* asked for since the last policy_slots_begin() */
	bool live;		       /* wanted, or was at the last policy_slots_end() */
	uint32_t retired_window;
};

struct policy_slots {
	struct policy_slot slots[KILN_MAX_POLICIES];
	uint32_t window;
	uint64_t births;
};

/* Marks all entries but the caller's own as unwanted. Call policy_slots_get() for each policy that
 * is still in use, then policy_slots_end(). */
void policy_slots_begin(struct policy_slots *s);
/*
 * The entry that holds policy WANT->id with the contents of WANT, in *RET. Positive when it is new
 * and has to be written to the kernel. -ENOSPC when all entries are in use.
 */
int policy_slots_get(struct policy_slots *s, const struct policy_slot *want,
		     uint32_t *ret) _must_check_;
/* Whether entry INDEX may be reused. */
bool policy_slots_free(const struct policy_slots *s, uint32_t index);
void policy_slots_end(struct policy_slots *s);
/* Whether a wanted entry samples off-CPU time. */
bool policy_slots_off_cpu(const struct policy_slots *s);
/* The highest rate of the wanted entries, after the budget's limits; 0 when there is none. */
uint32_t policy_slots_rate(const struct policy_slots *s);
uint32_t policy_slots_count(const struct policy_slots *s);
