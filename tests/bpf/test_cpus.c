/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A CPU whose number is beyond the room of the maps, as after CPUs were added to a virtual machine,
 * is not sampled, and nothing else suffers from it. The maps have room for CPU 0 only here; CPU 1
 * stands for the one that was added.
 */
#include <sched.h>

#include "tests/bpf/watch.h"
#include "tests/support/test.h"

enum { RATE = 199 };

static struct {
	struct profiled *p;
	struct child children[2]; /* on CPU 0 and 1 */
	uint64_t samples[2];	  /* on CPU 0; on others */
	uint64_t waits, ends;	  /* of this thread */
} t;

static void need_two_cpus(void)
{
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		skip();
}

static void bind_to(int pid, int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	assert_int_equal(sched_setaffinity(pid, sizeof(set), &set), 0);
}

static void on_wait_end(const struct kiln_wait_end *end, void *arg)
{
	t.ends += end->tid == (uint32_t)getpid();
}

static void take(const struct kiln_sample *record, void *arg)
{
	if (record->origin == KILN_ORIGIN_CPU)
		t.samples[record->cpu != 0]++;
	else
		t.waits += record->tid == (uint32_t)getpid();
}

/* Waits for half a second, a millisecond at a time. */
static void wait_and_drain(void)
{
	for (int i = 0; i < 500; i++) {
		usleep(1000);
		(void)sampler_drain(t.p->sampler, take, NULL);
	}
}

static void start(uint32_t off_cpu)
{
	const struct sampler_options options = {
	    .hz = RATE, .cgroup_mode = CGROUP_HYBRID, .max_cpus = 1, .off_cpu = off_cpu};
	struct error err = {};

	if (profiled_new(&options, &t.p, &err) < 0)
		fail_msg("%s", err.message);
	sampler_on_wait_end(t.p->sampler, on_wait_end, NULL);
	if (sampler_start(t.p->sampler, &err) < 0)
		fail_msg("%s", err.message);
}

static int setup(void **state)
{
	memset(&t, 0, sizeof(t));
	return 0;
}

static int teardown(void **state)
{
	cpu_set_t all;

	memset(&all, 0xff, sizeof(all));
	assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
	t.p = profiled_free(t.p);
	for (size_t i = 0; i < ARRAY_SIZE(t.children); i++)
		if (t.children[i].pid)
			child_end(&t.children[i]);
	return 0;
}

static void a_cpu_without_room_is_counted_and_not_sampled(void **state)
{
	struct error err = {};

	need_two_cpus();
	for (int cpu = 0; cpu < 2; cpu++) {
		assert_int_equal(child_start("spin", 3, NULL, &t.children[cpu]), 0);
		bind_to(t.children[cpu].pid, cpu);
	}
	start(0);
	wait_and_drain();
	assert_true(t.samples[0] > 0);
	assert_int_equal(t.samples[1], 0);
	assert_int_equal(sampler_cpus(t.p->sampler), 1);
	assert_int_equal(sampler_refresh_cpus(t.p->sampler, &err), 0);
	assert_int_equal(sampler_cpus_beyond(t.p->sampler), sysconf(_SC_NPROCESSORS_ONLN) - 1);
}

static void all_cpus_of_this_machine_have_room(void **state)
{
	const struct sampler_options options = {.hz = RATE, .cgroup_mode = CGROUP_HYBRID};
	struct error err = {};

	if (profiled_new(&options, &t.p, &err) < 0)
		fail_msg("%s", err.message);
	if (sampler_start(t.p->sampler, &err) < 0)
		fail_msg("%s", err.message);
	assert_int_equal(sampler_refresh_cpus(t.p->sampler, &err), 0);
	assert_int_equal(sampler_cpus_beyond(t.p->sampler), 0);
}

/* User space could not assign the end of such a wait to a sample. */
static void a_wait_that_begins_on_a_cpu_without_room_has_no_sample_and_no_end(void **state)
{
	need_two_cpus();
	bind_to(0, 1);
	start(KILN_OFF_CPU_RATE(1000));
	wait_and_drain();
	assert_int_equal(t.waits, 0);
	assert_int_equal(t.ends, 0);
	bind_to(0, 0);
	wait_and_drain();
	assert_true(t.waits > 0);
	assert_true(t.ends > 0);
}

static void sleepers_are_found_from_a_cpu_without_room(void **state)
{
	static uint8_t records[16 * KILN_SLEEPER_BYTES];
	int fd;

	need_two_cpus();
	bind_to(0, 1);
	start(KILN_OFF_CPU_RATE(1000));
	fd = sampler_open_sleepers(t.p->sampler);
	if (fd < 0)
		skip(); /* the kernel has no iterators over tasks */
	/* At least the parent of this process has waited since before it was watched. */
	assert_true(read(fd, records, sizeof(records)) >= (ssize_t)KILN_SLEEPER_BYTES);
	close(fd);
}

int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(a_cpu_without_room_is_counted_and_not_sampled),
	    TEST(all_cpus_of_this_machine_have_room),
	    TEST(a_wait_that_begins_on_a_cpu_without_room_has_no_sample_and_no_end),
	    TEST(sleepers_are_found_from_a_cpu_without_room),
	};

	return argc > 1 ? child_main(argc, argv) : cmocka_run_group_tests(tests, NULL, NULL);
}
