/* SPDX-License-Identifier: Apache-2.0 */
/* Threads wait for CPU time that they have used under a limit, and for no other. */
#include "lib/pace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <time.h>
#include <cmocka.h>

#define LIMIT 100000000 /* a tenth of a CPU */

static void use_cpu(uint64_t ns)
{
	struct timespec t;
	uint64_t begun, now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	begun = now = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
	while (now - begun < ns) {
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
		now = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
	}
}

static uint64_t waited_for(void (*work)(uint64_t ns), uint64_t ns)
{
	uint64_t before = pace_waited_ns();

	work(ns);
	pace_wait();
	return pace_waited_ns() - before;
}

static void test_use_under_a_limit_is_waited_for(void **state)
{
	(void)state;
	pace_set_limit(LIMIT);
	pace_wait();
	/* A tenth of a CPU gives 40 ms in 400 ms, less the time that has passed meanwhile. */
	assert_in_range(waited_for(use_cpu, 40000000), 100000000, 4000000000);
	pace_set_limit(0);
}

static void test_use_without_a_limit_is_free(void **state)
{
	(void)state;
	assert_int_equal(waited_for(use_cpu, 20000000), 0);
	pace_set_limit(LIMIT);
	assert_int_equal(waited_for(use_cpu, 20000000), 0);
	pace_set_limit(0);
	/* Also by a thread that has paid under an earlier limit. */
	use_cpu(50000000);
	pace_set_limit(LIMIT);
	assert_int_equal(waited_for(use_cpu, 0), 0);
	pace_set_limit(0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_use_under_a_limit_is_waited_for),
	    cmocka_unit_test(test_use_without_a_limit_is_free),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
