/* SPDX-License-Identifier: Apache-2.0 */
/* Discovery: programs that are forgotten, and those that were gone before they could be read. */
#include "tests/unit/agent/window/discovery_rig.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* ---- sweeps ---------------------------------------------------------------------------------- */

enum { KEEP_S = 5 };

static void sweep_after(int s)
{
	ahead_ns += s * 1000000000LL;
	discovery_sweep(t.d);
}

/* Samples that were taken before the exchange may wait in the ring for a while. */
static void a_program_is_forgotten_when_it_was_not_used_for_a_while(void **state)
{
	struct sideband_mapping other = {.tgid = t.record.tgid, .inode = 77, .time = 1000};
	const struct mapset_range *own;

	ahead_ns = 60000000000LL; /* a process that has just begun is looked at again */
	ask(0);
	own = fake_own_range(t.last.mapset);
	other.start = own->start;
	other.length = own->end - own->start;
	t.record.mapset = t.last.mapset->id;
	t.record.time = 1000;
	discovery_mapped(t.d, &other);
	uv_run(&t.loop, UV_RUN_DEFAULT);
	assert_false(holds());
	sweep_after(KEEP_S - 1);
	assert_false(holds());
	sweep_after(2);
	/* Of a program that is not in the table, no exchange is known. */
	assert_true(holds());
}

static void a_program_that_is_being_read_is_not_forgotten(void **state)
{
	assert_int_equal(discovery_ask(t.d, &t.record, false), 0);
	sweep_after(KEEP_S + 1);
	uv_run(&t.loop, UV_RUN_DEFAULT);
	assert_int_equal(t.answers, 1);
	assert_non_null(t.last.mapset);
}

/* Its mapset lacks code: it is read when it is sampled next, however late that is. */
static void a_program_that_is_to_be_read_again_is_kept_with_its_mapset(void **state)
{
	struct sideband_mapping more = {.tgid = t.record.tgid, .start = 0x1000, .length = 0x1000};
	struct mapset *m;

	ask(0);
	m = t.last.mapset;
	t.record.mapset = m->id;
	more.time = m->read_ns + 1;
	assert_true(discovery_mapped(t.d, &more));
	sweep_after(KEEP_S + 1);
	assert_true(holds());
	assert_true(discovery_busy(t.d));
	uv_run(&t.loop, UV_RUN_DEFAULT);
	assert_int_equal(t.answers, 2);
	/* Once the mapset is gone, the next sample causes a reading anyway. */
	m = t.last.mapset;
	t.record.mapset = m->id;
	more.time = m->read_ns + 1;
	assert_true(discovery_mapped(t.d, &more));
	mapset_store_forget(fake.mapsets, t.record.tgid);
	sweep_after(KEEP_S + 1);
	assert_true(holds());
	assert_false(discovery_busy(t.d));
}

/* Of a young process only code was asked for, if the kernel can tell that alone (Linux 6.11). */
static void a_program_that_is_to_be_looked_at_again_is_kept(void **state)
{
	struct maps maps;

	if (maps_query(fake.proc_dirfd, t.record.tgid, &maps) < 0)
		skip();
	maps_done(&maps);
	/* This process is as if it had just begun. */
	ahead_ns = (int64_t)(t.record.start_time - boot_ns()) + 1000000;
	ask(0);
	t.record.mapset = t.last.mapset->id;
	t.record.time = t.last.mapset->read_ns + 2000000000;
	sweep_after(KEEP_S + 1);
	assert_true(holds());
	assert_true(discovery_busy(t.d));
	uv_run(&t.loop, UV_RUN_DEFAULT);
	assert_int_equal(t.answers, 2);
	/* It was looked at, so nothing is pending. */
	sweep_after(KEEP_S + 1);
	assert_true(holds());
	assert_false(discovery_busy(t.d));
}

/* ---- programs that are gone ------------------------------------------------------------------ */

enum { NOTED_AT = 0x10000000 };

/* Notes that TGID executes this test's program now. */
static void note_exec_of(uint32_t tgid)
{
	struct sideband_mapping m = {.tgid = tgid, .start = NOTED_AT, .time = monotonic_ns()};
	const struct map_entry *own = NULL;
	char path[256] = {};
	struct maps maps;

	assert_true(readlink("/proc/self/exe", path, sizeof(path) - 1) > 0);
	assert_int_equal(maps_read(fake.proc_dirfd, (uint32_t)getpid(), &maps), 0);
	for (size_t i = 0; i < maps.n; i++)
		if (streq(maps.entries[i].path, path))
			own = &maps.entries[i];
	assert_non_null(own);
	m.dev_major = own->dev_major;
	m.dev_minor = own->dev_minor;
	m.inode = own->inode;
	m.length = own->end - own->start;
	m.offset = own->offset;
	map_notes_executed(t.notes, tgid, m.time);
	map_notes_mapped(t.notes, &m, path);
	maps_done(&maps);
}

