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
 * How many entries a bucket may have before the table grows; uthash's default is 10. A look-up
 * compares them one by one, and each is likely a cache miss. With 5 a table has about two buckets
 * of 16 bytes for each entry.
 */
#undef HASH_BKT_CAPACITY_THRESH
#define HASH_BKT_CAPACITY_THRESH 5U
