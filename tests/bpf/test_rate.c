/* SPDX-License-Identifier: Apache-2.0 */
/*
 * As many samples a second as 128 CPUs take at 99 Hz, taken on the CPUs of this machine: every
 * sample is read, and its stack is complete. The reader's own timer is slow here, so that the ring
 * overflows unless the kernel wakes the reader and the ring has the size that the rate needs. With
 * KILN_LONG=1 for five minutes.
 */
#include <bpf/libbpf.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#include "tests/bpf/watch.h"
#include "tests/support/test.h"

enum { ALL_HZ = 128 * 99, PROCESSES = 40, DRAIN_MS = 5000, SECONDS = 3, LONG_SECONDS = 300 };

static struct {
	struct profiled *p;
	struct child children[PROCESSES];
	struct watch watches[PROCESSES];
} t;

static int teardown(void **state)
{
	t.p = profiled_free(t.p);
	for (size_t i = 0; i < PROCESSES; i++)
		child_end(&t.children[i]);
	return 0;
}

static void start(void)
{
	uint32_t pids[PROCESSES];
	const struct sampler_options options = {
	    .hz = ALL_HZ / (uint32_t)sysconf(_SC_NPROCESSORS_ONLN),
	    .cgroup_mode = CGROUP_HYBRID,
	    .pids = pids,
	    .n_pids = PROCESSES,
	};
	struct error err = {};

	for (size_t i = 0; i < PROCESSES; i++) {
		assert_int_equal(child_start("spin", 10 + (int)i, NULL, &t.children[i]), 0);
		pids[i] = (uint32_t)t.children[i].pid;
		assert_int_equal(setpriority(PRIO_PROCESS, (id_t)pids[i], 10), 0);
		t.watches[i] =
		    (struct watch){.tgid = pids[i], .learn = true, .child = &t.children[i]};
	}
	if (profiled_new(&options, &t.p, &err) < 0 || sampler_start(t.p->sampler, &err) < 0)
		fail_msg("%s", err.message);
}

static void read_for(uint32_t seconds)
{
	/* Waits as the loop does: poll() would return at once for records since the last drain. */
	_cleanup_close_ int epoll = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event event = {.events = EPOLLIN};
	uint64_t until = profiled_now_ns() + seconds * 1000000000ULL;

	assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, sampler_ring_fd(t.p->sampler), &event), 0);
	while (profiled_now_ns() < until) {
		(void)epoll_wait(epoll, &event, 1, DRAIN_MS);
		watch_drain(t.p, t.watches, PROCESSES);
	}
}

/* Stops the sampler and empties the ring. Returns the number of samples taken so far. */
static uint64_t stop_and_count(struct sampler_stats *ret)
{
	sampler_stop(t.p->sampler);
	watch_drain(t.p, t.watches, PROCESSES);
	sampler_read_stats(t.p->sampler, ret);
	return ret->counts[KILN_STAT_RUNS] - ret->counts[KILN_STAT_SKIPPED];
}

static void every_sample_arrives_whole(void **state)
{
	static const enum kiln_stat losses[] = {KILN_STAT_RING_FULL, KILN_STAT_SHED_SAMPLE,
						KILN_STAT_SHED_FRAMES, KILN_STAT_SHED_DUMP};
	const char *is_long = getenv("KILN_LONG");
	uint64_t records = 0, incomplete = 0, wrong = 0, taken;
	struct sampler_stats first, stats;
	struct error err = {};

	/* Other programs on this machine must not delay the reader. */
	(void)setpriority(PRIO_PROCESS, 0, -20);
	/*
	 * The first samples of a process bring copies of its stack, too many at this rate: they do
	 * not count.
	 */
	start();
	for (size_t i = 0; i < PROCESSES; i++)
		assert_true(watch_until(t.p, t.watches, PROCESSES, &t.watches[i].complete, 1));
	taken = stop_and_count(&first);
	for (size_t i = 0; i < PROCESSES; i++)
		watch_reset(&t.watches[i]);
	assert_int_equal(sampler_start(t.p->sampler, &err), 0);
	read_for(is_long && streq(is_long, "1") ? LONG_SECONDS : SECONDS);
	taken = stop_and_count(&stats) - taken;
	for (size_t i = 0; i < PROCESSES; i++) {
		records += t.watches[i].records;
		incomplete += t.watches[i].records - t.watches[i].complete;
		wrong += t.watches[i].wrong;
	}
	print_message("%llu samples\n", (unsigned long long)records);
	for (size_t i = 0; i < ARRAY_SIZE(losses); i++)
		assert_int_equal(stats.counts[losses[i]], first.counts[losses[i]]);
	assert_int_equal(records, taken);
	assert_int_equal(incomplete, 0);
	assert_int_equal(wrong, 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_teardown(every_sample_arrives_whole, teardown),
	};
	int r = argc > 1 ? child_main(argc, argv) : cmocka_run_group_tests(tests, NULL, NULL);

	__asm__ volatile("" ::: "memory");
	return r;
}
