/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of the draw, and from samples and ends of waits to the counts of a window. */
#include "agent/window/wait_cause.h"
#include "agent/window/waits.h"
#include "tests/support/test.h"

static struct stack stack;
static struct process process;
static struct window window;
static struct waits *waits;

static int setup(void **state)
{
	window_init(&window);
	window_reset(&window, 1, 0);
	return waits_new(&waits);
}

static int teardown(void **state)
{
	waits = waits_free(waits);
	window_done(&window);
	return 0;
}

static void begin(uint32_t tid, uint64_t began, uint64_t chance)
{
	const struct window_sample s = {
	    .stack = &stack,
	    .process = &process,
	    .tid = tid,
	    .origin = KILN_ORIGIN_OFF_CPU,
	    .comm = "t",
	    .value = chance,
	};

	assert_int_equal(waits_begin(waits, &s, began, &window), 0);
}

static void end(uint32_t tid, uint64_t began, uint64_t ns)
{
	const struct kiln_wait_end e = {.tid = tid, .began = began, .ns = ns};

	assert_int_equal(waits_end(waits, &e, &window), 0);
}

static uint64_t sum(uint32_t tid)
{
	uint64_t ns = 0;

	for (const struct count *c = window.list; c; c = c->next)
		if (c->key.tid == tid)
			ns += c->value;
	return ns;
}

static bool yes(void *arg, uint32_t tid, uint64_t began)
{
	return true;
}

static bool no(void *arg, uint32_t tid, uint64_t began)
{
	return false;
}

static void credit(uint64_t now, bool (*still)(void *, uint32_t, uint64_t))
{
	assert_int_equal(waits_credit(waits, now, &window, still, NULL), 0);
}

static void a_wait_weighs_its_time_by_its_chance(void **state)
{
	assert_int_equal(waits_weigh(1000, KILN_OFF_CPU_CERTAIN), 1000);
	assert_int_equal(waits_weigh(1000, KILN_OFF_CPU_CERTAIN / 2), 2000);
	assert_int_equal(waits_weigh(1000, KILN_OFF_CPU_LEAST), 1024000);
	assert_int_equal(waits_weigh(1000, 0), 0);
	/* A day with the smallest chance: the weight does not overflow. */
	assert_true(waits_weigh(86400000000000ULL, 1) == UINT64_MAX);
}

/* On average the estimate is right for any chances; here they are powers of two. */
static void the_estimate_has_no_bias(void **state)
{
	uint32_t random = 2463534242;
	double truth = 0, estimate = 0;

	for (int i = 0; i < 2000000; i++) {
		uint64_t ns = 1000 + (uint64_t)i % 7 * 5000;
		uint64_t chance = KILN_OFF_CPU_CERTAIN >> (i % 6);

		random ^= random << 13;
		random ^= random >> 17;
		random ^= random << 5;
		truth += (double)ns;
		if (random <= chance - 1)
			estimate += (double)waits_weigh(ns, chance);
	}
	assert_true(estimate > truth * 0.99 && estimate < truth * 1.01);
}

static void a_wait_is_counted_when_it_ends(void **state)
{
	begin(7, 1000, KILN_OFF_CPU_CERTAIN / 4);
	assert_int_equal(sum(7), 0);
	end(7, 1000, 50);
	assert_int_equal(sum(7), 200);
	assert_int_equal(waits_count(waits), 0);
}

static void an_end_that_comes_first_is_kept(void **state)
{
	end(7, 1000, 50);
	begin(7, 1000, KILN_OFF_CPU_CERTAIN);
	assert_int_equal(sum(7), 50);
	/* An end without its beginning is kept for two windows. */
	end(8, 1000, 50);
	credit(2000, no);
	credit(3000, no);
	begin(8, 1000, KILN_OFF_CPU_CERTAIN);
	assert_int_equal(sum(8), 0);
}

/* Each window counts its part of the wait, each ns once; the chance does not multiply it then. */
static void who_never_wakes_is_counted_in_each_window(void **state)
{
	begin(7, 1000, KILN_OFF_CPU_CERTAIN / 8);
	credit(3000, yes);
	assert_int_equal(sum(7), 2000);
	credit(4000, yes);
	assert_int_equal(sum(7), 3000);
	end(7, 1000, 3500);
	assert_int_equal(sum(7), 3500);
}

