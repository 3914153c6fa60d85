/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A key is queued once, has one worker, and runs again if added meanwhile; delays, bucket,
 * priority.
 */
#include "operator/work/queue_core.h"

#include "tests/support/failalloc.h"
#include "tests/support/test.h"

#define MS 1000000ULL
#define S  (1000 * MS)

static struct work_core *make(unsigned int workers, size_t max_keys)
{
	const struct work_core_options options = {.workers = workers, .max_keys = max_keys};
	struct work_core *c = NULL;

	assert_int_equal(work_core_new(&options, &c), 0);
	return c;
}

static struct work_queue_stats stats_at(const struct work_core *c, uint64_t now)
{
	struct work_queue_stats stats;

	work_core_read_stats(c, now, &stats);
	return stats;
}

static void expect_take(struct work_core *c, uint64_t now, const char *want)
{
	const char *key = work_core_take(c, now);

	if (!want) {
		assert_null(key);
		return;
	}
	assert_non_null(key);
	assert_string_equal(key, want);
}

static void test_a_key_stands_in_the_queue_once_and_in_order(void **state)
{
	_cleanup_(work_core_freep) struct work_core *c = make(10, 100);

	assert_int_equal(work_core_next_ns(c, 0), WORK_NEVER);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(work_core_add(c, "a", false, 0), 0);
		assert_int_equal(work_core_add(c, "b", false, 0), 0);
	}
	assert_int_equal(stats_at(c, 0).depth, 2);
	assert_int_equal(stats_at(c, 0).adds, 2);
	assert_int_equal(work_core_next_ns(c, 5), 5);
	expect_take(c, 0, "a");
	expect_take(c, 0, "b");
	expect_take(c, 0, NULL);
	assert_int_equal(work_core_done(c, "a", 0, 0), 0);
	assert_int_equal(work_core_done(c, "b", 0, 0), 0);
	assert_int_equal(work_core_done(c, "b", 0, 0), -ENOENT);
	expect_take(c, 1000 * S, NULL);
	assert_int_equal(work_core_next_ns(c, 0), WORK_NEVER);
}

static void test_a_key_added_while_at_work_runs_once_more_and_never_twice_at_a_time(void **state)
{
	_cleanup_(work_core_freep) struct work_core *c = make(10, 100);

	assert_int_equal(work_core_add(c, "a", false, 0), 0);
	expect_take(c, 0, "a");
	for (int i = 0; i < 5; i++)
		assert_int_equal(work_core_add(c, "a", i % 2, 0), 0);
	expect_take(c, 0, NULL);
	assert_int_equal(stats_at(c, 0).depth, 0);
	assert_int_equal(stats_at(c, 0).adds, 2);
	assert_int_equal(work_core_done(c, "a", 0, 0), 0);
	expect_take(c, 0, "a");
	assert_int_equal(work_core_done(c, "a", 0, 0), 0);
	expect_take(c, 0, NULL);
}

static void test_no_more_than_the_workers_are_busy(void **state)
{
	_cleanup_(work_core_freep) struct work_core *c = make(2, 100);

	assert_int_equal(work_core_add(c, "a", false, 0), 0);
	assert_int_equal(work_core_add(c, "b", false, 0), 0);
	assert_int_equal(work_core_add(c, "c", false, 0), 0);
	expect_take(c, 0, "a");
	expect_take(c, 0, "b");
	expect_take(c, 0, NULL);
	assert_int_equal(work_core_next_ns(c, 0), WORK_NEVER);
	assert_int_equal(work_core_done(c, "b", 0, 0), 0);
	assert_int_equal(work_core_next_ns(c, 0), 0);
	expect_take(c, 0, "c");
}

