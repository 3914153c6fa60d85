/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct memo: what was worked out already in this round, found by a small key: (where, address,
 * pid). Its memory is kept over rounds. Owned by one thread.
 */
#pragma once

#include "lib/base.h"

struct memo_slot {
	const void *where;
	uint64_t address;
	uint32_t pid, value;
	uint32_t round; /* the slot is taken when it is the memo's */
	uint32_t pad;
};

struct memo {
	struct memo_slot *slots; /* cap of them, a power of two; at most half are taken */
	size_t cap, n;
	uint32_t round;
};

void memo_done(struct memo *m);
/* Forgets everything. Gives memory back when the last round used little of it. */
void memo_begin(struct memo *m);
/* Under the same key only once a round. False, and nothing changes: out of memory. */
bool memo_add(struct memo *m, const void *where, uint64_t address, uint32_t pid, uint32_t value);
bool memo_find(const struct memo *m, const void *where, uint64_t address, uint32_t pid,
	       uint32_t *ret);
size_t memo_bytes(const struct memo *m);
