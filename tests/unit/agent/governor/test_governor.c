/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The governor with a machine whose cost follows from its rates: ns for each sample of each policy,
 * a fixed part, bursts at the end of windows, and workers that use all that they are allowed.
 */
#include "agent/governor.h"

#include <math.h>

#include "tests/support/test.h"

#define NS     1000000000ULL
#define TICK   (GOVERNOR_TICK_MS * 1000000ULL)
#define BUDGET 10000000ULL /* ns a second: 1 % of one CPU */

struct machine {
	struct governor g;
	struct governor_cost cost;
	uint64_t now_ns, fixed_ns; /* fixed_ns: each second */
	uint64_t sample_ns[8];	   /* cost of a sample, by policy */
	uint64_t burst_ns;	   /* at the end of each window of 5 s */
	uint64_t workers_want_ns;
	double noise; /* relative change of the cost, up or down */
	uint64_t random;
	unsigned int ticks, changes;
	uint64_t spent[4096];
};

static double next_noise(struct machine *m)
{
	m->random = m->random * 6364136223846793005ULL + 1442695040888963407ULL;
	return m->noise * ((double)(m->random >> 11) / (double)(1ULL << 53) * 2 - 1);
}

static uint64_t one_tick(struct machine *m)
{
	double sampling = (double)m->fixed_ns;
	uint64_t before = m->cost.sampling + m->cost.windows + m->cost.workers, workers;

	for (size_t i = 0; i < m->g.n; i++)
		sampling += (double)m->g.policies[i].hz * (double)m->sample_ns[i];
	/* Each step of detail that is given up makes sampling 20 % cheaper. */
	sampling *= 1 - 0.2 * m->g.detail;
	m->cost.sampling += (uint64_t)(sampling * (1 + next_noise(m)) / 4);
	if (++m->ticks % 20 == 0)
		m->cost.windows += m->burst_ns;
	workers = MIN(m->workers_want_ns, m->g.budget ? m->g.workers_ns / 4 : UINT64_MAX);
	m->workers_want_ns -= workers;
	m->cost.workers += workers;
	m->now_ns += TICK;
	m->changes += governor_tick(&m->g, m->now_ns, (int64_t)(m->now_ns / NS), &m->cost);
	before = m->cost.sampling + m->cost.windows + m->cost.workers - before;
	if (m->ticks < ARRAY_SIZE(m->spent))
		m->spent[m->ticks] = before;
	return before;
}

static void run(struct machine *m, double seconds)
{
	for (int i = 0; i < (int)(seconds * 4); i++)
		(void)one_tick(m);
}

static struct machine *machine(const struct governor_policy *policies, size_t n)
{
	static struct machine m;

	m = (struct machine){.now_ns = NS, .random = 1};
	governor_init(&m.g, BUDGET);
	governor_set_policies(&m.g, policies, n, 1);
	(void)governor_tick(&m.g, m.now_ns, 1, &m.cost);
	return &m;
}

/* The highest cost of any 10 s from tick FROM on, as a multiple of the budget. */
static double worst_window(const struct machine *m, unsigned int from)
{
	double worst = 0;

	for (unsigned int i = from; i + 40 <= m->ticks; i++) {
		uint64_t sum = 0;

		for (unsigned int k = 0; k < 40; k++)
			sum += m->spent[i + k];
		worst = MAX(worst, (double)sum / (10.0 * (double)BUDGET));
	}
	return worst;
}

static const struct governor_policy one[] = {{.id = 1, .asked_hz = 997, .born = 1}};
static const struct governor_policy three[] = {
    {.id = 1, .index = 1, .asked_hz = 97, .priority = 50, .born = 1},
    {.id = 2, .index = 2, .asked_hz = 97, .priority = 10, .born = 3},
    {.id = 3, .index = 3, .asked_hz = 97, .priority = 90, .born = 2},
};

static void below_the_budget_nothing_changes(void **state)
{
	struct machine *m = machine(one, 1);

	m->sample_ns[0] = 5000;
	m->noise = 0.3;
	run(m, 120);
	assert_int_equal(m->changes, 0);
	assert_int_equal(m->g.policies[0].hz, 997);
	assert_int_equal(m->g.policies[0].since_s, 0);
	assert_int_equal(m->g.detail, GOVERNOR_DETAIL_ALL);
}

