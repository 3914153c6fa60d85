/* SPDX-License-Identifier: Apache-2.0 */
/* When the list of threads that wait without a sample is worth reading, and what it then has. */
#include <pthread.h>

#include "agent/sampler/off_cpu.h"
#include "tests/bpf/watch.h"
#include "tests/support/test.h"

enum {
	THREADS = 16,
	RATE = 1,   /* walks per second of waiting */
	NAPS = 300, /* of 1 ms, so that a wait is usually short */
	TRIES = 20,
};

static struct {
	struct profiled *p;
	pthread_t threads[THREADS];
	uint32_t tids[THREADS];
	pthread_mutex_t end;
} t;

/* Short waits, so that few of them are walked, and then one that lasts until the test ends. */
static void *wait_without_a_sample(void *arg)
{
	*(uint32_t *)arg = (uint32_t)gettid();
	for (int i = 0; i < NAPS; i++)
		usleep(1000);
	pthread_mutex_lock(&t.end);
	pthread_mutex_unlock(&t.end);
	return NULL;
}

static void start_threads(void)
{
	pthread_mutex_lock(&t.end);
	for (size_t i = 0; i < THREADS; i++)
		assert_int_equal(
		    pthread_create(&t.threads[i], NULL, wait_without_a_sample, &t.tids[i]), 0);
}

static void end_threads(void)
{
	pthread_mutex_unlock(&t.end);
	for (size_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(t.threads[i], NULL), 0);
}

static void ignore(const struct kiln_sample *record, void *arg)
{
}

static int setup(void **state)
{
	const struct sampler_options options = {
	    .hz = 20, .cgroup_mode = CGROUP_HYBRID, .off_cpu = KILN_OFF_CPU_RATE(RATE)};
	struct error err = {};

	memset(&t, 0, sizeof(t));
	pthread_mutex_init(&t.end, NULL);
	if (profiled_new(&options, &t.p, &err) < 0 || sampler_start(t.p->sampler, &err) < 0)
		fail_msg("%s", err.message);
	return 0;
}

static int teardown(void **state)
{
	t.p = profiled_free(t.p);
	return 0;
}

static bool is_ours(uint32_t tid)
{
	for (size_t i = 0; i < THREADS; i++)
		if (t.tids[i] == tid)
			return true;
	return false;
}

/* Reads the list and marks its threads, but those of this test only if OURS_TOO. Returns how many
 * are of this test. */
static size_t list_all(bool ours_too)
{
	static uint8_t records[16 * KILN_SLEEPER_BYTES];
	int fd = sampler_open_sleepers(t.p->sampler);
	size_t ours = 0;
	ssize_t got;

	if (fd < 0)
		skip(); /* the kernel has no iterators over tasks */
	while ((got = read(fd, records, sizeof(records))) > 0) {
		for (ssize_t i = 0; i < got; i += (ssize_t)KILN_SLEEPER_BYTES) {
			const struct kiln_sleeper *s = (const struct kiln_sleeper *)(records + i);

			ours += is_ours(s->sample.tid);
			if (ours_too || !is_ours(s->sample.tid))
				(void)sampler_sleeper_shown(t.p->sampler, s->sample.tid,
							    s->sample.time);
		}
	}
	close(fd);
	assert_int_equal(got, 0);
	return ours;
}

static size_t list_to_the_end(bool ours_too)
{
	size_t ours = list_all(ours_too);

	sampler_sleepers_listed(t.p->sampler);
	return ours;
}

/* Waits until threads of this test are worth a list, and reads it. */
static size_t list_when_ours_wait(bool ours_too)
{
	size_t ours = 0;

	for (int i = 0; i < 40 && !ours; i++) {
		usleep(100000);
		(void)sampler_drain(t.p->sampler, ignore, NULL);
		if (sampler_may_have_sleepers(t.p->sampler))
			ours = list_to_the_end(ours_too);
	}
	return ours;
}

/* False: in each of several tries the list was worth reading again right after it was read. A wait
 * of another program may become long enough just then, but not each time. */
static bool nothing_is_new_after_a_list(void)
{
	for (int i = 0; i < TRIES; i++) {
		list_to_the_end(true);
		if (!sampler_may_have_sleepers(t.p->sampler))
			return true;
	}
	return false;
}

static void a_list_is_read_until_one_was_read_to_its_end(void **state)
{
	assert_true(sampler_may_have_sleepers(t.p->sampler));
	list_all(true);
	assert_true(sampler_may_have_sleepers(t.p->sampler));
	assert_true(nothing_is_new_after_a_list());
}

static void a_long_wait_without_a_sample_makes_a_new_list_worthwhile(void **state)
{
	start_threads();
	assert_true(nothing_is_new_after_a_list());
	assert_true(list_when_ours_wait(true) > 0);
	/* Those that were listed have a sample now. */
	assert_true(nothing_is_new_after_a_list());
	end_threads();
}

/* As the kernel leaves out a thread whose process is not sampled. */
static void a_thread_that_a_list_leaves_out_is_expected_again_after_some_windows(void **state)
{
	bool rests = false;
	int asked = 0;

	start_threads();
	assert_true(nothing_is_new_after_a_list());
	assert_true(list_when_ours_wait(false) > 0);
	usleep(1500000); /* by now, all threads of this test wait for more than a second */
	list_to_the_end(false);
	for (int i = 0; i < TRIES && !rests; i++) {
		rests = !sampler_may_have_sleepers(t.p->sampler);
		if (!rests)
			list_to_the_end(false);
	}
	assert_true(rests);
	while (asked < 2 * OFF_CPU_LISTS_SKIPPED_MAX && !sampler_may_have_sleepers(t.p->sampler))
		asked++;
	assert_in_range(asked, 1, OFF_CPU_LISTS_SKIPPED_MAX);
	assert_true(list_all(true) > 0);
	end_threads();
}

static void a_list_is_read_again_after_a_change_of_policies(void **state)
{
	const struct kiln_policy policy = {.hz = 20, .off_cpu = KILN_OFF_CPU_RATE(RATE)};

	assert_true(nothing_is_new_after_a_list());
	assert_int_equal(sampler_set_policy(t.p->sampler, 1, &policy), 0);
	assert_true(sampler_may_have_sleepers(t.p->sampler));
}

static void a_list_is_read_again_after_off_cpu_was_off(void **state)
{
	struct error err = {};

	assert_true(nothing_is_new_after_a_list());
	assert_int_equal(sampler_set_off_cpu(t.p->sampler, false, &err), 0);
	assert_false(sampler_may_have_sleepers(t.p->sampler));
	assert_int_equal(sampler_set_off_cpu(t.p->sampler, true, &err), 0);
	assert_true(sampler_may_have_sleepers(t.p->sampler));
}

static void a_list_is_read_again_after_some_windows(void **state)
{
	int asked = 0;

	assert_true(nothing_is_new_after_a_list());
	while (asked < 2 * OFF_CPU_LISTS_SKIPPED_MAX && !sampler_may_have_sleepers(t.p->sampler))
		asked++;
	assert_in_range(asked, 1, OFF_CPU_LISTS_SKIPPED_MAX);
}

int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(a_list_is_read_until_one_was_read_to_its_end),
	    TEST(a_long_wait_without_a_sample_makes_a_new_list_worthwhile),
	    TEST(a_thread_that_a_list_leaves_out_is_expected_again_after_some_windows),
	    TEST(a_list_is_read_again_after_a_change_of_policies),
	    TEST(a_list_is_read_again_after_off_cpu_was_off),
	    TEST(a_list_is_read_again_after_some_windows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
