/* SPDX-License-Identifier: Apache-2.0 */
/*
 * uthash that survives running out of memory; to be included instead of <uthash.h>, which calls
 * exit() then. A table that cannot grow keeps its buckets and becomes slower. The memory for a new
 * table, which uthash allocates with its first entry, comes from a small reserve if need be. So
 * adding an entry cannot fail. Any thread.
 */
#pragma once

#ifdef UTHASH_H
#error "lib/uthash.h comes instead of <uthash.h>"
#endif

#include "lib/base.h"

/* At least SIZE bytes. NULL when there is no memory and SIZE is that of a table that grows. */
void *uthash_alloc(size_t size);
void uthash_release(void *at);

#define uthash_malloc(size)   uthash_alloc(size)
#define uthash_free(at, size) uthash_release(at)
#define uthash_fatal(message) ((void)0) /* not grown */
#include <uthash.h>
/*
 * Entries in a bucket before the table grows; uthash has 10. Each is likely a cache miss, as the
 * loop comes back to cold caches. With 5 there is an entry for two buckets, of 16 bytes each.
 */
#undef HASH_BKT_CAPACITY_THRESH
#define HASH_BKT_CAPACITY_THRESH 5U