static void test_failures_wait_5_ms_doubling_up_to_1000_s(void **state)
{
	_cleanup_(work_core_freep) struct work_core *c = make(1, 10);
	uint64_t now = 0, want = 5 * MS;

	assert_int_equal(work_core_add(c, "a", false, now), 0);
	for (int i = 0; i < 40; i++) {
		expect_take(c, now, "a");
		assert_int_equal(work_core_done(c, "a", -EIO, now), 0);
		expect_take(c, now + want - 1, NULL);
		assert_int_equal(work_core_next_ns(c, now), now + want);
		now += want;
		want = MIN(want * 2, 1000 * S);
	}
	assert_int_equal(stats_at(c, now).retries, 40);
	/* Success forgets them. */
	expect_take(c, now, "a");
	assert_int_equal(work_core_done(c, "a", 0, now), 0);
	assert_int_equal(work_core_add(c, "a", false, now), 0);
	expect_take(c, now, "a");
	assert_int_equal(work_core_done(c, "a", -EIO, now), 0);
	assert_int_equal(work_core_next_ns(c, now), now + 5 * MS);
}

static void test_each_key_has_failures_of_its_own(void **state)
{
	_cleanup_(work_core_freep) struct work_core *c = make(1, 10);
	uint64_t now = 0;

	assert_int_equal(work_core_add(c, "a", false, now), 0);
	for (int i = 0; i < 10; i++) {
		expect_take(c, now, "a");
		assert_int_equal(work_core_done(c, "a", -EIO, now), 0);
		now = work_core_next_ns(c, now);
	}
	expect_take(c, now, "a");
	assert_int_equal(work_core_done(c, "a", -EIO, now), 0);
	assert_int_equal(work_core_add(c, "b", false, now), 0);
	expect_take(c, now, "b");
	assert_int_equal(work_core_done(c, "b", -EIO, now), 0);
	assert_int_equal(work_core_next_ns(c, now), now + 5 * MS);
}

/* 100 at once, then one more each tenth of a second. */
static void test_all_retries_share_a_bucket(void **state)
{
	_cleanup_(work_core_freep) struct work_core *c = make(1000, 1000);
	char key[16];

	for (int i = 0; i < 110; i++) {
		snprintf(key, sizeof(key), "k%03d", i);
		assert_int_equal(work_core_add(c, key, false, 0), 0);
		expect_take(c, 0, key);
	}
	for (int i = 0; i < 110; i++) {
		snprintf(key, sizeof(key), "k%03d", i);
		assert_int_equal(work_core_done(c, key, -EIO, 0), 0);
	}
	for (int i = 0; i < 100; i++) {
		snprintf(key, sizeof(key), "k%03d", i);
		expect_take(c, 5 * MS, key);
	}
	expect_take(c, 100 * MS - 1, NULL);
	for (int i = 100; i < 110; i++) {
		snprintf(key, sizeof(key), "k%03d", i);
		expect_take(c, (uint64_t)(i - 99) * 100 * MS - 1000, NULL);
		expect_take(c, (uint64_t)(i - 99) * 100 * MS + 1000, key);
	}
}

static void test_the_first_list_lets_changes_go_first(void **state)
{
	_cleanup_(work_core_freep) struct work_core *c = make(10, 100);

	assert_int_equal(work_core_add(c, "l1", true, 0), 0);
	assert_int_equal(work_core_add(c, "l2", true, 0), 0);
	assert_int_equal(work_core_add(c, "l3", true, 0), 0);
	assert_int_equal(work_core_add(c, "h", false, 0), 0);
	assert_int_equal(work_core_add(c, "l2", false, 0), 0); /* raised */
	assert_int_equal(work_core_add(c, "h", true, 0), 0);   /* and never lowered */
	assert_int_equal(stats_at(c, 0).depth, 4);
	expect_take(c, 0, "h");
	expect_take(c, 0, "l2");
	expect_take(c, 0, "l1");
	assert_int_equal(work_core_done(c, "l1", -EIO, 0), 0);
	assert_int_equal(work_core_add(c, "h2", false, 5 * MS), 0);
	expect_take(c, 5 * MS, "h2");
	expect_take(c, 5 * MS, "l3");
	expect_take(c, 5 * MS, "l1"); /* its retry is as low as it was */
}

