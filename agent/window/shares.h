/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct shares: how many entries of a table each owner has. An owner is a cgroup, or a process
 * where cgroups are not recorded (process_owner()). Whoever owns the table owns its shares.
 */
#pragma once

#include "lib/base.h"
#include "lib/uthash.h"

struct share {
	uint64_t owner;
	size_t entries;
	UT_hash_handle hh;
};

/* Zeroed: nobody has an entry. */
struct shares {
	struct share *all;
	size_t n; /* owners that have entries */
};

void shares_done(struct shares *s);
/* Nobody has entries any more. Owners that had some keep their memory until the next time. */
void shares_reset(struct shares *s);
/* OWNER has one entry more. Returns its share; NULL without memory: the entry is not charged. */
struct share *shares_add(struct shares *s, uint64_t owner);
/* OF, from shares_add(), has one entry less. NULL: nothing. */
void shares_subtract(struct shares *s, struct share *of);
/*
 * Returns whether OWNER has more entries than MAX divided by the number of owners. A single owner
 * counts as two, because another one may come at any time.
 */
bool shares_is_over(const struct shares *s, uint64_t owner, size_t max);
