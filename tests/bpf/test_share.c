/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One cgroup fills a ring that nobody reads. That cgroup loses copies of stacks, then frames, then
 * samples; a process of another cgroup loses nothing.
 */
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

#include "tests/bpf/watch.h"
#include "tests/support/test.h"

enum {
	RATE = 499,
	ENOUGH = 20,
	PATIENCE_MS = 60000,
	RING = 1 << 20,
	QUIET_RUN_NS = 10000000,
	FORGIVEN_MS = 2200
};

static struct {
	struct profiled *p;
	struct child noisy, quiet;
	struct watch watches[2]; /* of `noisy` and `quiet` */
	char cgroup[256];	 /* of the noisy child */
	enum cgroup_mode mode;
	uint64_t bytes[2]; /* sum of the records' sizes, by watch */
	uint64_t bad_short;
} t;

static struct watch *const noisy = &t.watches[0], *const quiet = &t.watches[1];

static int setup(void **state)
{
	memset(&t, 0, sizeof(t));
	if (cgroup_mode_detect("/sys/fs/cgroup", &t.mode) < 0)
		return -1;
	snprintf(t.cgroup, sizeof(t.cgroup), "/sys/fs/cgroup%s/kiln-test-share-%d",
		 t.mode == CGROUP_V2 ? "" : "/memory", getpid());
	return mkdir(t.cgroup, 0755);
}

static int teardown(void **state)
{
	t.p = profiled_free(t.p);
	child_end(&t.noisy);
	child_end(&t.quiet);
	/* The last task may still be exiting. */
	for (int i = 0; i < 200 && rmdir(t.cgroup) < 0 && errno == EBUSY; i++)
		usleep(10000);
	return 0;
}

static void weigh(struct watch *w, const struct kiln_sample *record)
{
	t.bytes[w - t.watches] += record->size;
	t.bad_short += record->end == KILN_END_SHED && (record->n_user != 4 || record->dump_len);
}

/*
 * Before its mappings were known, the quiet child sent copies of its stack, and they were charged
 * to its cgroup: many if reading its mappings took long. Two seconds later the charge is gone
 * (bpf/share.h).
 */
static void forgive_quiet(void)
{
	uint64_t until = profiled_now_ns() + FORGIVEN_MS * 1000000ULL;

	if (t.bytes[1] < RING / 64)
		return;
	while (profiled_now_ns() < until) {
		watch_drain(t.p, t.watches, 2);
		usleep(1000);
	}
}

static void start(const char *mode, int depth)
{
	uint32_t pids[2];
	const struct sampler_options options = {
	    .hz = RATE, .cgroup_mode = t.mode, .ring_bytes = RING, .pids = pids, .n_pids = 2};
	struct error err = {};

	assert_int_equal(child_start(mode, depth, t.cgroup, &t.noisy), 0);
	assert_int_equal(child_start("spin", 3, NULL, &t.quiet), 0);
	pids[0] = (uint32_t)t.noisy.pid;
	pids[1] = (uint32_t)t.quiet.pid;
	if (profiled_new(&options, &t.p, &err) < 0 || sampler_start(t.p->sampler, &err) < 0)
		fail_msg("%s", err.message);
	*noisy = (struct watch){.tgid = pids[0], .child = &t.noisy, .each = weigh};
	*quiet = (struct watch){.tgid = pids[1], .child = &t.quiet, .learn = true, .each = weigh};
	assert_true(watch_until(t.p, t.watches, 2, &quiet->complete, 1));
	forgive_quiet();
}

static uint64_t counted(enum kiln_stat stat)
{
	struct sampler_stats stats;

	sampler_read_stats(t.p->sampler, &stats);
	return stats.counts[stat];
}

/* The CPU time of the quiet child so far. */
static uint64_t quiet_cpu_ns(void)
{
	struct timespec ran;
	clockid_t clock;

	assert_int_equal(clock_getcpuclockid(t.quiet.pid, &clock), 0);
	assert_int_equal(clock_gettime(clock, &ran), 0);
	return (uint64_t)ran.tv_sec * 1000000000ULL + (uint64_t)ran.tv_nsec;
}

