/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's notes of mappings when there are more notes than the rings hold. */
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>

#include "agent/sampler/sideband.h"
#include "tests/bpf/child.h"
#include "tests/bpf/profiled.h"
#include "tests/support/test.h"

enum { STORM = 4000, PAGE = 4096 };

static struct {
	uv_loop_t loop;
	struct sideband *sideband;
	uint64_t losses, notes, since_ns, last_note, last_inode;
	struct profiled *p;
	struct child child;
} t;

static bool on_mapped(const struct sideband_mapping *m, void *arg)
{
	if (m->tgid != (uint32_t)getpid())
		return false;
	t.notes++;
	t.last_note = m->start;
	t.last_inode = m->inode;
	return true;
}

static void on_executed(uint32_t tgid, uint64_t time, void *arg)
{
}

static void on_lost(uint64_t since_ns, void *arg)
{
	t.losses++;
	t.since_ns = since_ns;
}

static int setup(void **state)
{
	const struct sideband_callbacks callbacks = {on_mapped, NULL, on_executed, on_lost, NULL};
	struct error err = {};

	memset(&t, 0, sizeof(t));
	if (uv_loop_init(&t.loop) < 0)
		return -1;
	if (sideband_new(&t.loop, &callbacks, &t.sideband, &err) < 0)
		fail_msg("%s", err.message);
	return 0;
}

static int teardown(void **state)
{
	t.sideband = sideband_free(t.sideband);
	uv_run(&t.loop, UV_RUN_DEFAULT);
	uv_loop_close(&t.loop);
	t.p = profiled_free(t.p);
	child_end(&t.child);
	return 0;
}

/* Makes N notes of this process. Returns the address of the last mapping. */
static uint64_t map_code(int n)
{
	void *at = NULL;

	for (int i = 0; i < n; i++) {
		at = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		assert_true(at != MAP_FAILED);
		munmap(at, PAGE);
	}
	return (uint64_t)(uintptr_t)at;
}

static void run_on(int cpu)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
}

static void a_storm_is_told_of_once_a_reading(void **state)
{
	int cpus = (int)MIN(sysconf(_SC_NPROCESSORS_ONLN), 2);
	uint64_t from;

	sideband_drain(t.sideband);
	from = profiled_now_ns();
	for (int cpu = 0; cpu < cpus; cpu++) {
		run_on(cpu);
		map_code(STORM);
	}
	sideband_drain(t.sideband);
	/*
	 * The kernel reports a loss with the next note that finds room, which is after the reading
	 * above.
	 */
	for (int cpu = 0; cpu < cpus; cpu++) {
		run_on(cpu);
		map_code(1);
	}
	t.losses = 0;
	sideband_drain(t.sideband);
	assert_int_equal(t.losses, 1);
	assert_true(t.since_ns <= from);
	sideband_drain(t.sideband);
	assert_int_equal(t.losses, 1);
}

/*
 * All on one CPU, because each CPU has a ring of its own. Other processes leave notes in that ring
 * too. A note that is shorter than a mapping's, such as that of an exec, may find room where a
 * mapping's does not, so any reading may report a loss.
 */
static void rings_that_lose_again_grow_until_they_hold_the_storm(void **state)
{
	uint64_t at;
	int round;

	run_on(0);
	for (round = 0; round < 20; round++) {
		t.losses = t.notes = 0;
		map_code(STORM);
		sideband_drain(t.sideband);
		at = map_code(1);
		sideband_drain(t.sideband);
		assert_int_equal(t.last_note, at);
		if (!t.losses)
			break;
	}
	assert_in_range(round, 1, 19);
	assert_int_equal(t.notes, STORM + 1);
}

/*
 * Code in shared anonymous memory is of no file: its note has inode 0, as in the reader of
 * /proc/PID/maps.
 */
