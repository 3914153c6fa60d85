/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which processes are sampled, and how often: policies of cgroups, thinning, the pid filter, the
 * ignore flag. Cgroups are made below the root of the memory controller (v1, hybrid) or of v2.
 */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>

#include "tests/bpf/watch.h"
#include "tests/support/test.h"

enum { RATE = 199, ENOUGH = 60 };

static struct {
	struct profiled *p;
	struct child inside, outside; /* of the cgroup */
	struct watch watches[2];      /* of these two */
	char cgroup[256];
	uint64_t cgroup_id;
	enum cgroup_mode mode;
} t;

static struct watch *const in = &t.watches[0], *const out = &t.watches[1];

static int make_cgroup(void)
{
	if (cgroup_mode_detect("/sys/fs/cgroup", &t.mode) < 0)
		return -1;
	snprintf(t.cgroup, sizeof(t.cgroup), "/sys/fs/cgroup%s/kiln-test-bpf-%d",
		 t.mode == CGROUP_V2 ? "" : "/memory", getpid());
	if (mkdir(t.cgroup, 0755) < 0)
		return -1;
	return cgroup_id_of(t.cgroup, &t.cgroup_id);
}

static int setup(void **state)
{
	memset(&t, 0, sizeof(t));
	if (make_cgroup() < 0 || child_start("spin", 3, t.cgroup, &t.inside) < 0 ||
	    child_start("spin", 3, NULL, &t.outside) < 0)
		return -1;
	*in = (struct watch){.tgid = (uint32_t)t.inside.pid};
	*out = (struct watch){.tgid = (uint32_t)t.outside.pid};
	return 0;
}

static int teardown(void **state)
{
	t.p = profiled_free(t.p);
	child_end(&t.inside);
	child_end(&t.outside);
	/* The last task may still be exiting. */
	for (int i = 0; i < 200 && rmdir(t.cgroup) < 0 && errno == EBUSY; i++)
		usleep(10000);
	return 0;
}

static void prepare(const uint32_t *pids, size_t n)
{
	const struct sampler_options options = {
	    .hz = RATE, .cgroup_mode = t.mode, .pids = pids, .n_pids = n};
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
	assert_int_equal(sampler_set_cgroup_policy(t.p->sampler, t.cgroup_id, index), 0);
}

static void every_process_is_sampled_by_default(void **state)
{
	struct sampler_stats stats;

	prepare(NULL, 0);
	start();
	assert_true(watch_until(t.p, t.watches, 2, &in->records, ENOUGH));
	assert_true(watch_until(t.p, t.watches, 2, &out->records, ENOUGH));
	assert_int_equal(in->last.policy, 0);
	sampler_read_stats(t.p->sampler, &stats);
	assert_true(stats.counts[KILN_STAT_RUNS] >= 2 * ENOUGH);
	assert_true(stats.runs > 0 && stats.run_ns > 0);
}

static void disabled_cgroup_gives_no_record(void **state)
{
	struct sampler_stats stats;

	prepare(NULL, 0);
	set_policy(1, KILN_POLICY_DISABLED, RATE);
	start();
	assert_true(watch_until(t.p, t.watches, 2, &out->records, ENOUGH));
	assert_int_equal(in->records, 0);
	sampler_read_stats(t.p->sampler, &stats);
	assert_true(stats.counts[KILN_STAT_SKIPPED] > 0);
}

static void disabled_default_leaves_enabled_cgroups(void **state)
{
	const struct kiln_policy off = {.mode = KILN_POLICY_DISABLED, .hz = RATE};

	prepare(NULL, 0);
	assert_int_equal(sampler_set_policy(t.p->sampler, 0, &off), 0);
	set_policy(2, KILN_POLICY_ENABLED, RATE);
	start();
	assert_true(watch_until(t.p, t.watches, 2, &in->records, ENOUGH));
	assert_int_equal(out->records, 0);
}

