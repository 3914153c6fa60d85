/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The `processes` map over a process's life: first sample, mappings read, fork, exec, exit. The
 * mappings of one program must never be used for another.
 */
#include <bpf/bpf.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "tests/bpf/watch.h"
#include "tests/support/test.h"

enum {
	RATE = 499,
	ENOUGH = 50,
	PROCESSES = 12347, /* tells this sampler's map from those of other agents */
	STALE = 4242,
};

static struct {
	struct profiled *p;
	struct child child;
	struct watch watches[2];
} t;

static struct watch *const w = &t.watches[0], *const other = &t.watches[1];

static int setup(void **state)
{
	memset(&t, 0, sizeof(t));
	return 0;
}

static int teardown(void **state)
{
	t.p = profiled_free(t.p);
	child_end(&t.child);
	return 0;
}

static void start(const char *mode, const uint32_t *pids, size_t n)
{
	const struct sampler_options options = {.hz = RATE,
						.cgroup_mode = CGROUP_HYBRID,
						.max_processes = PROCESSES,
						/*
						 * Large enough that it is never half full, which
						 * would wake the reader.
						 */
						.ring_bytes = 16 << 20,
						.pids = pids,
						.n_pids = n};
	struct error err = {};

	if (!t.child.pid)
		assert_int_equal(child_start(mode, 5, NULL, &t.child), 0);
	if (profiled_new(&options, &t.p, &err) < 0 || sampler_start(t.p->sampler, &err) < 0)
		fail_msg("%s", err.message);
	*w = (struct watch){.tgid = (uint32_t)t.child.pid};
}

static int entry_of(uint32_t tgid, struct kiln_process *ret)
{
	const struct kernel_memory *m = sampler_memory(t.p->sampler);

	return m->get_process(m->arg, tgid, ret);
}

static bool ring_wakes(int ms)
{
	struct pollfd fd = {.fd = sampler_ring_fd(t.p->sampler), .events = POLLIN};

	return poll(&fd, 1, ms) == 1;
}

static void unknown_process_is_announced_exactly_once_with_its_stack(void **state)
{
	struct kiln_process entry;
	uint32_t pid;

	assert_int_equal(child_start("spin", 5, NULL, &t.child), 0);
	pid = (uint32_t)t.child.pid;
	start("spin", &pid, 1);
	assert_true(ring_wakes(20000));
	assert_true(watch_until(t.p, w, 1, &w->records, 1));
	assert_int_equal(w->first.mapset, 0);
	assert_int_equal(w->first.end, KILN_END_NO_PROCESS);
	assert_int_equal(w->first.n_user, 1);
	assert_true(w->first.dump_len > 0);
	assert_int_equal(entry_of(pid, &entry), 0);
	assert_int_equal(entry.flags, KILN_PROCESS_PENDING);
	assert_int_equal(entry.exec_id, w->first.exec_id);

	/*
	 * While its mappings are not read, its samples carry copies of their stacks and wake
	 * nobody.
	 */
	kill((int)pid, SIGSTOP);
	usleep(50000);
	watch_drain(t.p, w, 1);
	(void)ring_wakes(0);
	watch_reset(w);
	kill((int)pid, SIGCONT);
	assert_false(ring_wakes(500));
	assert_true(watch_until(t.p, w, 1, &w->records, ENOUGH));
	assert_int_equal(w->unknown, w->records);
	assert_int_equal(w->with_dump, w->records);
}

static void known_process_has_complete_stacks_and_no_dump(void **state)
{
	start("spin", NULL, 0);
	w->learn = true;
	w->child = &t.child;
	assert_true(watch_until(t.p, w, 1, &w->complete, ENOUGH));
	watch_reset(w);
	assert_true(watch_until(t.p, w, 1, &w->records, ENOUGH));
	assert_int_equal(w->complete, w->records);
	assert_int_equal(w->wrong, 0);
	assert_int_equal(w->with_dump, 0);
	assert_int_equal(w->last.mapset, w->mapset->id);
}

static void sample_has_the_threads_name(void **state)
{
	start("spin", NULL, 0);
	assert_true(watch_until(t.p, w, 1, &w->records, 1));
	assert_int_equal(sizeof(CHILD_NAME), sizeof(w->first.comm));
	assert_memory_equal(w->first.comm, CHILD_NAME, sizeof(w->first.comm));
	assert_int_equal(w->first.tid, t.child.pid);
}

