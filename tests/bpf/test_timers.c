/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The weights of a CPU's samples add up to the time that passed on that CPU, whatever happens to
 * the rates and to the CPU. Every CPU is kept busy, so that the samples cover all of the time.
 */
#include <fcntl.h>
#include <sched.h>

#include "tests/bpf/watch.h"
#include "tests/support/test.h"

enum { CPUS_MAX = 256, RATE = 199 };

static struct {
	struct profiled *p;
	struct child children[CPUS_MAX];
	int n_cpus;
	uint64_t time[CPUS_MAX]; /* sum of the samples' weights, ns */
	uint64_t samples[CPUS_MAX], malformed;
} t;

static void keep_busy(int cpu, struct child *child)
{
	cpu_set_t set;

	assert_int_equal(child_start("spin", 3, NULL, child), 0);
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	assert_int_equal(sched_setaffinity(child->pid, sizeof(set), &set), 0);
}

static int setup(void **state)
{
	const struct sampler_options options = {.hz = RATE, .cgroup_mode = CGROUP_HYBRID};
	struct error err = {};

	memset(&t, 0, sizeof(t));
	t.n_cpus = (int)MIN(sysconf(_SC_NPROCESSORS_ONLN), CPUS_MAX);
	for (int cpu = 0; cpu < t.n_cpus; cpu++)
		keep_busy(cpu, &t.children[cpu]);
	if (profiled_new(&options, &t.p, &err) < 0)
		fail_msg("%s", err.message);
	return 0;
}

static int teardown(void **state)
{
	t.p = profiled_free(t.p);
	for (int cpu = 0; cpu < t.n_cpus; cpu++)
		child_end(&t.children[cpu]);
	return 0;
}

static void start(void)
{
	struct error err = {};

	if (sampler_start(t.p->sampler, &err) < 0)
		fail_msg("%s", err.message);
}

static void set_rate_of_policy(uint32_t hz)
{
	const struct kiln_policy policy = {.mode = KILN_POLICY_ENABLED, .hz = hz, .runtimes = ~0U};

	assert_int_equal(sampler_set_policy(t.p->sampler, 0, &policy), 0);
}

static void take(const struct kiln_sample *record, void *arg)
{
	t.malformed += record->origin != KILN_ORIGIN_CPU || !record->period || !record->value ||
		       record->value % record->period || record->label;
	if (record->cpu >= CPUS_MAX)
		return;
	t.time[record->cpu] += record->value;
	t.samples[record->cpu]++;
}

static void drain_for(uint64_t ns)
{
	uint64_t end = profiled_now_ns() + ns;

	do {
		(void)sampler_drain(t.p->sampler, take, NULL);
		usleep(2000);
	} while (profiled_now_ns() < end);
	(void)sampler_drain(t.p->sampler, take, NULL);
}

/* The weights of each CPU's samples must add up to PASSED ns, give or take OPEN ns that no hit has
 * counted yet. */
static void check_sums(uint64_t passed, uint64_t open)
{
	struct sampler_stats stats;

	sampler_stop(t.p->sampler);
	drain_for(1);
	sampler_read_stats(t.p->sampler, &stats);
	assert_int_equal(stats.counts[KILN_STAT_RING_FULL], 0);
	assert_int_equal(t.malformed, 0);
	for (int cpu = 0; cpu < t.n_cpus; cpu++) {
		print_message("CPU %d: %.1f ms passed, %.1f ms in %llu samples\n", cpu,
			      (double)passed / 1e6, (double)t.time[cpu] / 1e6,
			      (unsigned long long)t.samples[cpu]);
		assert_in_range(t.time[cpu], passed - open, passed + open);
	}
}

static void sums_are_the_time_that_passed_whatever_the_rates_do(void **state)
{
	static const struct {
		uint32_t timers, policy;
	} rates[] = {{199, 199}, {97, 40},  {100, 100}, {61, 40},  {250, 19},
		     {71, 71},	 {199, 97}, {53, 53},	{150, 20}, {97, 97}};
	enum { ROUNDS = 5, STEP_MS = 77 };
	/*
	 * At the end a sample of the slowest policy and a period of the slowest timer may be open.
	 */
	const uint64_t open = kiln_period(19) + kiln_period(53);
	uint64_t begin;

	start();
	begin = profiled_now_ns();
	for (size_t i = 0; i < ROUNDS * ARRAY_SIZE(rates); i++) {
		size_t at = i % ARRAY_SIZE(rates);

		set_rate_of_policy(rates[at].policy);
		assert_int_equal(sampler_set_rate(t.p->sampler, rates[at].timers), 0);
		drain_for(STEP_MS * 1000000ULL);
	}
	check_sums(profiled_now_ns() - begin, open);
}