static void memory_that_is_shared_has_no_file(void **state)
{
	int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	void *at = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, self, 0);

	assert_true(at != MAP_FAILED);
	sideband_drain(t.sideband);
	assert_int_equal(t.last_note, (uint64_t)(uintptr_t)at);
	assert_int_not_equal(t.last_inode, 0);
	munmap(at, PAGE);
	at = mmap(NULL, PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(at != MAP_FAILED);
	assert_int_equal(mprotect(at, PAGE, PROT_READ | PROT_EXEC), 0);
	sideband_drain(t.sideband);
	assert_int_equal(t.last_note, (uint64_t)(uintptr_t)at);
	assert_int_equal(t.last_inode, 0);
	munmap(at, PAGE);
	close(self);
}

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

static int refresh(void)
{
	struct error err = {};

	return sideband_refresh(t.sideband, NULL, &err);
}

/* A mapping that is made on a CPU without a ring is lost, and the loss is reported. */
static void a_cpu_that_went_and_came_back_has_a_ring_again(void **state)
{
	uint64_t at, from;

	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		skip();
	for (int seen = 0; seen < 2; seen++) {
		assert_int_equal(refresh(), 0);
		t.losses = 0;
		run_on(0);
		set_online(false);
		from = profiled_now_ns();
		if (seen)
			assert_int_equal(refresh(), 0);
		assert_int_equal(t.losses, 0);
		set_online(true);
		run_on(1);
		map_code(1);
		/*
		 * An event that died between two refreshes is found by the second one: the first
		 * reads the time at which its clock stopped.
		 */
		assert_int_equal(refresh() | refresh(), 0);
		assert_int_equal(t.losses, 1);
		assert_true(t.since_ns <= from);
		at = map_code(1);
		sideband_drain(t.sideband);
		assert_int_equal(t.last_note, at);
		uv_run(&t.loop, UV_RUN_NOWAIT); /* frees the closed handles */
	}
}

static struct kiln_sample start_child(struct mapset **ret)
{
	const struct sampler_options options = {.hz = 20, .cgroup_mode = CGROUP_HYBRID};
	struct kiln_sample record = {};
	struct error err = {};

	assert_int_equal(child_start("spin", 3, NULL, &t.child), 0);
	if (profiled_new(&options, &t.p, &err) < 0)
		fail_msg("%s", err.message);
	record.tgid = (uint32_t)t.child.pid;
	assert_int_equal(profiled_learn(t.p, &record, ret), 0);
	return record;
}

static void a_process_without_new_code_keeps_its_mapset(void **state)
{
	struct mapset *m, *now;
	struct kiln_sample record = start_child(&m);
	uint32_t first;

	assert_int_equal(profiled_check(t.p, &record, m, &now), MAPSET_HOLDS);
	assert_ptr_equal(now, m);
	assert_int_equal(mapset_store_count(t.p->mapsets), 1);

	/*
	 * As if the process had mapped its first file since: one range more, the others are the
	 * same.
	 */
	first = m->n--;
	m->ranges++;
	assert_int_equal(profiled_check(t.p, &record, m, &now), MAPSET_EXTENDED);
	assert_ptr_not_equal(now, m);
	assert_int_equal(mapset_store_count(t.p->mapsets), 2);
	m->ranges--;
	m->n = first;

	/* As if another file were mapped there now. */
	m->ranges[0].bias += PAGE;
	assert_int_equal(profiled_check(t.p, &record, m, &now), MAPSET_EXCHANGED);
}

int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(a_storm_is_told_of_once_a_reading),
	    TEST(memory_that_is_shared_has_no_file),
	    TEST(a_cpu_that_went_and_came_back_has_a_ring_again),
	    TEST(rings_that_lose_again_grow_until_they_hold_the_storm),
	    TEST(a_process_without_new_code_keeps_its_mapset),
	};

	return argc > 1 ? child_main(argc, argv) : cmocka_run_group_tests(tests, NULL, NULL);
}
