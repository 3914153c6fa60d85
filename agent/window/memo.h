/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct memo: results of the current round, found by a small key (where, address, pid). Its memory
 * is reused for the next round. Owned by one thread.
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
/* A key may be added only once per round. False: out of memory, and nothing has changed. */
bool memo_add(struct memo *m, const void *where, uint64_t address, uint32_t pid, uint32_t value);
bool memo_find(const struct memo *m, const void *where, uint64_t address, uint32_t pid,
	       uint32_t *ret);
size_t memo_bytes(const struct memo *m);
