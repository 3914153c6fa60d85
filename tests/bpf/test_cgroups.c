/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel side with real cgroups: the policies of new cgroups, the samples while the timers'
 * rate changes, and the cost of a hit in a cgroup that is not sampled.
 */
#include <bpf/bpf.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#include "agent/policy/cgroup_watch.h"
#include "tests/bpf/watch.h"
#include "tests/support/test.h"

enum { RATE = 199, ENOUGH = 60, HIT_HZ = 20000 };

static struct {
	struct profiled *p;
	struct child child;
	struct watch w;
	char cgroup[256], inner[300];
	uint64_t id;
	enum cgroup_mode mode;
	uv_loop_t loop;
	struct cgroup_watch *watch;
	uint64_t made, removed; /* the ids of the last callbacks */
	char path[300];
} t;

static int setup(void **state)
{
	memset(&t, 0, sizeof(t));
	if (cgroup_mode_detect("/sys/fs/cgroup", &t.mode) < 0 || uv_loop_init(&t.loop) < 0)
		return -1;
	snprintf(t.cgroup, sizeof(t.cgroup), "/sys/fs/cgroup%s/kiln-test-cgroups-%d",
		 t.mode == CGROUP_V2 ? "" : "/memory", getpid());
	snprintf(t.inner, sizeof(t.inner), "%s/inner", t.cgroup);
	return mkdir(t.cgroup, 0755) < 0 ? -1 : cgroup_id_of(t.cgroup, &t.id);
}

static void remove_cgroup(const char *path)
{
	/* The last task may still be exiting. */
	for (int i = 0; i < 200 && rmdir(path) < 0 && errno == EBUSY; i++)
		usleep(10000);
}

static int teardown(void **state)
{
	t.watch = cgroup_watch_free(t.watch);
	uv_run(&t.loop, UV_RUN_DEFAULT);
	uv_loop_close(&t.loop);
	t.p = profiled_free(t.p);
	child_end(&t.child);
	remove_cgroup(t.inner);
	remove_cgroup(t.cgroup);
	return 0;
}

static void prepare(void)
{
	const struct sampler_options options = {.hz = RATE, .cgroup_mode = t.mode};
	struct error err = {};

	if (profiled_new(&options, &t.p, &err) < 0)
		fail_msg("%s", err.message);
}

static void start(void)
{
	struct error err = {};

	if (sampler_start(t.p->sampler, &err) < 0)
		fail_msg("%s", err.message);
}

static void set_policy(uint32_t index, enum kiln_policy_mode mode, uint32_t hz)
{
	const struct kiln_policy policy = {.mode = mode, .hz = hz, .runtimes = ~0U};

	assert_int_equal(sampler_set_policy(t.p->sampler, index, &policy), 0);
	assert_int_equal(sampler_set_cgroup_policy(t.p->sampler, t.id, index), 0);
}

static void spin_in(const char *cgroup)
{
	assert_int_equal(child_start("spin", 3, cgroup, &t.child), 0);
	t.w = (struct watch){.tgid = (uint32_t)t.child.pid};
}

static void on_made(uint64_t id, const char *path, void *arg)
{
	t.made = id;
	snprintf(t.path, sizeof(t.path), "%s", path);
}

static void on_removed(uint64_t id, void *arg)
{
	t.removed = id;
}

static void nothing(void *arg)
{
}

static void follow(void)
{
	const struct cgroup_watch_callbacks callbacks = {on_made, on_removed, nothing, nothing,
							 NULL};
	const struct cgroup_watch_options options = {
	    .mode = t.mode, .policy_map = sampler_cgroup_policies_fd(t.p->sampler)};
	struct error why, err = {};

	if (cgroup_watch_new(&t.loop, &options, &callbacks, &t.watch, &why, &err) < 0)
		fail_msg("%s", err.message);
	assert_string_equal(why.message, "");
}

static void new_cgroup_has_its_parents_policy_before_anything_runs_in_it(void **state)
{
	uint64_t id;
	char want[300];

	prepare();
	set_policy(7, KILN_POLICY_ENABLED, RATE);
	follow();
	assert_int_equal(mkdir(t.inner, 0755), 0);
	assert_int_equal(cgroup_id_of(t.inner, &id), 0);
	spin_in(t.inner);
	start(); /* not earlier: the child runs elsewhere before it joins */
	assert_true(watch_until(t.p, &t.w, 1, &t.w.records, ENOUGH));
	assert_int_equal(t.w.first.policy, 7);
	assert_int_equal(t.w.first.cgroup, id);
	cgroup_watch_drain(t.watch);
	assert_int_equal(t.made, id);
	snprintf(want, sizeof(want), "/kiln-test-cgroups-%d/inner", getpid());
	assert_string_equal(t.path, want);
	child_end(&t.child);
	remove_cgroup(t.inner);
	cgroup_watch_drain(t.watch);
	assert_int_equal(t.removed, id);
	assert_int_equal(sampler_delete_cgroup_policy(t.p->sampler, id), -ENOENT);
}

static void scan_tells_of_what_was_there_before(void **state)
{
	uint64_t id;

	prepare();
	assert_int_equal(mkdir(t.inner, 0755), 0);
	assert_int_equal(cgroup_id_of(t.inner, &id), 0);
	follow();
	/* MADE is the last cgroup that was reported: the hierarchy has more than this one. */
	assert_int_not_equal(t.made, 0);
}