static void forked_process_has_its_parents_mappings_at_once(void **state)
{
	int pid;

	start("spin", NULL, 0);
	w->learn = true;
	assert_true(watch_until(t.p, w, 1, &w->complete, 5));
	kill(t.child.pid, SIGUSR1);
	pid = child_forked(&t.child);
	assert_true(pid > 0);
	*other = (struct watch){.tgid = (uint32_t)pid, .child = &t.child};
	assert_true(watch_until(t.p, t.watches, 2, &other->records, ENOUGH));
	assert_int_equal(other->first.mapset, w->mapset->id);
	assert_int_equal(other->unknown, 0);
	assert_int_equal(other->complete, other->records);
	/* Its first samples may be on the way out of fork(), before the loop. */
	assert_int_equal(other->strayed, 0);
	assert_in_range(other->wrong, 0, 2);
	assert_int_not_equal(other->first.start_time, w->first.start_time);
}

static void executed_program_does_not_use_the_old_mappings(void **state)
{
	struct kiln_process entry;
	uint64_t before;
	uint32_t mapset;

	start("spin", NULL, 0);
	w->learn = true;
	assert_true(watch_until(t.p, w, 1, &w->complete, 5));
	before = w->last.exec_id;
	mapset = w->mapset->id;
	w->learn = false;
	kill(t.child.pid, SIGUSR2);
	watch_reset(w);
	assert_true(watch_until(t.p, w, 1, &w->unknown, ENOUGH));
	assert_int_not_equal(w->last.exec_id, before);
	assert_int_equal(w->last.mapset, 0);
	assert_int_equal(entry_of(w->tgid, &entry), 0);
	assert_int_equal(entry.exec_id, w->last.exec_id);
	assert_int_equal(entry.mapset, 0);
	assert_int_equal(entry.flags, KILN_PROCESS_PENDING);
	/* The new program's mappings can be read like any other's. */
	w->learn = true;
	watch_reset(w);
	assert_true(watch_until(t.p, w, 1, &w->complete, ENOUGH));
	assert_int_not_equal(w->last.mapset, mapset);
}

static void entry_goes_with_the_last_thread(void **state)
{
	struct kiln_process entry;
	uint32_t pid;

	start("threads", NULL, 0);
	pid = (uint32_t)t.child.pid;
	w->learn = true;
	assert_true(watch_until(t.p, w, 1, &w->complete, 5));
	/* The first signal ends a thread, the second the main thread. */
	for (int i = 0; i < 2; i++) {
		kill((int)pid, SIGUSR1);
		usleep(100000);
		watch_drain(t.p, w, 1);
		watch_reset(w);
		assert_true(watch_until(t.p, w, 1, &w->complete, ENOUGH));
		assert_int_equal(w->unknown, 0);
		assert_int_equal(entry_of(pid, &entry), 0);
		assert_int_equal(entry.mapset, w->mapset->id);
	}
	assert_int_not_equal(w->last.tid, pid);
	kill((int)pid, SIGUSR1);
	assert_int_equal(waitpid((int)pid, NULL, 0), (int)pid);
	assert_int_not_equal(entry_of(pid, &entry), 0);
	close(t.child.out);
	t.child.pid = 0;
}

static void killed_process_leaves_no_entry(void **state)
{
	struct kiln_process entry;
	uint32_t pid;

	start("spin", NULL, 0);
	pid = (uint32_t)t.child.pid;
	w->learn = true;
	assert_true(watch_until(t.p, w, 1, &w->complete, 5));
	child_end(&t.child);
	/*
	 * A hit between the exit's trace point and the release of its memory makes an entry without
	 * mapset.
	 */
	if (entry_of(pid, &entry) == 0)
		assert_int_equal(entry.mapset, 0);
}

static void entry_of_another_program_is_void(void **state)
{
	const struct kernel_memory *m;
	struct kiln_process stale;

	start("spin", NULL, 0);
	m = sampler_memory(t.p->sampler);
	assert_true(watch_until(t.p, w, 1, &w->records, 1));
	assert_int_equal(entry_of(w->tgid, &stale), 0);
	stale.exec_id--;
	stale.mapset = STALE;
	stale.flags = 0;
	assert_int_equal(m->set_process(m->arg, w->tgid, &stale), 0);
	watch_reset(w);
	assert_true(watch_until(t.p, w, 1, &w->records, ENOUGH));
	assert_int_equal(w->unknown, w->records);
	assert_int_equal(entry_of(w->tgid, &stale), 0);
	assert_int_equal(stale.mapset, 0);
}

/* The map `processes` of this test's sampler, found by its size. */
static int processes_fd(void)
{
	uint32_t id = 0;

	while (bpf_map_get_next_id(id, &id) == 0) {
		struct bpf_map_info info = {};
		uint32_t len = sizeof(info);
		int fd = bpf_map_get_fd_by_id(id);

		if (fd < 0)
			continue;
		if (!bpf_obj_get_info_by_fd(fd, &info, &len) && streq(info.name, "processes") &&
		    info.max_entries == PROCESSES)
			return fd;
		close(fd);
	}
	return -1;
}

