/* SPDX-License-Identifier: Apache-2.0 */
/* Hash tables while malloc() fails (tests/support/failalloc.h). */
#include "lib/uthash.h"
#include "tests/support/failalloc.h"
#include "tests/support/test.h"

enum { MANY = 1000, TABLES = 32 };

struct entry {
	int key;
	UT_hash_handle hh;
};

static struct entry entries[MANY];

static struct entry *add(struct entry **table, int key)
{
	struct entry *e = &entries[key], *found;

	e->key = key;
	HASH_ADD_INT(*table, key, e);
	HASH_FIND_INT(*table, &key, found);
	return found;
}

static void a_table_that_cannot_grow_has_all_entries(void **state)
{
	struct entry *table = NULL;
	unsigned int buckets;

	failalloc_at(0);
	for (int i = 0; i < MANY - 1; i++)
		assert_ptr_equal(add(&table, i), &entries[i]);
	assert_true(failalloc_stop());
	buckets = table->hh.tbl->num_buckets;
	assert_int_equal(HASH_COUNT(table), MANY - 1);
	for (int i = 0; i < MANY - 1; i++) {
		struct entry *found;

		HASH_FIND_INT(table, &i, found);
		assert_ptr_equal(found, &entries[i]);
	}
	/*
	 * Once there is memory again, the table grows with the next entry that meets a long chain.
	 */
	assert_ptr_equal(add(&table, MANY - 1), &entries[MANY - 1]);
	assert_true(table->hh.tbl->num_buckets > buckets);
	HASH_CLEAR(hh, table);
}

/* Three rounds: a deleted table returns its memory to the reserve. */
static void new_tables_come_from_the_reserve(void **state)
{
	struct entry *tables[TABLES] = {};

	for (int round = 0; round < 3; round++) {
		failalloc_at(0);
		for (int i = 0; i < TABLES; i++)
			assert_ptr_equal(add(&tables[i], i), &entries[i]);
		assert_true(failalloc_stop());
		for (int i = 0; i < TABLES; i++)
			HASH_DEL(tables[i], &entries[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_table_that_cannot_grow_has_all_entries),
	    cmocka_unit_test(new_tables_come_from_the_reserve),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
