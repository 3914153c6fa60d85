/* SPDX-License-Identifier: Apache-2.0 */
/* Waits grow, are capped and spread; budgets end; Retry-After in all its forms. */
#include "lib/backoff.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static const struct backoff_options plain = {.initial_ms = 100, .max_ms = 1000, .multiplier = 2.0};

static uint64_t next(struct backoff *b, double random)
{
	uint64_t ms = UINT64_MAX;

	assert_int_equal(backoff_next(b, false, 0, 0, random, &ms), 0);
	return ms;
}

static void test_waits_double_up_to_the_maximum(void **state)
{
	static const uint64_t want[] = {100, 200, 400, 800, 1000, 1000, 1000};
	struct backoff b;
	size_t i;

	backoff_init(&b, &plain);
	for (i = 0; i < ARRAY_SIZE(want); i++)
		assert_int_equal(next(&b, 0.5), want[i]);
	backoff_reset(&b);
	assert_int_equal(next(&b, 0.5), 100);
}

static void test_randomization_spreads_both_ways(void **state)
{
	struct backoff_options o = plain;
	struct backoff b;

	o.randomization = 0.5;
	backoff_init(&b, &o);
	assert_int_equal(next(&b, 0.0), 50);
	assert_int_equal(next(&b, 0.999999), 299);
	assert_int_equal(next(&b, 0.5), 400);
}

static void test_a_thousand_failures_do_not_overflow(void **state)
{
	struct backoff_options o = {
	    .initial_ms = 1, .max_ms = 30000, .multiplier = 1e300, .randomization = 1.0};
	struct backoff b;
	int i;

	backoff_init(&b, &o);
	for (i = 0; i < 1000; i++)
		assert_in_range(next(&b, 0.9999), 0, 60000);
}

static void test_nonsense_options_are_made_sane(void **state)
{
	struct backoff_options o = {.initial_ms = 100,
				    .max_ms = 1000,
				    .multiplier = -3.0,
				    .randomization = __builtin_nan("")};
	struct backoff b;

	backoff_init(&b, &o);
	assert_int_equal(next(&b, 0.5), 100);
	assert_int_equal(next(&b, 0.5), 100);
	o.randomization = 7.0;
	backoff_init(&b, &o);
	assert_in_range(next(&b, 0.0), 0, 200);
}

static void test_the_budget_ends_and_is_left_alone_by_what_does_not_count(void **state)
{
	struct backoff_options o = plain;
	uint64_t ms = 77;
	struct backoff b;
	int i;

	o.max_elapsed_ms = 500;
	backoff_init(&b, &o);
	for (i = 0; i < 50; i++) /* the server is away: no budget is used */
		assert_int_equal(backoff_next(&b, false, 10000, 0, 0.5, &ms), 0);
	backoff_reset(&b);
	assert_int_equal(backoff_next(&b, true, 50, 0, 0.5, &ms), 0); /* 50 + 100 */
	assert_int_equal(ms, 100);
	assert_int_equal(backoff_next(&b, true, 50, 0, 0.5, &ms), 0); /* + 50 + 200 */
	ms = 77;
	assert_int_equal(backoff_next(&b, true, 50, 0, 0.5, &ms), -ETIME);
	assert_int_equal(ms, 77);
}

static void test_the_servers_wish_is_a_floor(void **state)
{
	struct backoff b;
	uint64_t ms;

	backoff_init(&b, &plain);
	assert_int_equal(backoff_next(&b, false, 0, 5000, 0.5, &ms), 0);
	assert_int_equal(ms, 5000);
	assert_int_equal(backoff_next(&b, false, 0, 1, 0.5, &ms), 0);
	assert_int_equal(ms, 200);
}

static void test_retry_after(void **state)
{
	/* 1994-11-06 08:49:37 UTC, the example of RFC 9110 */
	static const int64_t at = 784111777;
	static const struct {
		const char *text;
		int64_t now;
		int result;
		uint64_t ms;
	} rows[] = {
	    {"120", 0, 0, 120000},
	    {"0", 0, 0, 0},
	    {" 7 ", 0, 0, 7000},
	    {"9999999999", 0, 0, 9999999999000},
	    {"Sun, 06 Nov 1994 08:49:37 GMT", at - 90, 0, 90000},
	    {"Sunday, 06-Nov-94 08:49:37 GMT", at - 90, 0, 90000},
	    {"Sun Nov  6 08:49:37 1994", at - 90, 0, 90000},
	    {"Sun, 06 Nov 1994 08:49:37 GMT", at + 1, 0, 0},
	    {"", 0, -EINVAL, 0},
	    {"soon", 0, -EINVAL, 0},
	    {"-1", 0, -EINVAL, 0},
	    {"1.5", 0, -EINVAL, 0},
	    {"12 monkeys", 0, -EINVAL, 0},
	    {"99999999999", 0, -EINVAL, 0},
	    {"Sun, 06 Nov 1994 08:49:37 CET", 0, -EINVAL, 0},
	    {"Sun, 06 Nov 1994 08:49:37 GMT and then", 0, -EINVAL, 0},
	};
	uint64_t ms;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		ms = 42;
		assert_int_equal(retry_after_parse(rows[i].text, rows[i].now, &ms), rows[i].result);
		assert_int_equal(ms, rows[i].result ? 42 : rows[i].ms);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_waits_double_up_to_the_maximum),
	    cmocka_unit_test(test_randomization_spreads_both_ways),
	    cmocka_unit_test(test_a_thousand_failures_do_not_overflow),
	    cmocka_unit_test(test_nonsense_options_are_made_sane),
	    cmocka_unit_test(test_the_budget_ends_and_is_left_alone_by_what_does_not_count),
	    cmocka_unit_test(test_the_servers_wish_is_a_floor),
	    cmocka_unit_test(test_retry_after),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