static void without_a_budget_nothing_is_governed(void **state)
{
	struct machine *m = machine(one, 1);

	m->sample_ns[0] = 5000000;
	governor_set_budget(&m->g, 0);
	run(m, 20);
	assert_int_equal(m->g.policies[0].hz, 997);
	assert_int_equal(m->g.workers_ns, 0);
}

static void a_load_is_within_the_budget_after_two_seconds(void **state)
{
	/* From 1.2 times to forty times the budget. */
	for (uint64_t ns = 12000; ns <= 400000; ns *= 2) {
		struct machine *m = machine(one, 1);

		m->sample_ns[0] = ns;
		m->noise = 0.2;
		m->burst_ns = BUDGET / 4;
		m->workers_want_ns = NS;
		run(m, 120);
		assert_true(worst_window(m, 8) <= 1.1);
		/*
		 * Half of the budget is used at least: the governor does not give up more than it
		 * must.
		 */
		assert_true(worst_window(m, 200) >= 0.5);
		assert_int_not_equal(m->g.policies[0].since_s, 0);
	}
}

static void a_load_that_comes_later_is_cut_at_once(void **state)
{
	struct machine *m = machine(one, 1);

	m->sample_ns[0] = 6000;
	run(m, 60);
	assert_int_equal(m->g.policies[0].hz, 997);
	m->sample_ns[0] = 240000; /* 24 times the budget */
	run(m, 60);
	assert_true(worst_window(m, 8) <= 1.2);
}

static void the_lowest_priority_gives_up_first(void **state)
{
	struct machine *m = machine(three, 3);

	/* Twice the budget: policy 2, of the lowest priority, cannot give up enough alone. */
	m->sample_ns[0] = m->sample_ns[1] = m->sample_ns[2] = 2 * BUDGET / 3 / 97;
	for (int i = 0; i < 400; i++) {
		(void)one_tick(m);
		if (m->g.policies[0].hz < 97)
			assert_int_equal(m->g.policies[1].hz, GOVERNOR_HZ_MIN);
		if (m->g.policies[2].hz < 97)
			assert_int_equal(m->g.policies[0].hz, GOVERNOR_HZ_MIN);
	}
	assert_int_equal(m->g.policies[1].hz, GOVERNOR_HZ_MIN);
	assert_in_range(m->g.policies[0].hz, 1, 60);
	assert_int_equal(m->g.policies[2].hz, 97);
	assert_int_equal(m->g.detail, GOVERNOR_DETAIL_ALL);
}

static void detail_follows_rates_and_policies_follow_detail(void **state)
{
	struct machine *m = machine(three, 3);
	bool seen[GOVERNOR_DETAIL_COUNT] = {};

	m->fixed_ns = 2 * BUDGET; /* not governed: no measure helps */
	for (int i = 0; i < 200; i++) {
		(void)one_tick(m);
		seen[m->g.detail] = true;
		for (size_t k = 0; k < 3; k++) {
			if (m->g.detail)
				assert_true(m->g.policies[k].hz <= GOVERNOR_HZ_MIN);
			if (!m->g.policies[k].hz)
				assert_int_equal(m->g.detail, GOVERNOR_DETAIL_SHORT);
		}
		/*
		 * Policies stop in the order from the newest to the oldest; the oldest never stops.
		 */
		if (!m->g.policies[2].hz)
			assert_int_equal(m->g.policies[1].hz, 0);
		assert_int_not_equal(m->g.policies[0].hz, 0);
	}
	assert_int_equal(m->g.policies[2].hz, 0);
	assert_true(seen[GOVERNOR_DETAIL_SHORT]);
	assert_true(m->g.exhausted);
}

static void what_was_given_up_comes_back(void **state)
{
	struct machine *m = machine(three, 3);

	m->fixed_ns = 2 * BUDGET;
	run(m, 60);
	m->fixed_ns = 0;
	m->sample_ns[0] = m->sample_ns[1] = m->sample_ns[2] = 1000;
	run(m, 180);
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(m->g.policies[i].hz, 97);
		assert_int_equal(m->g.policies[i].since_s, 0);
	}
	assert_int_equal(m->g.detail, GOVERNOR_DETAIL_ALL);
	assert_false(m->g.exhausted);
}

