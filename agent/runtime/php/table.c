// SPDX-License-Identifier: Apache-2.0
/*
 * Searches a string in a HashTable of PHP. The objects in these tables are alive: functions,
 * classes, methods, the names of included files. The entries lie in an array, each {zval, hash,
 * key}. In front of it is, for each value of the hash's low bits, the number of the first entry;
 * and each entry has the number of the next. Links are counted, sizes are capped. Loop thread.
 *
 * Source: PHP 7.4 and 8.2, Zend/zend_types.h (struct _zend_array, struct _Bucket), the same in the
 * headers of 8.6; the hash is zend_string_hash_func(), DJBX33A, in Zend/zend_string.h.
 */
#include "agent/runtime/php/php.h"

enum {
	TABLE_HEAD = 8, /* zend_array: flags and nTableMask, arData, nNumUsed */
	ENTRIES_MAX = 1 << 20,
	ENTRIES_SEARCHED_MAX = 1 << 14,
	ENTRIES_AT_ONCE = 64,
	LINKS_MAX = 64,
	BUCKET_BYTES = 32,
};

struct bucket {
	uint64_t value;
	uint32_t type, next;
	uint64_t hash, key;
};
_Static_assert(sizeof(struct bucket) == BUCKET_BYTES, "struct bucket");

struct table {
	uint32_t flags, mask;
	uint64_t entries;
	uint32_t used, pad;
};

uint64_t php_hash(const char *key, size_t len)
{
	uint64_t h = 5381;

	for (size_t i = 0; i < len; i++)
		h = h * 33 + (uint8_t)key[i];
	return h | 1ULL << 63;
}

static int read_table(const struct target_memory *memory, uint64_t address, struct table *ret)
{
	int r = target_read(memory, address + TABLE_HEAD, ret, sizeof(*ret));

	if (r < 0)
		return r;
	return ret->used <= ENTRIES_MAX ? 0 : -EFAULT;
}

int php_table_get(const struct target_memory *memory, uint64_t table, uint64_t hash,
		  uint64_t *ret_value)
{
	struct bucket b;
	struct table t;
	uint32_t at;
	int r = read_table(memory, table, &t);

	if (r < 0)
		return r;
	/* The mask is the negative number of places. */
	r = target_read(memory,
			t.entries + (uint64_t)((int64_t)(int32_t)((uint32_t)hash | t.mask) *
					       (int64_t)sizeof(at)),
			&at, sizeof(at));
	for (int i = 0; r == 0 && i < LINKS_MAX && at < t.used; i++) {
		r = target_read(memory, t.entries + (uint64_t)at * BUCKET_BYTES, &b, sizeof(b));
		if (r == 0 && b.hash == hash && b.key) {
			*ret_value = b.value;
			return 0;
		}
		at = b.next;
	}
	return r < 0 ? r : -ENOENT;
}

int php_table_find(const struct target_memory *memory, uint64_t table, uint64_t cookie,
		   uint64_t *ret_key)
{
	struct bucket buckets[ENTRIES_AT_ONCE];
	struct table t;
	int r = read_table(memory, table, &t);

	if (r < 0)
		return r;
	for (uint32_t at = 0; at < MIN(t.used, (uint32_t)ENTRIES_SEARCHED_MAX);
	     at += ENTRIES_AT_ONCE) {
		uint32_t part = MIN(t.used - at, (uint32_t)ENTRIES_AT_ONCE);

		r = target_read(memory, t.entries + (uint64_t)at * BUCKET_BYTES, buckets,
				part * sizeof(buckets[0]));
		if (r < 0)
			return r;
		for (uint32_t i = 0; i < part; i++) {
			if (!buckets[i].key ||
			    php_string_cookie(buckets[i].hash, PHP_LONG_COOKIE_BITS) != cookie)
				continue;
			*ret_key = buckets[i].key;
			return 0;
		}
	}
	return -ENOENT;
}
