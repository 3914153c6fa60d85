/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/budget.h"
#include "tests/support/test.h"

#define MIB (1ULL << 20)

static void the_default_follows_the_machine_within_bounds(void **state)
{
	assert_int_equal(budget_default(0), 128 * MIB);
	assert_int_equal(budget_default(24576 * MIB), 384 * MIB);
	assert_int_equal(budget_default(1ULL << 42), 1024 * MIB);
}

static void pressure_begins_before_the_budget_is_used_up(void **state)
{
	assert_int_equal(budget_pressure(80 * MIB, 70 * MIB), PRESSURE_NONE);
	assert_int_equal(budget_pressure(80 * MIB, 70 * MIB + 1), PRESSURE_SOFT);
	assert_int_equal(budget_pressure(64 * MIB, 62 * MIB), PRESSURE_SOFT);
	assert_int_equal(budget_pressure(64 * MIB, 62 * MIB + 1), PRESSURE_HARD);
}

static void full_slabs_alone_bring_no_pressure(void **state)
{
	for (uint64_t other = 0; other < 60 * MIB; other += MIB) {
		uint64_t slabs = budget_for_slabs(80 * MIB, other);

		assert_int_equal(budget_pressure(80 * MIB, other + slabs), PRESSURE_NONE);
		assert_int_not_equal(budget_pressure(80 * MIB, other + slabs + 1), PRESSURE_NONE);
	}
}

static void some_tables_fit_whatever_the_rest_takes(void **state)
{
	assert_int_equal(budget_for_slabs(80 * MIB, 80 * MIB), 4 * MIB);
	assert_int_equal(budget_for_slabs(80 * MIB, 69 * MIB), 4 * MIB);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_default_follows_the_machine_within_bounds),
	    cmocka_unit_test(pressure_begins_before_the_budget_is_used_up),
	    cmocka_unit_test(full_slabs_alone_bring_no_pressure),
	    cmocka_unit_test(some_tables_fit_whatever_the_rest_takes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
