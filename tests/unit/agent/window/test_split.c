/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/window/split.h"
#include "tests/support/test.h"

enum { BITS = 20, COUNTS = 3000, ROUNDS = 300 };

static struct stack stack;
static struct process process;

static void add(struct window *w, uint32_t tid, uint64_t route, int64_t value)
{
	for (int64_t i = 0; i < value; i++)
		assert_int_equal(window_add(w, &(struct window_sample){.stack = &stack,
								       .process = &process,
								       .tid = tid,
								       .comm = "x",
								       .value = 5}),
				 0);
	for (struct count *c = w->list; c; c = c->next)
		if (c->key.tid == tid)
			c->route = route;
}

static void init(struct window *w, uint64_t default_route)
{
	window_init(w);
	window_reset(w, 1, 0);
	w->default_route = default_route;
}

/* What RECEIVER (a bit) gets of W; every part that names it must be the only one. */
static int64_t received(const struct window *w, const struct split *s, uint64_t receiver)
{
	int64_t sum = 0;
	size_t parts = 0;

	for (size_t i = 0; i < s->n; i++) {
		uint64_t whose = split_whose(s, i);

		if (!(s->parts[i] & receiver))
			continue;
		parts++;
		for (const struct count *c = w->list; c; c = c->next)
			if (!whose || (window_route(w, c) & whose))
				sum += c->samples;
	}
	assert_true(parts <= 1);
	return sum;
}

static void one_route_is_the_window_as_it_was(void **state)
{
	struct split s;
	struct window w;

	init(&w, 7);
	window_split(&w, &s);
	assert_int_equal(s.n, 1); /* an empty window goes out too */
	assert_int_equal(s.parts[0], 7);
	assert_true(s.whole);
	add(&w, 1, 0, 3);
	add(&w, 2, 7 | ROUTE_NOWHERE, 2);
	window_split(&w, &s);
	assert_int_equal(s.n, 1);
	assert_true(s.whole);
	assert_int_equal(split_whose(&s, 0), 0); /* nothing is compared, nothing made twice */
	window_done(&w);
}

static void without_exporters_of_its_own_what_is_not_routed_goes_nowhere(void **state)
{
	struct split s;
	struct window w;

	init(&w, 0);
	add(&w, 1, 0, 5);
	add(&w, 2, ROUTE_NOWHERE | 8, 2);
	window_split(&w, &s);
	assert_int_equal(s.n, 1);
	assert_int_equal(received(&w, &s, 8), 2);
	window_done(&w);
}

static void who_gets_the_same_shares_a_part(void **state)
{
	struct split s;
	struct window w;

	init(&w, 1);
	add(&w, 1, 0, 1);
	add(&w, 2, 2 | 4 | ROUTE_NOWHERE, 10);
	add(&w, 3, 2 | 4 | 8 | ROUTE_NOWHERE, 100);
	window_split(&w, &s);
	assert_int_equal(s.n, 3);
	assert_int_equal(received(&w, &s, 1), 1);
	assert_int_equal(received(&w, &s, 2), 110);
	assert_int_equal(received(&w, &s, 4), 110);
	assert_int_equal(received(&w, &s, 8), 100);
	window_done(&w);
}

static uint64_t next(uint64_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 7;
	return *x ^= *x << 17;
}

/* Whatever the routes: each receiver gets exactly the counts whose route has it, in one part. */
static void everybody_gets_his_own_once(void **state)
{
	uint64_t x = 88172645463325252ULL;

	for (int round = 0; round < ROUNDS; round++) {
		uint64_t kinds = 1 + next(&x) % 12, routes[12];
		int64_t want[BITS] = {0}, single = 0, sum = 0;
		bool singles = round % 2;
		struct split s;
		struct window w;

		init(&w, 1 + next(&x) % 15);
		for (size_t i = 0; i < kinds; i++)
			routes[i] = ROUTE_NOWHERE |
				    (singles ? 1ULL << next(&x) % BITS : next(&x) % (1 << BITS));
		for (uint32_t i = 0; i < COUNTS / 100; i++) {
			uint64_t route = singles || next(&x) % 4 ? routes[next(&x) % kinds] : 0;
			int64_t value = 1 + (int64_t)(next(&x) % 3);

			add(&w, i, route, value);
			single += value;
			route = route ? route : w.default_route;
			for (int b = 0; b < BITS; b++)
				want[b] += route >> b & 1 ? value : 0;
		}
		window_split(&w, &s);
		assert_true(s.n <= SPLIT_PARTS_MAX);
		for (int b = 0; b < BITS; b++) {
			assert_int_equal(received(&w, &s, 1ULL << b), want[b]);
			sum += want[b];
		}
		if (singles) /* one destination a policy: nothing lost, nothing doubled */
			assert_int_equal(sum, single);
		window_done(&w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(one_route_is_the_window_as_it_was),
	    cmocka_unit_test(without_exporters_of_its_own_what_is_not_routed_goes_nowhere),
	    cmocka_unit_test(who_gets_the_same_shares_a_part),
	    cmocka_unit_test(everybody_gets_his_own_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