static uint64_t cpu_ns(int pid)
{
	struct timespec now;
	clockid_t clock;

	assert_int_equal(clock_getcpuclockid(pid, &clock), 0);
	assert_int_equal(clock_gettime(clock, &now), 0);
	return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

static void samples_stand_for_the_same_time_while_the_timers_change(void **state)
{
	static const uint32_t rates[] = {100, 400, 97, 250, 50, 199};
	uint64_t begin, used, told;
	const uint64_t period = kiln_period(40);

	prepare();
	set_policy(1, KILN_POLICY_ENABLED, 40);
	spin_in(t.cgroup);
	start();
	begin = cpu_ns(t.child.pid);
	for (size_t i = 0; i < ARRAY_SIZE(rates); i++) {
		uint64_t want = t.w.records + 50;

		assert_int_equal(sampler_set_rate(t.p->sampler, rates[i]), 0);
		assert_true(watch_until(t.p, &t.w, 1, &t.w.records, want));
	}
	sampler_stop(t.p->sampler);
	used = cpu_ns(t.child.pid) - begin;
	watch_drain(t.p, &t.w, 1);
	told = t.w.records * period;
	assert_in_range(told, used / 100 * 93, used / 100 * 107);
}

static void stopped_timers_take_nothing_and_start_again(void **state)
{
	struct sampler_stats before, after;

	prepare();
	spin_in(t.cgroup);
	start();
	assert_true(watch_until(t.p, &t.w, 1, &t.w.records, 5));
	assert_int_equal(sampler_set_rate(t.p->sampler, 0), 0);
	sampler_read_stats(t.p->sampler, &before);
	usleep(300000);
	sampler_read_stats(t.p->sampler, &after);
	assert_int_equal(after.counts[KILN_STAT_RUNS], before.counts[KILN_STAT_RUNS]);
	watch_drain(t.p, &t.w, 1);
	watch_reset(&t.w);
	assert_int_equal(sampler_set_rate(t.p->sampler, RATE), 0);
	assert_true(watch_until(t.p, &t.w, 1, &t.w.records, 5));
}

/* The time that the kernel counts for an empty program; most of it is spent reading clocks. */
static double empty_program_ns(int pid)
{
	const struct bpf_insn insns[] = {
	    {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0},
	    {.code = BPF_JMP | BPF_EXIT},
	};
	struct perf_event_attr attr = {
	    .size = sizeof(attr),
	    .type = PERF_TYPE_SOFTWARE,
	    .config = PERF_COUNT_SW_CPU_CLOCK,
	    .sample_period = 1000000000 / HIT_HZ,
	};
	int prog =
	    bpf_prog_load(BPF_PROG_TYPE_PERF_EVENT, "empty", "GPL", insns, ARRAY_SIZE(insns), NULL);
	int timer = (int)syscall(SYS_perf_event_open, &attr, pid, -1, -1, PERF_FLAG_FD_CLOEXEC);
	struct bpf_prog_info info = {};
	uint32_t len = sizeof(info);

	assert_true(prog >= 0 && timer >= 0);
	assert_int_equal(ioctl(timer, PERF_EVENT_IOC_SET_BPF, prog), 0);
	sleep(2);
	assert_int_equal(bpf_obj_get_info_by_fd(prog, &info, &len), 0);
	close(timer);
	close(prog);
	assert_true(info.run_cnt > 100);
	return (double)info.run_time_ns / (double)info.run_cnt;
}

static void what_is_disabled_costs_little(void **state)
{
	struct kiln_policy off = {.mode = KILN_POLICY_DISABLED, .hz = 1000};
	struct sampler_stats stats;
	double empty;

	prepare();
	assert_int_equal(sampler_set_policy(t.p->sampler, 0, &off), 0);
	set_policy(1, KILN_POLICY_DISABLED, 1000);
	assert_int_equal(sampler_set_rate(t.p->sampler, HIT_HZ), 0);
	spin_in(t.cgroup);
	start();
	sleep(3);
	sampler_stop(t.p->sampler);
	sampler_read_stats(t.p->sampler, &stats);
	assert_int_equal(stats.counts[KILN_STAT_SKIPPED], stats.counts[KILN_STAT_RUNS]);
	assert_true(stats.runs > 100);
	empty = empty_program_ns(t.child.pid);
	/* The limit leaves room for a machine with other work. */
	print_message("%.0f ns a hit, of which a program that does nothing takes %.0f\n",
		      (double)stats.run_ns / (double)stats.runs, empty);
	assert_true(stats.run_ns / stats.runs < 3000);
}

int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(new_cgroup_has_its_parents_policy_before_anything_runs_in_it),
	    TEST(scan_tells_of_what_was_there_before),
	    TEST(samples_stand_for_the_same_time_while_the_timers_change),
	    TEST(stopped_timers_take_nothing_and_start_again),
	    TEST(what_is_disabled_costs_little),
	};
	int r = argc > 1 ? child_main(argc, argv) : cmocka_run_group_tests(tests, NULL, NULL);

	/* Keeps the call from becoming a tail call: main() must be a frame of the child's stack. */
	__asm__ volatile("" ::: "memory");
	return r;
}