static void test_delays_end_in_order_and_the_shorter_one_holds(void **state)
{
	_cleanup_(work_core_freep) struct work_core *c = make(10, 1000);
	char key[16];

	/* 97 is prime to 500: a different order than that of time */
	for (unsigned int i = 0; i < 500; i++) {
		unsigned int at = i * 97 % 500;

		snprintf(key, sizeof(key), "k%03u", at);
		assert_int_equal(work_core_add_after(c, key, (at + 1) * S, 0), 0);
		assert_int_equal(work_core_add_after(c, key, 9000 * S, 0), 0);
	}
	assert_int_equal(stats_at(c, 0).waiting, 500);
	for (unsigned int i = 0; i < 500; i++) {
		snprintf(key, sizeof(key), "k%03u", i);
		assert_int_equal(work_core_next_ns(c, 0), (i + 1) * S);
		expect_take(c, (i + 1) * S - 1, NULL);
		expect_take(c, (i + 1) * S, key);
		assert_int_equal(work_core_done(c, key, 0, (i + 1) * S), 0);
	}
	expect_take(c, 20000 * S, NULL);
}

static void test_a_shorter_delay_replaces_a_longer_one(void **state)
{
	_cleanup_(work_core_freep) struct work_core *c = make(10, 10);

	assert_int_equal(work_core_add_after(c, "a", 100 * S, 0), 0);
	assert_int_equal(work_core_add_after(c, "b", 50 * S, 0), 0);
	assert_int_equal(work_core_add_after(c, "a", 10 * S, 0), 0);
	assert_int_equal(work_core_next_ns(c, 0), 10 * S);
	expect_take(c, 10 * S, "a");
	expect_take(c, 10 * S, NULL);
	expect_take(c, 50 * S, "b");
	expect_take(c, 1000 * S, NULL);
}

static void test_a_delay_asked_for_during_work_outlives_it(void **state)
{
	_cleanup_(work_core_freep) struct work_core *c = make(10, 10);

	assert_int_equal(work_core_add(c, "a", false, 0), 0);
	expect_take(c, 0, "a");
	assert_int_equal(work_core_add_after(c, "a", 7 * S, 0), 0);
	assert_int_equal(work_core_done(c, "a", 0, 0), 0);
	expect_take(c, 7 * S - 1, NULL);
	expect_take(c, 7 * S, "a");
	/* One that ends during work makes it run again. */
	assert_int_equal(work_core_add_after(c, "a", S, 7 * S), 0);
	expect_take(c, 9 * S, NULL);
	assert_int_equal(work_core_done(c, "a", 0, 9 * S), 0);
	expect_take(c, 9 * S, "a");
	assert_int_equal(work_core_add_after(c, "x", UINT64_MAX, 9 * S), 0);
	assert_int_equal(work_core_done(c, "a", 0, 9 * S), 0);
	assert_int_equal(work_core_next_ns(c, 9 * S), WORK_NEVER - 1);
}

static void test_nothing_starts_while_paused_and_nothing_is_lost(void **state)
{
	_cleanup_(work_core_freep) struct work_core *c = make(10, 10);

	work_core_pause(c, true);
	assert_int_equal(work_core_add(c, "a", false, 0), 0);
	assert_int_equal(work_core_add_after(c, "b", S, 0), 0);
	expect_take(c, 2 * S, NULL);
	assert_int_equal(work_core_next_ns(c, 2 * S), WORK_NEVER);
	work_core_pause(c, false);
	assert_int_equal(work_core_next_ns(c, 2 * S), 2 * S);
	expect_take(c, 2 * S, "a");
	expect_take(c, 2 * S, "b");
}