/* Forks a process with the pid PID. EXEC: it executes the program of the test's children. */
static int fork_as(int pid, bool exec)
{
	pid_t tid = pid;
	struct clone_args args = {
	    .exit_signal = SIGCHLD, .set_tid = (uint64_t)(uintptr_t)&tid, .set_tid_size = 1};
	long r = syscall(SYS_clone3, &args, sizeof(args));

	if (r == 0 && exec) {
		(void)dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
		execl("/proc/self/exe", "child", "spin", "3", (char *)NULL);
		_exit(9);
	}
	if (r == 0)
		child_spin();
	return r < 0 ? -errno : (int)r;
}

static void entry_that_was_left_behind_is_not_used_for_its_pids_next_owner(void **state)
{
	struct kiln_process entry = {.mapset = STALE, .first = 0, .count = 1};
	_cleanup_close_ int fd = -1;
	uint32_t pid;
	int next;

	start("spin", NULL, 0);
	assert_true(watch_until(t.p, w, 1, &w->records, 1));
	pid = w->tgid;
	child_end(&t.child);
	/*
	 * Put an entry there as if the exit had been missed. A fork keeps the exec id, which must
	 * match.
	 */
	*other = (struct watch){.tgid = (uint32_t)getpid()};
	for (uint64_t until = profiled_now_ns() + 10000000000ULL;
	     !other->records && profiled_now_ns() < until;)
		watch_drain(t.p, other, 1); /* keeps this process busy, so that it is sampled */
	assert_true(other->records > 0);
	entry.exec_id = other->last.exec_id;
	fd = processes_fd();
	assert_true(fd >= 0);
	assert_int_equal(bpf_map_update_elem(fd, &pid, &entry, BPF_ANY), 0);
	*w = (struct watch){.tgid = pid};
	next = fork_as((int)pid, false);
	assert_int_equal(next, pid);
	t.child.pid = next;
	t.child.out = -1;
	assert_true(watch_until(t.p, w, 1, &w->records, ENOUGH));
	assert_int_equal(w->unknown, w->records);
}

/*
 * Two processes have the same pid and exec id, one after the other. The CPU's copy of the first
 * one's entry (struct kiln_known_process) must not be used for the second. A sample between fork
 * and exec would replace a stale copy before the test sees it, so the test tries several times.
 */
static void next_owner_of_a_pid_does_not_use_the_last_ones_mappings(void **state)
{
	cpu_set_t all, one;
	uint32_t pid, mapset;
	uint64_t exec_id;

	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	CPU_ZERO(&one);
	CPU_SET((size_t)sched_getcpu(), &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	start("spin", NULL, 0);
	pid = w->tgid;
	for (int round = 0; round < 8; round++) {
		w->learn = true;
		assert_true(watch_until(t.p, w, 1, &w->complete, 3));
		exec_id = w->last.exec_id;
		mapset = w->last.mapset;
		child_end(&t.child);
		watch_drain(t.p, w, 1);
		*w = (struct watch){.tgid = pid};
		t.child = (struct child){.pid = fork_as((int)pid, true), .out = -1};
		assert_int_equal(t.child.pid, pid);
		assert_true(watch_until(t.p, w, 1, &w->records, 3));
		assert_int_equal(w->unknown, w->records);
		assert_int_not_equal(w->last.mapset, mapset);
		while (w->last.exec_id != exec_id)
			watch_drain(t.p, w, 1);
		watch_reset(w);
	}
	assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
}

static void mapset_that_is_forgotten_is_not_walked_by(void **state)
{
	uint32_t mapset;

	start("spin", NULL, 0);
	w->learn = true;
	assert_true(watch_until(t.p, w, 1, &w->complete, 5));
	mapset = w->mapset->id;
	mapset_store_forget(t.p->mapsets, w->tgid);
	watch_drain(t.p, w, 1);
	watch_reset(w);
	/* Its next sample has no mapset, so its mappings are read again. */
	assert_true(watch_until(t.p, w, 1, &w->complete, ENOUGH));
	assert_int_not_equal(w->last.mapset, mapset);
}

int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(unknown_process_is_announced_exactly_once_with_its_stack),
	    TEST(known_process_has_complete_stacks_and_no_dump),
	    TEST(sample_has_the_threads_name),
	    TEST(forked_process_has_its_parents_mappings_at_once),
	    TEST(executed_program_does_not_use_the_old_mappings),
	    TEST(entry_goes_with_the_last_thread),
	    TEST(killed_process_leaves_no_entry),
	    TEST(entry_of_another_program_is_void),
	    TEST(entry_that_was_left_behind_is_not_used_for_its_pids_next_owner),
	    TEST(next_owner_of_a_pid_does_not_use_the_last_ones_mappings),
	    TEST(mapset_that_is_forgotten_is_not_walked_by),
	};
	int r = argc > 1 ? child_main(argc, argv) : cmocka_run_group_tests(tests, NULL, NULL);

	__asm__ volatile("" ::: "memory");
	return r;
}
