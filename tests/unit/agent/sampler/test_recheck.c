/* SPDX-License-Identifier: Apache-2.0 */
/* After notes of mappings were lost: which processes are read again, how often and how fast. */
#include "agent/sampler/recheck.h"
#include "tests/support/test.h"

#define MS     1000000ULL
#define SECOND (1000 * MS)

enum { READ = 5, PROCESSES = 2000 };

static struct recheck *r;
static uint64_t since;

static int setup(void **state)
{
	return recheck_new(&r);
}

static int teardown(void **state)
{
	r = recheck_free(r);
	return 0;
}

/* How many of the processes 1 to N are due at NOW; all were read at READ. */
static uint32_t due(uint32_t n, uint64_t now)
{
	uint32_t found = 0;

	for (uint32_t tgid = 1; tgid <= n; tgid++)
		found += recheck_due(r, tgid, READ, now, &since);
	return found;
}

static void nobody_is_due_before_a_loss_or_when_read_after_it(void **state)
{
	assert_int_equal(due(10, SECOND), 0);
	recheck_lost(r, SECOND - 1, SECOND);
	assert_false(recheck_due(r, 1, SECOND, 2 * SECOND, &since));
	assert_true(recheck_due(r, 1, SECOND - 1, 2 * SECOND, &since));
	assert_int_equal(since, SECOND - 1);
}

static void each_process_is_due_once_a_loss(void **state)
{
	recheck_lost(r, 0, 10 * SECOND);
	assert_int_equal(due(10, 11 * SECOND), 10);
	assert_int_equal(due(10, 12 * SECOND), 0);
	recheck_lost(r, 0, 100 * SECOND);
	assert_int_equal(due(10, 101 * SECOND), 10);
}

static void many_are_spread_over_seconds(void **state)
{
	uint32_t found = 0, now;

	recheck_lost(r, 0, 10 * SECOND);
	assert_in_range(due(PROCESSES, 10 * SECOND), 1, RECHECKS_AT_ONCE);
	for (now = 0; found < PROCESSES - RECHECKS_AT_ONCE && now < 600; now++)
		found += due(PROCESSES, 10 * SECOND + now * 100 * MS);
	assert_in_range(now, (PROCESSES - RECHECKS_AT_ONCE) * 10 / RECHECKS_PER_SECOND - 1, 110);
	assert_int_equal(due(PROCESSES, 100 * SECOND), 0);
}

/* Notes are lost at each reading for a minute. */
static void losses_in_a_row_count_at_growing_intervals(void **state)
{
	uint32_t found = 0;

	for (uint64_t now = 10 * SECOND; now < 70 * SECOND; now += 100 * MS) {
		recheck_lost(r, now - 100 * MS, now);
		found += due(1, now);
	}
	/* due at 0, 1, 3, 7, 15, 31 and 47 s */
	assert_int_equal(found, 7);
}

static void a_loss_within_the_interval_is_not_forgotten(void **state)
{
	recheck_lost(r, 1, 10 * SECOND);
	assert_int_equal(due(1, 10 * SECOND), 1);
	recheck_lost(r, 10 * SECOND + 7, 10 * SECOND + 100 * MS);
	recheck_lost(r, 10 * SECOND + 9, 10 * SECOND + 200 * MS);
	assert_int_equal(due(1, 10 * SECOND + 300 * MS), 0);
	assert_int_equal(due(1, 20 * SECOND), 1);
	assert_int_equal(since, 10 * SECOND + 7);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(nobody_is_due_before_a_loss_or_when_read_after_it),
	    TEST(each_process_is_due_once_a_loss),
	    TEST(many_are_spread_over_seconds),
	    TEST(losses_in_a_row_count_at_growing_intervals),
	    TEST(a_loss_within_the_interval_is_not_forgotten),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