static void a_steady_load_brings_no_oscillation(void **state)
{
	/* Between the marks, and just beyond where one step back would be too much. */
	for (uint64_t ns = 13000; ns < 60000; ns += 3000) {
		struct machine *m = machine(one, 1);
		unsigned int settled, lowest = 1000, highest = 0;

		m->sample_ns[0] = ns;
		m->noise = 0.1;
		run(m, 60);
		settled = m->changes;
		for (int i = 0; i < 1200; i++) {
			(void)one_tick(m);
			lowest = MIN(lowest, m->g.policies[0].hz);
			highest = MAX(highest, m->g.policies[0].hz);
		}
		/* changes within 300 s */
		assert_true(m->changes - settled <= 16);
		assert_true(highest <= 2 * lowest);
	}
}

static void a_load_that_comes_and_goes_is_followed_less_and_less(void **state)
{
	struct machine *m = machine(one, 1);
	unsigned int first, later;

	for (int i = 0; i < 1200; i++) {
		/*
		 * In turns of 3 s: a light load, then one that is too heavy for the rates that were
		 * raised.
		 */
		m->sample_ns[0] = m->ticks / 12 % 2 ? 8000 : 60000;
		(void)one_tick(m);
		if (i == 240)
			first = m->changes;
	}
	later = m->changes - first;
	assert_true(later / 4 < first);
	assert_true(worst_window(m, 8) <= 1.2);
}

static void bursts_at_the_end_of_windows_are_no_alarm(void **state)
{
	struct machine *m = machine(one, 1);

	m->sample_ns[0] = 3000;
	m->burst_ns = BUDGET * 2; /* 40 % of the budget, in a quarter of a second */
	run(m, 120);
	assert_int_equal(m->changes, 0);
}

static void workers_get_what_sampling_leaves(void **state)
{
	struct machine *m = machine(one, 1);

	m->sample_ns[0] = 2000; /* 20 % */
	m->workers_want_ns = 100 * NS;
	run(m, 30);
	assert_in_range(m->g.workers_ns, BUDGET / 2, BUDGET * 7 / 10);
	assert_int_equal(m->g.policies[0].hz, 997);
	assert_true(worst_window(m, 8) <= 1.0);
	m->sample_ns[0] = 100000;
	run(m, 60);
	assert_true(m->g.workers_ns >= BUDGET / 5);
	assert_true(worst_window(m, 8) <= 1.2);
}

static void since_when_survives_a_new_list_of_policies(void **state)
{
	struct machine *m = machine(three, 3);
	int64_t since;

	m->sample_ns[0] = m->sample_ns[1] = m->sample_ns[2] = 2 * BUDGET / 3 / 97;
	run(m, 30);
	since = m->g.policies[1].since_s;
	assert_int_not_equal(since, 0);
	governor_set_policies(&m->g, three, 2, 1000);
	assert_int_equal(m->g.policies[1].since_s, since);
	assert_true(m->g.policies[1].hz < 97);
}

static void a_larger_budget_gives_all_back(void **state)
{
	struct machine *m = machine(one, 1);

	m->sample_ns[0] = 40000;
	run(m, 30);
	assert_true(m->g.policies[0].hz < 997);
	governor_set_budget(&m->g, 100 * BUDGET);
	assert_int_equal(m->g.policies[0].hz, 997);
	governor_set_budget(&m->g, BUDGET);
	run(m, 30);
	assert_true(m->g.policies[0].hz < 997);
	governor_set_budget(&m->g, 0);
	assert_int_equal(m->g.policies[0].hz, 997);
	assert_int_equal(m->g.policies[0].since_s, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(below_the_budget_nothing_changes),
	    cmocka_unit_test(without_a_budget_nothing_is_governed),
	    cmocka_unit_test(a_load_is_within_the_budget_after_two_seconds),
	    cmocka_unit_test(a_load_that_comes_later_is_cut_at_once),
	    cmocka_unit_test(the_lowest_priority_gives_up_first),
	    cmocka_unit_test(detail_follows_rates_and_policies_follow_detail),
	    cmocka_unit_test(what_was_given_up_comes_back),
	    cmocka_unit_test(a_steady_load_brings_no_oscillation),
	    cmocka_unit_test(a_load_that_comes_and_goes_is_followed_less_and_less),
	    cmocka_unit_test(bursts_at_the_end_of_windows_are_no_alarm),
	    cmocka_unit_test(workers_get_what_sampling_leaves),
	    cmocka_unit_test(since_when_survives_a_new_list_of_policies),
	    cmocka_unit_test(a_larger_budget_gives_all_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