/* Makes the record one of a process that has ended since. */
static void sample_of_the_dead(void)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	t.record.tgid = (uint32_t)pid;
	t.record.start_time = boot_ns();
}

static void assert_noted(void)
{
	assert_int_equal(t.answers, 1);
	assert_non_null(t.last.mapset);
	assert_int_equal(t.last.mapset->n, 1);
	assert_int_equal(t.last.mapset->ranges[0].start, NOTED_AT);
	assert_non_null(t.last.mapset->ranges[0].image->image);
	/* The identity of the process is not known. */
	assert_null(t.last.info);
	assert_int_equal(t.last.info_error, -ESRCH);
	assert_false(is_given_up());
}

static void a_program_that_is_gone_has_what_the_kernel_noted(void **state)
{
	sample_of_the_dead();
	note_exec_of(t.record.tgid);
	t.record.time = monotonic_ns();
	ask(0);
	assert_noted();
	assert_ptr_equal(discovery_mapset(t.d, &t.record), t.last.mapset);
}

/* The process is alive but runs another program now, which /proc describes. */
static void a_program_that_executed_another_has_what_the_kernel_noted(void **state)
{
	note_exec_of(t.record.tgid);
	t.record.time = monotonic_ns();
	assert_int_equal(discovery_ask(t.d, &t.record, false), 0);
	discovery_executed(t.d, t.record.tgid, t.record.time + 1);
	uv_run(&t.loop, UV_RUN_DEFAULT);
	assert_noted();
}

/*
 * /proc described the new program; the kernel's entry is gone by the time that the note of the exec
 * is read.
 */
static void a_program_that_executed_another_and_ended_is_not_taken_for_it(void **state)
{
	t.record.time = monotonic_ns();
	assert_int_equal(discovery_ask(t.d, &t.record, false), 0);
	map_notes_executed(t.notes, t.record.tgid, t.record.time + 1);
	fake.has_process = false;
	uv_run(&t.loop, UV_RUN_DEFAULT);
	assert_int_equal(t.answers, 1);
	assert_null(t.last.mapset);
	assert_null(t.last.info);
}

/* The pid may belong to another program by now, so its memory is not read. */
static void of_a_program_that_is_gone_no_runtime_is_read(void **state)
{
	fake_probe(1);
	t.record.runtimes = UINT32_MAX;
	ask(0);
	assert_int_not_equal(t.last.mapset->name_space[FAKE_PYTHON], 0);
	t.answers = 0;
	t.record.exec_id++;
	note_exec_of(t.record.tgid);
	t.record.time = monotonic_ns();
	assert_int_equal(discovery_ask(t.d, &t.record, false), 0);
	fake.process.exec_id = t.record.exec_id;
	discovery_executed(t.d, t.record.tgid, t.record.time + 1);
	uv_run(&t.loop, UV_RUN_DEFAULT);
	assert_noted();
	assert_int_equal(t.last.mapset->name_space[FAKE_PYTHON], 0);
	runtimes_missed(fake.rt, t.last.mapset, FAKE_PYTHON, monotonic_ns());
	assert_int_equal(t.last.mapset->name_space[FAKE_PYTHON], 0);
}

static void a_fork_that_is_gone_has_what_its_parent_had(void **state)
{
	struct kiln_resume *resume = (struct kiln_resume *)t.record.words;

	resume->parent = 1 << 23; /* beyond the largest pid */
	resume->parent_start = boot_ns();
	note_exec_of(resume->parent);
	sample_of_the_dead();
	t.record.time = monotonic_ns();
	t.record.dump_len = 1;
	ask(0);
	/* The parent may have executed another program since, so its mappings are not taken. */
	assert_null(t.last.mapset);
	t.answers = 0;
	resume->forked = 1;
	t.record.exec_id++; /* another program: it was not tried before */
	ask(0);
	assert_noted();
}

/* Makes the record one of a fork of this process that has ended since. */
static void sample_of_a_dead_fork(void)
{
	struct kiln_resume *resume = (struct kiln_resume *)t.record.words;
	uint64_t ticks;

	assert_int_equal(process_start_ticks(fake.proc_dirfd, (uint32_t)getpid(), &ticks), 0);
	resume->parent = (uint32_t)getpid();
	resume->parent_start = ticks * KILN_TICK_NS + 12345;
	resume->forked = 1;
	sample_of_the_dead();
	t.record.time = monotonic_ns();
	t.record.dump_len = 1;
}