/* The rate changes 0 to 140 us before a hit of the slow timer is due: the hit must neither be lost
 * nor be counted with the new period. */
static void sums_hold_when_rates_change_as_a_hit_is_due(void **state)
{
	enum { ROUNDS = 24, SLOW_HZ = 8, FAST_HZ = 997, STEP_US = 20 };
	const uint64_t slow = kiln_period(SLOW_HZ);
	uint64_t begin, next;

	start();
	begin = profiled_now_ns();
	for (int i = 0; i < ROUNDS; i++) {
		set_rate_of_policy(SLOW_HZ);
		assert_int_equal(sampler_set_rate(t.p->sampler, SLOW_HZ), 0);
		next = profiled_now_ns() + slow;
		drain_for(slow / 2);
		while (profiled_now_ns() + STEP_US * 1000 * (uint64_t)(i % 8) < next)
			;
		assert_int_equal(sampler_set_rate(t.p->sampler, FAST_HZ), 0);
		set_rate_of_policy(FAST_HZ);
		drain_for(5000000);
	}
	/* One period is still open at the end. Another one may be lost: the kernel runs no perf
	 * program on a CPU that is in bpf() (bpf_prog_active), as this thread is when it sets the
	 * policy. */
	check_sums(profiled_now_ns() - begin, 2 * slow);
}

/* ---- CPUs that come and go ------------------------------------------------------------------- */

static void set_online(bool online)
{
	int fd = open("/sys/devices/system/cpu/cpu1/online", O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, online ? "1" : "0", 1) != 1) {
		if (fd >= 0)
			close(fd);
		print_message("CPU 1 cannot be taken off line here\n");
		skip();
	}
	close(fd);
}

/* The number of samples of CPU 1 within half a second. */
static uint64_t samples_of_cpu_1(void)
{
	uint64_t before;

	drain_for(50000000);
	before = t.samples[1];
	drain_for(500000000);
	return t.samples[1] - before;
}

static int refresh(void)
{
	struct error err = {};

	return sampler_refresh_cpus(t.p->sampler, &err);
}

/* A child that was bound to a CPU runs on any CPU once that one has gone offline. */
static void bind_again(void)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(1, &set);
	assert_int_equal(sched_setaffinity(t.children[1].pid, sizeof(set), &set), 0);
}

static void a_cpu_that_went_and_came_back_is_sampled_again(void **state)
{
	if (t.n_cpus < 2)
		skip();
	start();
	assert_true(samples_of_cpu_1() > 0);
	set_online(false);
	assert_int_equal(refresh(), 0);
	assert_int_equal(samples_of_cpu_1(), 0);
	set_online(true);
	assert_int_equal(refresh(), 1);
	bind_again();
	assert_true(samples_of_cpu_1() > 0);
}

/* CPU 1 goes and comes back between two refreshes: both see the same list of CPUs. */
static void a_cpu_that_went_and_came_back_unseen_is_sampled_again(void **state)
{
	if (t.n_cpus < 2)
		skip();
	start();
	assert_int_equal(refresh(), 0);
	set_online(false);
	set_online(true);
	bind_again();
	assert_int_equal(samples_of_cpu_1(), 0); /* its event is dead */
	/*
	 * The second refresh finds the dead event; the first reads the time at which its clock
	 * stopped.
	 */
	assert_int_equal(refresh() + refresh(), 1);
	assert_true(samples_of_cpu_1() > 0);
}

int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(sums_are_the_time_that_passed_whatever_the_rates_do),
	    TEST(sums_hold_when_rates_change_as_a_hit_is_due),
	    TEST(a_cpu_that_went_and_came_back_is_sampled_again),
	    TEST(a_cpu_that_went_and_came_back_unseen_is_sampled_again),
	};

	return argc > 1 ? child_main(argc, argv) : cmocka_run_group_tests(tests, NULL, NULL);
}
