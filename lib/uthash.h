/* SPDX-License-Identifier: Apache-2.0 */
/*
 * uthash that survives when memory is out; to be included instead of <uthash.h>, which calls
 * exit() then. A table that cannot grow keeps its buckets and becomes slower; a table's first
 * entry, for which uthash allocates the table itself, takes it from a small reserve. So adding an
 * entry cannot fail. Any thread.
 */
#pragma once

#ifdef UTHASH_H
#error "lib/uthash.h comes instead of <uthash.h>"
#endif

#include "lib/base.h"

/* At least SIZE bytes. NULL without memory, when that leaves the table as it is. */
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