static void deleted_policy_gives_way_to_the_default(void **state)
{
	prepare(NULL, 0);
	set_policy(1, KILN_POLICY_DISABLED, RATE);
	start();
	assert_true(watch_until(t.p, t.watches, 2, &out->records, ENOUGH / 2));
	assert_int_equal(in->records, 0);
	assert_int_equal(sampler_delete_cgroup_policy(t.p->sampler, t.cgroup_id), 0);
	assert_true(watch_until(t.p, t.watches, 2, &in->records, ENOUGH));
	assert_int_equal(in->last.policy, 0);
	assert_int_equal(sampler_delete_cgroup_policy(t.p->sampler, t.cgroup_id), -ENOENT);
}

static void record_names_policy_and_cgroup_as_user_space_does(void **state)
{
	prepare(NULL, 0);
	set_policy(7, KILN_POLICY_ENABLED, RATE);
	start();
	assert_true(watch_until(t.p, t.watches, 2, &in->records, ENOUGH));
	assert_true(watch_until(t.p, t.watches, 2, &out->records, ENOUGH));
	assert_int_equal(in->first.cgroup, t.cgroup_id);
	assert_int_equal(in->last.cgroup, t.cgroup_id);
	assert_int_equal(in->last.policy, 7);
	assert_int_not_equal(out->last.cgroup, t.cgroup_id);
	assert_int_equal(out->last.policy, 0);
}

static void pin_to_first_cpu(const struct child *c)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(0, &one);
	assert_int_equal(sched_setaffinity(c->pid, sizeof(one), &one), 0);
}

/*
 * ARG: the policy that W's records must have. Counts records with another policy or cgroup as
 * wrong.
 */
static void compare_policy(struct watch *w, const struct kiln_sample *record)
{
	const uint32_t *index = w->arg;
	bool inside = w == in && *index != 0;

	w->wrong += record->policy != *index || (record->cgroup == t.cgroup_id) != inside;
}

/* Two tasks take turns on one CPU: the policy that is cached for one is not used for the other. */
static void tasks_of_two_cgroups_on_one_cpu_keep_their_policies(void **state)
{
	uint32_t seven = 7, none = 0;

	prepare(NULL, 0);
	set_policy(7, KILN_POLICY_ENABLED, RATE);
	in->each = out->each = compare_policy;
	in->arg = &seven;
	out->arg = &none;
	pin_to_first_cpu(&t.inside);
	pin_to_first_cpu(&t.outside);
	start();
	assert_true(watch_until(t.p, t.watches, 2, &in->records, ENOUGH));
	assert_true(watch_until(t.p, t.watches, 2, &out->records, ENOUGH));
	assert_int_equal(in->wrong, 0);
	assert_int_equal(out->wrong, 0);
}

static void write_pid(const char *cgroup, int pid)
{
	char path[320], text[16];
	int fd, n = snprintf(text, sizeof(text), "%d", pid);

	snprintf(path, sizeof(path), "%s/cgroup.procs", cgroup);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, (size_t)n), n);
	close(fd);
}

/* Drops the records so far, and those of hits that are still being handled. */
static void from_now_on(void)
{
	usleep(50000);
	watch_drain(t.p, t.watches, 2);
	watch_reset(in);
	watch_reset(out);
}

static void change_holds_for_a_task_that_goes_on(void **state)
{
	const struct kiln_policy off = {.mode = KILN_POLICY_DISABLED, .hz = RATE};

	prepare(NULL, 0);
	set_policy(1, KILN_POLICY_ENABLED, RATE);
	pin_to_first_cpu(&t.inside);
	pin_to_first_cpu(&t.outside);
	start();
	assert_true(watch_until(t.p, t.watches, 2, &in->records, 5));
	assert_int_equal(in->last.policy, 1);
	/* Another policy for the cgroup. */
	set_policy(2, KILN_POLICY_ENABLED, RATE);
	from_now_on();
	assert_true(watch_until(t.p, t.watches, 2, &in->records, 5));
	assert_int_equal(in->first.policy, 2);
	/* The same policy with another mode. */
	assert_int_equal(sampler_set_policy(t.p->sampler, 2, &off), 0);
	from_now_on();
	assert_true(watch_until(t.p, t.watches, 2, &out->records, ENOUGH / 2));
	assert_int_equal(in->records, 0);
	/* The task moves to another cgroup. */
	*strrchr(t.cgroup, '/') = '\0';
	write_pid(t.cgroup, t.inside.pid);
	t.cgroup[strlen(t.cgroup)] = '/';
	assert_true(watch_until(t.p, t.watches, 2, &in->records, 5));
	assert_int_equal(in->first.policy, 0);
	assert_int_not_equal(in->first.cgroup, t.cgroup_id);
	/* Another default policy. */
	sampler_set_default_policy(t.p->sampler, 2);
	from_now_on();
	usleep(300000);
	watch_drain(t.p, t.watches, 2);
	assert_int_equal(in->records, 0);
}