/*
 * Leaves the ring unread until the kernel has counted WANT more of STAT and the quiet child, which
 * may share a CPU with others, has had enough CPU time for some of its samples.
 */
static void fill_ring_until(enum kiln_stat stat, uint64_t want)
{
	uint64_t give_up = profiled_now_ns() + PATIENCE_MS * 1000000ULL, ran;

	watch_drain(t.p, t.watches, 2);
	watch_reset(noisy);
	watch_reset(quiet);
	memset(t.bytes, 0, sizeof(t.bytes));
	ran = quiet_cpu_ns();
	want += counted(stat); /* STAT may not be 0 if the ring was read late before */
	while ((counted(stat) < want || quiet_cpu_ns() - ran < QUIET_RUN_NS) &&
	       profiled_now_ns() < give_up)
		usleep(1000);
	assert_true(counted(stat) >= want);
	assert_int_equal(counted(KILN_STAT_RING_FULL), 0);
	watch_drain(t.p, t.watches, 2);
}

static void assert_quiet_is_whole(void)
{
	assert_true(quiet->records > 0);
	if (quiet->complete != quiet->records)
		fail_msg("of %llu samples %llu are whole, %llu were cut, the last ended with %u",
			 (unsigned long long)quiet->records, (unsigned long long)quiet->complete,
			 (unsigned long long)quiet->by_end[KILN_END_SHED], quiet->last.end);
	assert_int_equal(quiet->wrong, 0);
	assert_int_equal(quiet->last.end, KILN_END_ROOT);
}

static void copies_of_stacks_are_left_out_first(void **state)
{
	start("deep", 3);
	fill_ring_until(KILN_STAT_SHED_DUMP, ENOUGH);
	assert_quiet_is_whole();
	assert_true(noisy->with_dump > 0 && noisy->with_dump < noisy->records);
	assert_int_equal(noisy->last.dump_len, 0);
	assert_int_equal(noisy->last.n_user, 1);
	assert_int_equal(counted(KILN_STAT_SHED_SAMPLE), 0);
	/*
	 * The kernel cuts nothing while less than a quarter of the ring is in use by both together;
	 * the noisy child gets next to nothing of the ring's last quarter.
	 */
	assert_true(t.bytes[0] + t.bytes[1] >= RING / 4);
	assert_true(t.bytes[0] <= RING * 13 / 16);
}

static void then_the_frames_of_long_stacks_and_then_samples(void **state)
{
	start("spin", 1000);
	noisy->learn = true;
	assert_true(watch_until(t.p, t.watches, 2, &noisy->complete, 1));
	fill_ring_until(KILN_STAT_SHED_SAMPLE, ENOUGH);
	assert_quiet_is_whole();
	assert_true(counted(KILN_STAT_SHED_FRAMES) > 0);
	assert_true(noisy->complete > 0);
	assert_int_equal(noisy->wrong, 0);
	assert_int_equal(noisy->complete + noisy->by_end[KILN_END_SHED], noisy->records);
	assert_true(noisy->by_end[KILN_END_SHED] > 0);
	assert_int_equal(t.bad_short, 0);
}

static void who_was_noisy_is_whole_again_when_the_ring_is_read(void **state)
{
	start("spin", 1000);
	noisy->learn = true;
	assert_true(watch_until(t.p, t.watches, 2, &noisy->complete, 1));
	fill_ring_until(KILN_STAT_SHED_FRAMES, ENOUGH);
	watch_reset(noisy);
	assert_true(watch_until(t.p, t.watches, 2, &noisy->records, ENOUGH));
	assert_int_equal(noisy->complete, noisy->records);
}

int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(copies_of_stacks_are_left_out_first),
	    TEST(then_the_frames_of_long_stacks_and_then_samples),
	    TEST(who_was_noisy_is_whole_again_when_the_ring_is_read),
	};
	int r = argc > 1 ? child_main(argc, argv) : cmocka_run_group_tests(tests, NULL, NULL);

	__asm__ volatile("" ::: "memory");
	return r;
}