static void test_the_cap_drops_new_keys_and_counts_them(void **state)
{
	_cleanup_(work_core_freep) struct work_core *c = make(1, 2);
	char name[WORK_KEY_MAX + 1];

	assert_int_equal(work_core_add(c, "a", false, 0), 0);
	assert_int_equal(work_core_add_after(c, "b", S, 0), 0);
	assert_int_equal(work_core_add(c, "c", false, 0), -ENOBUFS);
	assert_int_equal(work_core_add_after(c, "c", S, 0), -ENOBUFS);
	assert_int_equal(work_core_add(c, "a", false, 0), 0);
	expect_take(c, 0, "a");
	assert_int_equal(work_core_done(c, "a", 0, 0), 0);
	memset(name, 'n', sizeof(name));
	name[WORK_KEY_MAX] = '\0';
	assert_int_equal(work_core_add(c, name, false, 0), -ENAMETOOLONG);
	name[WORK_KEY_MAX - 1] = '\0';
	assert_int_equal(work_core_add(c, name, false, 0), 0);
	assert_int_equal(stats_at(c, 0).dropped, 3);
}

static void test_times_are_told_as_the_metrics_want_them(void **state)
{
	_cleanup_(work_core_freep) struct work_core *c = make(10, 10);
	struct work_queue_stats stats;

	assert_int_equal(work_core_add(c, "a", false, 0), 0);
	assert_int_equal(work_core_add(c, "b", false, 0), 0);
	expect_take(c, 2 * S, "a");
	expect_take(c, 5 * S, "b");
	stats = stats_at(c, 6 * S);
	assert_int_equal(stats.at_work, 2);
	assert_true(stats.unfinished_s > 4.99 && stats.unfinished_s < 5.01);
	assert_true(stats.longest_running_s > 3.99 && stats.longest_running_s < 4.01);
	assert_true(stats.queue_duration.sum_s > 6.99 && stats.queue_duration.sum_s < 7.01);
	assert_int_equal(stats.queue_duration.counts[9], 2); /* (1 s, 10 s] */
	assert_int_equal(work_core_done(c, "a", 0, 2 * S + 10), 0);
	assert_int_equal(work_core_done(c, "b", 0, 5000 * S), 0);
	stats = stats_at(c, 5000 * S);
	assert_int_equal(stats.work_duration.counts[0], 1);
	assert_int_equal(stats.work_duration.counts[WORK_BUCKETS], 1);
	assert_int_equal(stats.at_work, 0);
	assert_true(stats.unfinished_s == 0 && stats.longest_running_s == 0);
}

static double almost_one(void)
{
	return 0.999999;
}

static void test_jitter_only_lengthens_and_by_a_tenth(void **state)
{
	const struct work_core_options options = {
	    .workers = 1, .max_keys = 1, .random = almost_one};
	_cleanup_(work_core_freep) struct work_core *c = NULL;

	assert_int_equal(work_core_new(&options, &c), 0);
	assert_int_equal(work_core_add(c, "a", false, 0), 0);
	expect_take(c, 0, "a");
	assert_int_equal(work_core_done(c, "a", -EIO, 0), 0);
	assert_in_range(work_core_next_ns(c, 0), 5 * MS + MS / 4, 5 * MS + MS / 2);
}

/* Random calls against a naive model. */
enum { MODEL_KEYS = 12 };
struct model {
	bool ready, at_work, again;
	uint64_t wakes; /* 0: does not wait */
};

static void model_add(struct model *m)
{
	if (m->at_work)
		m->again = true;
	else
		m->ready = true;
}