static void a_fork_that_is_gone_maps_what_its_parent_does(void **state)
{
	sample_of_a_dead_fork();
	ask(0);
	assert_int_equal(t.answers, 1);
	assert_non_null(t.last.mapset);
	assert_non_null(fake_own_range(t.last.mapset));
	assert_null(t.last.info);
}

static void what_a_parent_executed_since_is_not_the_forks(void **state)
{
	sample_of_a_dead_fork();
	map_notes_executed(t.notes, (uint32_t)getpid(), monotonic_ns());
	ask(0);
	assert_int_equal(t.answers, 1);
	assert_null(t.last.mapset);
}

static void a_later_owner_of_the_parents_pid_is_not_taken_for_it(void **state)
{
	struct kiln_resume *resume = (struct kiln_resume *)t.record.words;

	sample_of_a_dead_fork();
	resume->parent_start -= KILN_TICK_NS;
	ask(0);
	assert_int_equal(t.answers, 1);
	assert_null(t.last.mapset);
}

/* The exec was that of an earlier process with the pid. */
static void a_fork_has_nothing_of_an_earlier_owner_of_its_pid(void **state)
{
	sample_of_the_dead();
	note_exec_of(t.record.tgid);
	usleep(1000);
	t.record.start_time = boot_ns();
	t.record.time = monotonic_ns();
	ask(0);
	assert_int_equal(t.answers, 1);
	assert_null(t.last.mapset);
}

/* A process that maps an OTEL_CTX when it gets a byte from FD. */
static pid_t start_publisher(int fd)
{
	pid_t pid = fork();
	char byte;
	int file;

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	file = memfd_create("OTEL_CTX", MFD_CLOEXEC);
	if (read(fd, &byte, 1) != 1 || ftruncate(file, 4096) < 0 ||
	    mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, 0) == MAP_FAILED)
		_exit(1);
	(void)write(fd, &byte, 1);
	for (;;)
		pause();
}

/* Of a young process only code is asked for; whether it publishes labels is looked up later. */
static void a_young_process_is_looked_at_again(void **state)
{
	struct mapset *m;
	uint64_t ticks;
	char byte = 0;
	int fds[2];
	pid_t pid;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	pid = start_publisher(fds[1]);
	assert_int_equal(process_start_ticks(fake.proc_dirfd, (uint32_t)pid, &ticks), 0);
	t.record.tgid = (uint32_t)pid;
	t.record.start_time = ticks * KILN_TICK_NS;
	ask(0);
	assert_int_equal(t.answers, 1);
	m = t.last.mapset;
	assert_non_null(m);
	assert_false(m->has_context);
	assert_int_equal(write(fds[0], &byte, 1), 1);
	assert_int_equal(read(fds[0], &byte, 1), 1);
	t.record.mapset = m->id;
	t.record.time = m->read_ns + 1000000000;
	assert_true(holds());
	assert_false(discovery_busy(t.d));
	/* The process is no longer young then. */
	usleep(1100000);
	t.record.time = m->read_ns + 2000000000;
	assert_true(holds());
	if (!discovery_busy(t.d)) { /* Linux before 6.11: the whole text was read at once */
		kill(pid, SIGKILL);
		skip();
	}
	uv_run(&t.loop, UV_RUN_DEFAULT);
	assert_int_equal(t.answers, 2);
	assert_ptr_equal(t.last.mapset, m);
	assert_true(m->has_context);
	assert_true(holds());
	assert_false(discovery_busy(t.d));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(fds[0]);
	close(fds[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(a_program_is_forgotten_when_it_was_not_used_for_a_while),
	    TEST(a_program_that_is_being_read_is_not_forgotten),
	    TEST(a_program_that_is_to_be_read_again_is_kept_with_its_mapset),
	    TEST(a_program_that_is_to_be_looked_at_again_is_kept),
	    TEST(a_program_that_is_gone_has_what_the_kernel_noted),
	    TEST(a_program_that_executed_another_has_what_the_kernel_noted),
	    TEST(a_program_that_executed_another_and_ended_is_not_taken_for_it),
	    TEST(of_a_program_that_is_gone_no_runtime_is_read),
	    TEST(a_fork_that_is_gone_has_what_its_parent_had),
	    TEST(a_fork_that_is_gone_maps_what_its_parent_does),
	    TEST(what_a_parent_executed_since_is_not_the_forks),
	    TEST(a_later_owner_of_the_parents_pid_is_not_taken_for_it),
	    TEST(a_fork_has_nothing_of_an_earlier_owner_of_its_pid),
	    TEST(a_young_process_is_looked_at_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
