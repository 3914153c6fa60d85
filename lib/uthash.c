/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reserve has room for 32 tables that get their first entry while there is no memory: each
 * takes two places, for its head and its first buckets. It bridges the time until memory is free
 * again or the OOM killer ends a process. The 33rd table ends this process, because there is no way
 * to go on.
 */
#include "lib/uthash.h"

#include <stdatomic.h>

#include "lib/log.h"

enum { PLACES = 64, PLACE_BYTES = 512 };

/* Larger allocations are for tables that grow. */
_Static_assert(sizeof(UT_hash_table) <= PLACE_BYTES, "a table's head has a place");
_Static_assert(HASH_INITIAL_NUM_BUCKETS * sizeof(UT_hash_bucket) <= PLACE_BYTES,
	       "a table's first buckets have a place");

static struct {
	_Alignas(max_align_t) uint8_t bytes[PLACE_BYTES];
} reserve[PLACES];
static _Atomic uint64_t used; /* a bit for each place */

static void *take_place(void)
{
	uint64_t was = atomic_load(&used);

	while (~was) {
		int i = __builtin_ctzll(~was);

		if (atomic_compare_exchange_weak(&used, &was, was | 1ULL << i))
			return reserve[i].bytes;
	}
	return NULL;
}

void *uthash_alloc(size_t size)
{
	void *p = malloc(size);

	if (p || size > PLACE_BYTES)
		return p;
	p = take_place();
	if (!p) {
		log_error("lib", "out of memory, and its reserve for hash tables is used up");
		abort();
	}
	return p;
}

void uthash_release(void *at)
{
	size_t offset = (size_t)((uintptr_t)at - (uintptr_t)reserve);

	if (offset < sizeof(reserve))
		atomic_fetch_and(&used, ~(1ULL << offset / sizeof(reserve[0])));
	else
		free(at);
}