static void lower_rate_keeps_its_share_of_the_hits(void **state)
{
	struct sampler_stats stats;
	uint64_t hits, slack = (uint64_t)sysconf(_SC_NPROCESSORS_CONF) * 2;

	prepare(NULL, 0);
	/* A rate that is no divisor of the timers' rate. */
	set_policy(1, KILN_POLICY_ENABLED, 130);
	start();
	assert_true(watch_until(t.p, t.watches, 2, &in->records, ENOUGH));
	sampler_stop(t.p->sampler);
	watch_drain(t.p, t.watches, 2);
	sampler_read_stats(t.p->sampler, &stats);
	hits = stats.counts[KILN_STAT_THINNED] + in->records;
	/* The share is exact but for the part of a sample that each CPU has saved up. */
	assert_in_range(in->records * RATE, (hits > slack ? hits - slack : 0) * 130,
			(hits + slack) * 130);
	assert_int_equal(stats.counts[KILN_STAT_RING_FULL], 0);
}

static void filter_leaves_only_its_pids(void **state)
{
	const uint32_t pid = (uint32_t)t.inside.pid;

	prepare(&pid, 1);
	start();
	assert_true(watch_until(t.p, t.watches, 2, &in->records, ENOUGH));
	assert_int_equal(out->records, 0);
}

static void ignored_process_is_not_sampled_until_it_executes_anew(void **state)
{
	uint64_t exec_id;

	prepare(NULL, 0);
	start();
	assert_true(watch_until(t.p, t.watches, 2, &in->records, 1));
	exec_id = in->last.exec_id;
	assert_int_equal(sampler_ignore_process(t.p->sampler, in->tgid, exec_id), 0);
	/* Let the records pass that were in the ring. */
	assert_true(watch_until(t.p, t.watches, 2, &out->records, out->records + 3));
	watch_reset(in);
	watch_reset(out);
	assert_true(watch_until(t.p, t.watches, 2, &out->records, ENOUGH));
	assert_int_equal(in->records, 0);
	kill(t.inside.pid, SIGUSR2);
	assert_true(watch_until(t.p, t.watches, 2, &in->records, ENOUGH));
	assert_int_equal(sampler_ignore_process(t.p->sampler, 0x7ffffff0, 0), -ESRCH);
	/* An older program's record does not end the sampling of the new one. */
	assert_int_equal(sampler_ignore_process(t.p->sampler, in->tgid, exec_id), -ESRCH);
	assert_true(watch_until(t.p, t.watches, 2, &in->records, in->records + ENOUGH));
}

int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(every_process_is_sampled_by_default),
	    TEST(disabled_cgroup_gives_no_record),
	    TEST(disabled_default_leaves_enabled_cgroups),
	    TEST(deleted_policy_gives_way_to_the_default),
	    TEST(record_names_policy_and_cgroup_as_user_space_does),
	    TEST(tasks_of_two_cgroups_on_one_cpu_keep_their_policies),
	    TEST(change_holds_for_a_task_that_goes_on),
	    TEST(lower_rate_keeps_its_share_of_the_hits),
	    TEST(filter_leaves_only_its_pids),
	    TEST(ignored_process_is_not_sampled_until_it_executes_anew),
	};
	int r;

	cmocka_set_test_filter(getenv("KILN_TEST_FILTER")); /* hack/vm */
	r = argc > 1 ? child_main(argc, argv) : cmocka_run_group_tests(tests, NULL, NULL);

	/* Keeps the call from becoming a tail call: main() must be a frame of the child's stack. */
	__asm__ volatile("" ::: "memory");
	return r;
}