static void test_random_calls_agree_with_a_model(void **state)
{
	_cleanup_(work_core_freep) struct work_core *c = make(3, MODEL_KEYS);
	struct model models[MODEL_KEYS] = {0};
	unsigned int seed = 7, busy = 0, taken = 0;
	uint64_t now = 1;

	for (int step = 0; step < 200000; step++) {
		unsigned int k = (unsigned int)rand_r(&seed) % MODEL_KEYS;
		const char name[2] = {(char)('a' + k), '\0'};
		struct model *m = &models[k];
		uint64_t delay;
		const char *got;

		switch (rand_r(&seed) % 6) {
		case 0:
			assert_int_equal(work_core_add(c, name, rand_r(&seed) % 2, now), 0);
			model_add(m);
			break;
		case 1:
			delay = 1 + (uint64_t)rand_r(&seed) % 50;
			assert_int_equal(work_core_add_after(c, name, delay, now), 0);
			if (!m->wakes || now + delay < m->wakes)
				m->wakes = now + delay;
			break;
		case 2:
			if (!m->at_work)
				break;
			assert_int_equal(work_core_done(c, name, 0, now), 0);
			busy--;
			m->at_work = false;
			m->ready = m->again;
			m->again = false;
			break;
		case 3:
			now += (uint64_t)rand_r(&seed) % 10;
			break;
		default:
			got = work_core_take(c, now);
			for (int i = 0; i < MODEL_KEYS; i++) {
				if (models[i].wakes && models[i].wakes <= now) {
					models[i].wakes = 0;
					model_add(&models[i]);
				}
			}
			if (!got) {
				for (int i = 0; i < MODEL_KEYS && busy < 3; i++)
					assert_false(models[i].ready);
				break;
			}
			m = &models[got[0] - 'a'];
			assert_true(m->ready);
			assert_false(m->at_work);
			m->ready = false;
			m->at_work = true;
			busy++;
			taken++;
			assert_true(busy <= 3);
		}
	}
	assert_true(taken > 5000);
}

static void test_every_failed_allocation_is_survived(void **state)
{
	const struct work_core_options options = {.workers = 40, .max_keys = 100};
	char key[16];
	bool failed = true;

	for (long n = 0; failed; n++) {
		_cleanup_(work_core_freep) struct work_core *c = NULL;
		int r, taken = 0, added = 0;

		failalloc_at(n);
		r = work_core_new(&options, &c);
		for (int i = 0; r == 0 && i < 40; i++) {
			snprintf(key, sizeof(key), "k%d", i);
			if (work_core_add(c, key, false, 0) == 0)
				added++;
		}
		for (int i = 0; r == 0 && i < 40; i++) {
			const char *got = work_core_take(c, 0);

			if (got)
				assert_int_equal(work_core_done(c, got, i % 2 ? -EIO : 0, 0), 0);
		}
		failed = failalloc_stop();
		if (r < 0) {
			assert_int_equal(r, -ENOMEM);
			assert_null(c);
			continue;
		}
		/* A key that was taken and failed is queued again, with or without memory. */
		while (work_core_take(c, 100 * S))
			taken++;
		assert_int_equal(stats_at(c, 0).dropped, 40 - added);
		if (added == 40)
			assert_int_equal(taken, 20);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_a_key_stands_in_the_queue_once_and_in_order),
	    cmocka_unit_test(
		test_a_key_added_while_at_work_runs_once_more_and_never_twice_at_a_time),
	    cmocka_unit_test(test_no_more_than_the_workers_are_busy),
	    cmocka_unit_test(test_failures_wait_5_ms_doubling_up_to_1000_s),
	    cmocka_unit_test(test_each_key_has_failures_of_its_own),
	    cmocka_unit_test(test_all_retries_share_a_bucket),
	    cmocka_unit_test(test_the_first_list_lets_changes_go_first),
	    cmocka_unit_test(test_delays_end_in_order_and_the_shorter_one_holds),
	    cmocka_unit_test(test_a_shorter_delay_replaces_a_longer_one),
	    cmocka_unit_test(test_a_delay_asked_for_during_work_outlives_it),
	    cmocka_unit_test(test_nothing_starts_while_paused_and_nothing_is_lost),
	    cmocka_unit_test(test_the_cap_drops_new_keys_and_counts_them),
	    cmocka_unit_test(test_times_are_told_as_the_metrics_want_them),
	    cmocka_unit_test(test_jitter_only_lengthens_and_by_a_tenth),
	    cmocka_unit_test(test_random_calls_agree_with_a_model),
	    cmocka_unit_test(test_every_failed_allocation_is_survived),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