static void a_lost_end_is_forgotten(void **state)
{
	begin(7, 1000, KILN_OFF_CPU_CERTAIN);
	credit(2000, no);
	assert_int_equal(waits_count(waits), 1);
	credit(3000, no);
	assert_int_equal(waits_count(waits), 0);
	assert_int_equal(sum(7), 0);
	begin(8, 1000, KILN_OFF_CPU_CERTAIN);
	begin(8, 5000, KILN_OFF_CPU_CERTAIN);
	assert_int_equal(waits_count(waits), 1);
	end(8, 5000, 10);
	assert_int_equal(sum(8), 10);
}

static int64_t is_due;
static bool has_ended;
static uint64_t was_told;

static bool due(void *arg, uint32_t tid, uint64_t now, int64_t *ret_ns, bool *ret_ended)
{
	*ret_ns = is_due;
	*ret_ended = has_ended;
	return true;
}

static void told(void *arg, uint32_t tid, uint64_t ns)
{
	was_told = ns;
}

static uint64_t calibrate(uint64_t estimate, int64_t exact)
{
	const struct waits_truth truth = {due, told, NULL};

	window_reset(&window, 2, 0);
	begin(7, 1000, KILN_OFF_CPU_CERTAIN);
	end(7, 1000, estimate);
	is_due = exact;
	waits_calibrate(&window, 9000, &truth);
	assert_int_equal(sum(7), was_told);
	return was_told;
}

static void a_threads_sum_becomes_what_is_due(void **state)
{
	assert_int_equal(calibrate(1000, 900), 900);
	assert_int_equal(calibrate(1000, 1900), 1900);
	/* The correction is a factor of two at most. */
	assert_int_equal(calibrate(1000, 5000), 2000);
	assert_int_equal(calibrate(1000, 10), 500);
	assert_int_equal(calibrate(1000, -100), 500);
}

/* For a thread that goes on, the time that is not reported in one window is reported in the next;
 * a thread that has ended has no next window. */
static void the_sum_of_a_thread_that_has_ended_is_exact(void **state)
{
	has_ended = true;
	assert_int_equal(calibrate(1000, 5000), 5000);
	assert_int_equal(calibrate(1000, 10), 10);
	assert_int_equal(calibrate(1000, -100), 0);
	has_ended = false;
}

static enum window_fate wait_for_metadata(struct count *c, void *arg)
{
	return WINDOW_WAIT;
}

/* Counts that wait for the metadata of their container were calibrated in their own window. */
static void what_was_calibrated_before_stays_as_it_is(void **state)
{
	const struct waits_truth truth = {due, told, NULL};
	struct window next;

	assert_int_equal(calibrate(1000, 1000), 1000);
	window_init(&next);
	window_reset(&next, 3, 0);
	window_sort(&window, &next, wait_for_metadata, NULL);
	window_done(&window);
	window = next;
	begin(7, 9500, KILN_OFF_CPU_CERTAIN);
	end(7, 9500, 400);
	is_due = 300;
	waits_calibrate(&window, 20000, &truth);
	assert_int_equal(sum(7), 1300);
	assert_int_equal(was_told, 300);
}

static void causes_are_told_by_the_first_function_that_knows(void **state)
{
	static const struct {
		const char *function, *cause;
	} rows[] = {
	    {"futex_wait_queue", "lock"},
	    {"do_nanosleep", "sleep"},
	    {"ep_poll", "poll"},
	    {"anon_pipe_read", "pipe"},
	    {"pipe_read", "pipe"},
	    {"io_schedule", "disk"},
	    {"blkdev_direct_IO", "disk"},
	    {"tcp_recvmsg_locked", "network"},
	    {"unix_stream_data_wait", "network"},
	    {"do_wait", "child process"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_string_equal(wait_cause_of_function(rows[i].function), rows[i].cause);
	assert_null(wait_cause_of_function("schedule"));
	assert_null(wait_cause_of_function("do_syscall_64"));
	assert_string_equal(wait_cause_of_detail(KILN_WAIT_RUN_QUEUE), "run queue");
	assert_string_equal(wait_cause_of_detail(KILN_WAIT_IO), "disk");
	assert_null(wait_cause_of_detail(KILN_WAIT_BLOCKED));
	assert_null(wait_cause_of_detail(255));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(a_wait_weighs_its_time_by_its_chance),
	    TEST(the_estimate_has_no_bias),
	    TEST(a_wait_is_counted_when_it_ends),
	    TEST(an_end_that_comes_first_is_kept),
	    TEST(who_never_wakes_is_counted_in_each_window),
	    TEST(a_lost_end_is_forgotten),
	    TEST(a_threads_sum_becomes_what_is_due),
	    TEST(the_sum_of_a_thread_that_has_ended_is_exact),
	    TEST(what_was_calibrated_before_stays_as_it_is),
	    TEST(causes_are_told_by_the_first_function_that_knows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
