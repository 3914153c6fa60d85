/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/window/wall_clock.h"
#include "tests/support/test.h"

static struct {
	uint64_t monotonic, distance, step; /* step: how far the clocks advance at each reading */
	int interrupted;		    /* readings that take a second */
} machine;

static uint64_t now_ns(clockid_t clock)
{
	uint64_t now = machine.monotonic;

	machine.monotonic += machine.step;
	if (machine.interrupted && clock == CLOCK_REALTIME) {
		machine.interrupted--;
		machine.monotonic += 1000000000;
	}
	return clock == CLOCK_REALTIME ? now + machine.distance : now;
}

static void times_follow_a_clock_that_is_set(void **state)
{
	struct wall_clock c = {.now_ns = now_ns};

	machine.monotonic = 5000;
	machine.distance = 1760000000ULL * 1000000000;
	wall_clock_read(&c);
	assert_int_equal(wall_clock_unix_ns(&c, 7000), machine.distance + 7000);
	/* The wall clock is set back by an hour; then the machine is suspended for a day. */
	machine.distance -= 3600ULL * 1000000000;
	wall_clock_read(&c);
	assert_int_equal(wall_clock_unix_ns(&c, 7000), machine.distance + 7000);
	machine.distance += 86400ULL * 1000000000;
	wall_clock_read(&c);
	assert_int_equal(wall_clock_unix_ns(&c, 7000), machine.distance + 7000);
}

static void an_interruption_between_the_two_readings_does_no_harm(void **state)
{
	struct wall_clock c = {.now_ns = now_ns};

	machine.step = 100;
	machine.interrupted = 2;
	wall_clock_read(&c);
	assert_in_range(wall_clock_unix_ns(&c, 0), machine.distance - 100, machine.distance + 100);
	machine.step = 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(times_follow_a_clock_that_is_set),
	    cmocka_unit_test(an_interruption_between_the_two_readings_does_no_harm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
