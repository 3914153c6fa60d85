/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/sampler/run_time.h"
#include "tests/support/test.h"

#define MS 1000000ULL

/*
 * SECONDS with a look every 100 ms at a program that runs every ms, NS long. The kernel counts only
 * while counting is on.
 */
static void run(struct run_time *r, struct run_count *kernel, uint64_t *now, unsigned int seconds,
		uint64_t ns, bool sparing)
{
	for (unsigned int i = 0; i < seconds * 10; i++) {
		bool on;

		*now += 100 * MS;
		if (r->on) {
			kernel->ns += 100 * ns;
			kernel->runs += 100;
		}
		run_time_look(r, *now, kernel);
		on = run_time_wants(r, *now, sparing);
		if (on != r->on)
			run_time_turn(r, *now, on);
	}
}

static void assert_about(uint64_t value, uint64_t want)
{
	if (value < want - want / 20 || value > want + want / 20)
		fail_msg("%llu is not about %llu", (unsigned long long)value,
			 (unsigned long long)want);
}

static void it_is_the_kernels_count_while_that_is_on(void **state)
{
	struct run_time r = {};
	struct run_count kernel = {.ns = 12345, .runs = 67}; /* counted before the start */
	uint64_t now = 5000 * MS;

	run_time_look(&r, now, &kernel);
	run_time_turn(&r, now, true);
	run(&r, &kernel, &now, 60, 700, false);
	assert_int_equal(r.total.ns, kernel.ns - 12345);
	assert_int_equal(r.total.runs, 60 * 1000);
}

static void the_rest_of_the_time_is_like_the_part_that_was_counted(void **state)
{
	struct run_time r = {};
	struct run_count kernel = {};
	uint64_t now = 5000 * MS, before;

	run_time_look(&r, now, &kernel);
	run_time_turn(&r, now, true);
	run(&r, &kernel, &now, 160, 700, true);
	assert_about(r.total.ns, 160ULL * 1000 * 700);
	assert_about(r.total.runs, 160ULL * 1000);
	/* The kernel counted a part of the time only. */
	assert_true(kernel.ns < r.total.ns / 10);
	/* A change of the cost is seen in the next part that is counted. */
	before = r.total.ns;
	run(&r, &kernel, &now, 320, 70000, true);
	assert_about(r.total.ns - before, 320ULL * 1000 * 70000);
}

static void it_counts_all_again_when_nothing_is_to_be_spared(void **state)
{
	struct run_time r = {};
	struct run_count kernel = {};
	uint64_t now = 5000 * MS, before;

	run_time_look(&r, now, &kernel);
	run_time_turn(&r, now, true);
	run(&r, &kernel, &now, 20, 700, true);
	run(&r, &kernel, &now, 1, 700, false);
	assert_true(r.on);
	before = r.total.ns;
	run(&r, &kernel, &now, 60, 900, false);
	assert_int_equal(r.total.ns - before, 60 * 1000 * 900);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(it_is_the_kernels_count_while_that_is_on),
	    cmocka_unit_test(the_rest_of_the_time_is_like_the_part_that_was_counted),
	    cmocka_unit_test(it_counts_all_again_when_nothing_is_to_be_spared),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
