// SPDX-License-Identifier: Apache-2.0
/*
 * Looks for a string in a HashTable of PHP, which has all that a name is needed of after the
 * frame's own copy is gone: included files, functions, methods. Its entries lie one behind the
 * other, each {zval, hash, key}; all of them are looked at, up to a bound. Loop thread.
 *
 * Source: PHP 7.4 and 8.2, Zend/zend_types.h (struct _zend_array, struct _Bucket), the same in the
 * headers of 8.6; the hash is zend_string_hash_func(), DJBX33A, in Zend/zend_string.h.
 */
#include "agent/runtime/php/php.h"

enum {
	TABLE_DATA = 16, /* zend_array.arData, nNumUsed */
	ENTRIES_MAX = 1 << 16,
	ENTRIES_AT_ONCE = 64,
};

struct bucket {
	uint64_t value, type;
	uint64_t hash, key;
};

uint64_t php_hash(const char *key, size_t len)
{
	uint64_t h = 5381;

	for (size_t i = 0; i < len; i++)
		h = h * 33 + (uint8_t)key[i];
	return h | 1ULL << 63;
}

int php_table_find(const struct target_memory *memory, uint64_t table, uint64_t cookie,
		   uint32_t bits, struct php_entry *ret)
{
	struct bucket buckets[ENTRIES_AT_ONCE];
	uint64_t head[2]; /* where the entries are, how many */
	uint32_t n;
	int r = target_read(memory, table + TABLE_DATA, head, sizeof(head));

	if (r < 0)
		return r;
	n = (uint32_t)head[1];
	if (n > ENTRIES_MAX)
		return -EFAULT;
	for (uint32_t at = 0; at < n; at += ENTRIES_AT_ONCE) {
		uint32_t part = MIN(n - at, (uint32_t)ENTRIES_AT_ONCE);

		r = target_read(memory, head[0] + at * sizeof(buckets[0]), buckets,
				part * sizeof(buckets[0]));
		if (r < 0)
			return r;
		for (uint32_t i = 0; i < part; i++) {
			if (!buckets[i].key || php_string_cookie(buckets[i].hash, bits) != cookie)
				continue;
			*ret = (struct php_entry){buckets[i].value, buckets[i].key};
			return 0;
		}
	}
	return -ENOENT;
}
