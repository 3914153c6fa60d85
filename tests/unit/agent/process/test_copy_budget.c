/* SPDX-License-Identifier: Apache-2.0 */
#include "cm.h"

#include "agent/process/copy_budget.h"

enum { ONE = 1, OTHER = 2 };

static void bytes_that_are_given_back_can_be_taken_again(void **state)
{
	struct copy_budget b;

	copy_budget_init(&b, 100);
	assert_int_equal(copy_budget_take(&b, ONE, 101), -ENOSPC);
	assert_int_equal(copy_budget_take(&b, ONE, 100), 0);
	assert_false(copy_budget_has(&b, OTHER, 1));
	assert_int_equal(copy_budget_take(&b, OTHER, 1), -ENOSPC);
	copy_budget_give(&b, ONE, 100);
	assert_true(copy_budget_has(&b, OTHER, 100));
	assert_int_equal(copy_budget_take(&b, OTHER, 100), 0);
	copy_budget_give(&b, OTHER, 100);
	assert_null(b.shares);
	assert_int_equal(b.taken, 0);
	copy_budget_done(&b);
}

static void one_filesystem_gets_half_once_half_is_taken(void **state)
{
	struct copy_budget b;

	copy_budget_init(&b, 100);
	assert_int_equal(copy_budget_take(&b, ONE, 25), 0);
	assert_int_equal(copy_budget_take(&b, ONE, 25), 0);
	assert_false(copy_budget_has(&b, ONE, 1));
	assert_int_equal(copy_budget_take(&b, ONE, 1), -ENOSPC);
	assert_true(copy_budget_has(&b, OTHER, 50));
	assert_false(copy_budget_has(&b, OTHER, 51));
	assert_int_equal(copy_budget_take(&b, OTHER, 50), 0);
	/* The other's bytes count too: half is taken with them. */
	copy_budget_give(&b, ONE, 25);
	assert_true(copy_budget_has(&b, ONE, 25));
	assert_false(copy_budget_has(&b, ONE, 26));
	assert_false(copy_budget_has(&b, OTHER, 1));
	copy_budget_done(&b);
}

static void a_file_larger_than_half_has_room_before_half_is_taken(void **state)
{
	struct copy_budget b;

	copy_budget_init(&b, 100);
	assert_int_equal(copy_budget_take(&b, OTHER, 20), 0);
	assert_int_equal(copy_budget_take(&b, ONE, 80), 0);
	copy_budget_give(&b, OTHER, 20);
	/* It has more than its half now, so nothing is left to it. */
	assert_false(copy_budget_has(&b, ONE, 1));
	assert_true(copy_budget_has(&b, OTHER, 20));
	copy_budget_done(&b);
}

static void no_bytes_can_be_taken_and_given_any_time(void **state)
{
	struct copy_budget b;

	copy_budget_init(&b, 100);
	assert_int_equal(copy_budget_take(&b, ONE, 0), 0);
	copy_budget_give(&b, ONE, 0);
	assert_null(b.shares);
	copy_budget_done(&b);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
	    cmocka_unit_test(bytes_that_are_given_back_can_be_taken_again),
	    cmocka_unit_test(one_filesystem_gets_half_once_half_is_taken),
	    cmocka_unit_test(a_file_larger_than_half_has_room_before_half_is_taken),
	    cmocka_unit_test(no_bytes_can_be_taken_and_given_any_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
