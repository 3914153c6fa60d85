/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/window/memo.h"
#include "tests/support/test.h"

static const char a, b, many[100000];

static void keys_that_differ_in_any_part_are_told_apart(void **state)
{
	struct memo m = {};
	uint32_t value = 7;

	memo_begin(&m);
	assert_false(memo_find(&m, &a, 1, 2, &value));
	assert_int_equal(value, 7);
	assert_true(memo_add(&m, &a, 1, 2, 10));
	assert_true(memo_add(&m, &b, 1, 2, 11));
	assert_true(memo_add(&m, &a, 2, 2, 12));
	assert_true(memo_add(&m, &a, 1, 3, 13));
	assert_true(memo_add(&m, NULL, 1, 2, 14));
	assert_true(memo_find(&m, &a, 1, 2, &value));
	assert_int_equal(value, 10);
	assert_true(memo_find(&m, &b, 1, 2, &value));
	assert_int_equal(value, 11);
	assert_true(memo_find(&m, &a, 2, 2, &value));
	assert_int_equal(value, 12);
	assert_true(memo_find(&m, &a, 1, 3, &value));
	assert_int_equal(value, 13);
	assert_true(memo_find(&m, NULL, 1, 2, &value));
	assert_int_equal(value, 14);
	assert_false(memo_find(&m, NULL, 0, 0, &value));
	memo_done(&m);
}

static void everything_is_found_after_growing_and_nothing_in_the_next_round(void **state)
{
	enum { N = 100000 };
	struct memo m = {};
	uint32_t value;

	for (uint32_t round = 0; round < 3; round++) {
		memo_begin(&m);
		for (uint32_t i = 0; i < N; i++) {
			assert_false(memo_find(&m, &a, i * 16, 0, &value));
			assert_true(memo_add(&m, &a, i * 16, 0, i + round));
			assert_true(memo_add(&m, &b, 1, i, i));
			assert_true(memo_add(&m, &many[i], 3, 0, i));
		}
		for (uint32_t i = 0; i < N; i++) {
			assert_true(memo_find(&m, &a, i * 16, 0, &value));
			assert_int_equal(value, i + round);
			assert_true(memo_find(&m, &b, 1, i, &value));
			assert_int_equal(value, i);
			assert_true(memo_find(&m, &many[i], 3, 0, &value));
			assert_int_equal(value, i);
		}
		assert_false(memo_find(&m, &a, 8, 0, &value));
	}
	memo_done(&m);
}

static void memory_of_a_large_round_goes_after_a_small_one(void **state)
{
	struct memo m = {};
	size_t large;

	memo_begin(&m);
	for (uint32_t i = 0; i < 10000; i++)
		assert_true(memo_add(&m, &a, i, 0, i));
	large = memo_bytes(&m);
	assert_true(large >= 10000 * sizeof(struct memo_entry));
	memo_begin(&m); /* the large one is over */
	assert_int_equal(memo_bytes(&m), large);
	assert_true(memo_add(&m, &a, 1, 0, 1));
	memo_begin(&m); /* the small one is over */
	assert_int_equal(memo_bytes(&m), 0);
	assert_true(memo_add(&m, &a, 1, 0, 1));
	assert_true(memo_bytes(&m) < large / 8);
	memo_done(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(keys_that_differ_in_any_part_are_told_apart),
	    cmocka_unit_test(everything_is_found_after_growing_and_nothing_in_the_next_round),
	    cmocka_unit_test(memory_of_a_large_round_goes_after_a_small_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
