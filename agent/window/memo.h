/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct memo: what was worked out already in this round, found by a small key: (where, address,
 * pid). Its memory is kept over rounds. Owned by one thread.
 */
#pragma once

#include "lib/ref_table.h"

struct memo_entry {
	const void *where;
	uint64_t address;
	uint32_t pid, value;
};

struct memo {
	struct memo_entry *entries; /* n of them in this round */
	size_t cap;
	uint32_t n;
	struct ref_table index;
};

void memo_done(struct memo *m);
/* Forgets everything. Gives memory back when the last round used little of it. */
void memo_begin(struct memo *m);
/* Under the same key only once a round. False, and nothing changes: out of memory. */
bool memo_add(struct memo *m, const void *where, uint64_t address, uint32_t pid, uint32_t value);
bool memo_find(const struct memo *m, const void *where, uint64_t address, uint32_t pid,
	       uint32_t *ret);
size_t memo_bytes(const struct memo *m);
