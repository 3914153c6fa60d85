/* SPDX-License-Identifier: Apache-2.0 */
/* The process that is read is this one; the kernel is tests/unit/agent/runtime/fake.c. */
#include "agent/window/discovery.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "lib/metrics.h"

#include "tests/unit/agent/runtime/fake.h"

enum { EXEC = 3 };

static struct {
	uv_loop_t loop;
	struct discovery *d;
	struct map_notes *notes;
	union {
		struct kiln_sample record;
		uint8_t bytes[sizeof(struct kiln_sample) + sizeof(struct kiln_resume)];
	};
	struct sideband_mapping late_mapping; /* reported by `before` if it has a time */
	unsigned int answers;
	struct discovery_answer last;
	char last_name[64];
} t;

static atomic_llong ahead_ns; /* how far the clocks that count from boot are ahead */

int __real_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
	int r = __real_clock_gettime(clock, ret);
	int64_t ns = ret->tv_sec * 1000000000LL + ret->tv_nsec;

	if (clock == CLOCK_MONOTONIC || clock == CLOCK_BOOTTIME)
		ns += ahead_ns;
	ret->tv_sec = ns / 1000000000;
	ret->tv_nsec = ns % 1000000000;
	return r;
}

static uint64_t monotonic_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

static uint64_t boot_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

static void before(void *arg)
{
	if (t.late_mapping.time)
		discovery_mapped(t.d, &t.late_mapping);
}

static void on_answer(const struct discovery_answer *answer, void *arg)
{
	t.answers++;
	t.last = *answer;
	if (answer->info)
		snprintf(t.last_name, sizeof(t.last_name), "%s", answer->info->executable_name);
}

static int setup(void **state)
{
	struct discovery_of of = {
	    .loop = &t.loop,
	    .memory = &fake.memory,
	    .callbacks = {before, on_answer, NULL},
	};
	uint64_t ticks;

	if (fake_setup(state))
		return -1;
	memset(&t, 0, sizeof(t));
	ahead_ns = 0;
	of.proc_dirfd = fake.proc_dirfd;
	of.images = fake.images;
	of.mapsets = fake.mapsets;
	of.runtimes = fake.rt;
	assert_int_equal(map_notes_new(&t.notes), 0);
	of.notes = t.notes;
	assert_int_equal(uv_loop_init(&t.loop), 0);
	assert_int_equal(discovery_new(&of, &t.d), 0);
	assert_int_equal(process_start_ticks(fake.proc_dirfd, (uint32_t)getpid(), &ticks), 0);
	t.record = (struct kiln_sample){
	    .tgid = (uint32_t)getpid(),
	    .start_time = ticks * KILN_TICK_NS + 12345,
	    .exec_id = EXEC,
	    .time = 1,
	};
	fake.process = (struct kiln_process){.flags = KILN_PROCESS_PENDING, .exec_id = EXEC};
	return 0;
}

static int teardown(void **state)
{
	assert_int_equal(discovery_stop(t.d), 0);
	uv_run(&t.loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&t.loop), 0);
	discovery_free(t.d);
	map_notes_free(t.notes);
	return fake_teardown(state);
}

static void ask(int want)
{
	assert_int_equal(discovery_ask(t.d, &t.record, false), want);
	uv_run(&t.loop, UV_RUN_DEFAULT);
}

static bool holds(void)
{
	return discovery_holds(t.d, &t.record, mapset_store_find(fake.mapsets, t.record.mapset));
}

static bool is_given_up(void)
{
	return fake.process.flags & KILN_PROCESS_UNRESOLVED;
}

static void a_process_is_read_once_and_its_mapset_published(void **state)
{
	assert_int_equal(discovery_ask(t.d, &t.record, false), 0);
	assert_int_equal(discovery_ask(t.d, &t.record, false), 0);
	assert_true(discovery_busy(t.d));
	uv_run(&t.loop, UV_RUN_DEFAULT);
	assert_false(discovery_busy(t.d));
	assert_int_equal(t.answers, 1);
	assert_non_null(t.last.mapset);
	assert_string_equal(t.last_name, "test_window_discovery");
	assert_int_equal(fake.process.mapset, t.last.mapset->id);
	assert_int_equal(fake.process.flags, 0);
	assert_non_null(fake_own_range(t.last.mapset));
	assert_ptr_equal(discovery_mapset(t.d, &t.record), t.last.mapset);
}

/* A fork has its parent's mappings, which are known, so only its identity is asked for. */
static void who_it_is_can_be_asked_alone(void **state)
{
	assert_int_equal(discovery_ask(t.d, &t.record, true), 0);
	uv_run(&t.loop, UV_RUN_DEFAULT);
	assert_int_equal(t.answers, 1);
	assert_null(t.last.mapset);
	assert_string_equal(t.last_name, "test_window_discovery");
	assert_false(is_given_up());
}

static void a_later_owner_of_the_pid_is_not_taken_for_it(void **state)
{
	t.record.start_time -= 5 * KILN_TICK_NS;
	ask(0);
	assert_int_equal(t.answers, 1);
	assert_null(t.last.mapset);
	assert_null(t.last.info);
	assert_int_equal(t.last.info_error, -ESRCH);
	assert_int_equal(fake.process.mapset, 0);
	/* The process that has the pid now is read when it is sampled itself. */
	t.record.start_time += 5 * KILN_TICK_NS;
	fake.process.flags = KILN_PROCESS_PENDING;
	ask(0);
	assert_non_null(t.last.mapset);
}

static void a_program_executed_since_the_sample_is_not_taken_for_it(void **state)
{
	assert_int_equal(discovery_ask(t.d, &t.record, false), 0);
	discovery_executed(t.d, t.record.tgid, t.record.time + 1);
	uv_run(&t.loop, UV_RUN_DEFAULT);
	assert_int_equal(t.answers, 1);
	assert_null(t.last.mapset);
	assert_null(t.last.info);
	assert_int_equal(fake.process.mapset, 0);
}

/* The loop reads notes before samples. */
static void an_exec_that_is_told_of_before_the_sample_counts_too(void **state)
{
	discovery_executed(t.d, t.record.tgid, t.record.time + 1);
	ask(0);
	assert_int_equal(t.answers, 1);
	assert_null(t.last.mapset);
	assert_null(t.last.info);
	assert_int_equal(fake.process.mapset, 0);
}

/* The new program maps them; the old program's mappings cannot be read any more. */
static void mappings_after_an_exec_are_not_read_for_the_old_program(void **state)
{
	struct sideband_mapping other = {.tgid = t.record.tgid, .inode = 77, .time = 1001};
	const struct mapset_range *own;

	ask(0);
	own = fake_own_range(t.last.mapset);
	other.start = own->start;
	other.length = own->end - own->start;
	discovery_executed(t.d, t.record.tgid, 1000);
	discovery_mapped(t.d, &other);
	assert_int_equal(fake.process.mapset, 0);
	assert_false(discovery_busy(t.d));
}

/*
 * The new program was sampled before the note of its exec is read: its entry in the kernel stays.
 */
static void the_exec_is_the_one_of_the_program_before(void **state)
{
	assert_int_equal(discovery_ask(t.d, &t.record, false), 0);
	fake.process.exec_id = EXEC + 1;
	t.record.exec_id = EXEC + 1;
	t.record.time = 10;
	assert_int_equal(discovery_ask(t.d, &t.record, false), 0);
	discovery_executed(t.d, t.record.tgid, 5);
	while (t.answers < 2)
		uv_run(&t.loop, UV_RUN_ONCE);
	assert_int_not_equal(fake.process.mapset, 0);
	assert_non_null(discovery_mapset(t.d, &t.record));
	t.record.exec_id = EXEC;
	assert_null(discovery_mapset(t.d, &t.record));
}

static void mappings_that_change_meanwhile_are_read_again(void **state)
{
	int64_t ok = metric_get(M_MAPS_READ_OK);

	t.late_mapping = (struct sideband_mapping){
	    .tgid = t.record.tgid, .start = 0x1000, .length = 0x1000, .time = UINT64_MAX};
	ask(0);
	/* The reading is repeated a few times; then the next sample asks again. */
	assert_int_equal(t.answers, 1);
	assert_in_range(metric_get(M_MAPS_READ_OK) - ok, 2, 10);
	t.late_mapping.time = 0;
	t.record.mapset = fake.process.mapset;
	assert_true(holds());
	assert_true(discovery_busy(t.d));
	uv_run(&t.loop, UV_RUN_DEFAULT);
	assert_int_equal(t.answers, 2);
	assert_true(holds());
	assert_false(discovery_busy(t.d));
}

/* Fills the kernel's mappings for CGROUP until there is no room, or N are used. */
static void fill_mappings(uint64_t cgroup, size_t n)
{
	struct mapset_source all = {.tgid = 1, .exec_id = 1, .cgroup = cgroup};
	struct map_entry entries[FAKE_MAPPINGS / 2] = {};
	struct maps maps = {.entries = entries, .n = ARRAY_SIZE(entries)};
	struct stored_image *none[ARRAY_SIZE(entries)] = {};
	struct mapset *m;

	for (size_t i = 0; i < ARRAY_SIZE(entries); i++)
		entries[i] = (struct map_entry){
		    .start = i << 12, .end = (i + 1) << 12, .kind = MAPPING_ANON};
	all.maps = &maps;
	all.images = none;
	while (n > 0) {
		maps.n = MIN(maps.n, n);
		if (mapset_store_make(fake.mapsets, &all, &m) == 0)
			n -= maps.n;
		else if (maps.n > 1)
			maps.n /= 2;
		else
			break;
	}
}

static void what_finds_no_room_is_given_up_for_a_while(void **state)
{
	fill_mappings(0, FAKE_MAPPINGS);
	ask(0);
	assert_int_equal(t.answers, 1);
	assert_null(t.last.mapset);
	/* The identity is known without mappings. */
	assert_string_equal(t.last_name, "test_window_discovery");
	assert_true(is_given_up());
	ask(-EAGAIN);
	assert_int_equal(t.answers, 1);
}

static void a_cgroup_that_has_taken_its_share_of_the_room_is_given_up(void **state)
{
	int64_t refused = metric_get(M_UNRESOLVED_NO_ROOM);

	fill_mappings(7, FAKE_MAPPINGS / 2 + 1);
	t.record.cgroup = 7;
	ask(0);
	assert_null(t.last.mapset);
	assert_true(is_given_up());
	assert_int_equal(metric_get(M_UNRESOLVED_NO_ROOM), refused + 1);
}

static void others_than_the_cgroup_that_has_taken_its_share_have_room(void **state)
{
	fill_mappings(7, FAKE_MAPPINGS / 2 + 1);
	t.record.cgroup = 8;
	ask(0);
	assert_non_null(t.last.mapset);
	assert_int_equal(t.last.mapset->cgroup, 8);
	assert_false(is_given_up());
}

static void an_exchange_is_in_force_from_its_time_on(void **state)
{
	struct sideband_mapping other = {.tgid = t.record.tgid, .inode = 77, .time = 1000};
	const struct mapset_range *own;

	ask(0);
	own = fake_own_range(t.last.mapset);
	other.start = own->start;
	other.length = own->end - own->start;
	t.record.mapset = t.last.mapset->id;
	discovery_mapped(t.d, &other);
	assert_int_equal(fake.process.mapset, 0);
	assert_true(fake.process.flags & KILN_PROCESS_PENDING);
	t.record.time = 999;
	assert_true(holds());
	t.record.time = 1000;
	assert_false(holds());
	assert_null(discovery_mapset(t.d, &t.record));
	ask(0);
	assert_int_equal(t.answers, 2);
	/*
	 * The record was walked with the old mapset, which was wrong by then; the new one is in
	 * force.
	 */
	assert_false(holds());
	assert_ptr_equal(discovery_mapset(t.d, &t.record), t.last.mapset);
	t.record.mapset = t.last.mapset->id;
	assert_true(holds());
}

/* Mappings are read without a sample: it could come when the code is exchanged again. */
static void exchanges_are_read_at_once_and_each_sample_has_what_was_in_force(void **state)
{
	struct sideband_mapping other = {.tgid = t.record.tgid, .inode = 77};
	const struct mapset_range *own;
	uint32_t ids[3];

	ask(0);
	ids[0] = fake.process.mapset;
	own = fake_own_range(t.last.mapset);
	other.start = own->start;
	other.length = own->end - own->start;
	for (unsigned int i = 1; i < ARRAY_SIZE(ids); i++) {
		other.time = 1000 * i;
		discovery_mapped(t.d, &other);
		assert_true(discovery_busy(t.d));
		uv_run(&t.loop, UV_RUN_DEFAULT);
		assert_int_equal(t.answers, i + 1);
		ids[i] = fake.process.mapset;
		assert_int_not_equal(ids[i], 0);
		usleep(110000);
	}
	for (unsigned int i = 0; i < ARRAY_SIZE(ids); i++) {
		t.record.time = 1000 * i + 500;
		assert_int_equal(discovery_mapset(t.d, &t.record)->id, ids[i]);
	}
	t.record.mapset = ids[1];
	assert_false(holds());
}

/* Code that is exchanged all the time is read no more often than its samples ask for. */
static void exchanges_alone_are_not_read_without_end(void **state)
{
	struct sideband_mapping other = {.tgid = t.record.tgid, .inode = 77};
	int64_t reads = metric_get(M_MAPS_READ_OK);
	const struct mapset_range *own;

	ask(0);
	own = fake_own_range(t.last.mapset);
	other.start = own->start;
	other.length = own->end - own->start;
	for (unsigned int i = 0; i < 100; i++) {
		other.time = 1000 + i;
		discovery_mapped(t.d, &other);
		uv_run(&t.loop, UV_RUN_DEFAULT);
	}
	/* One reading for the sample, and one for each 100 ms that the loop took. */
	assert_in_range(metric_get(M_MAPS_READ_OK) - reads, 2, 50);
}

/* The same file, mapped again at the same place, may hold another function than before. */
static void a_runtime_that_is_loaded_again_has_its_names_read_again(void **state)
{
	const uint64_t words[] = {fake_word(KILN_FRAME_RUNTIME(FAKE_PYTHON), 8), 100};
	struct sideband_mapping again = {.tgid = t.record.tgid};
	const struct mapset_range *own;
	uint32_t budget = 10;
	struct mapset *m;

	fake_probe(1);
	t.record.runtimes = UINT32_MAX;
	ask(0);
	m = t.last.mapset;
	assert_true(runtimes_see(fake.rt, m, t.record.tgid, words, 2, 1, &budget, NULL));
	assert_int_equal(budget, 9);
	own = fake_own_range(m);
	again.dev_major = own->image->dev_major;
	again.dev_minor = own->image->dev_minor;
	again.inode = own->image->inode;
	again.start = own->start;
	again.length = own->end - own->start;
	again.offset = own->offset;
	/* A note of a mapping that was there when the maps were read. */
	again.time = m->read_ns;
	assert_true(discovery_mapped(t.d, &again));
	assert_int_equal(fake.process.mapset, m->id);
	again.time = m->read_ns + 1;
	assert_true(discovery_mapped(t.d, &again));
	assert_int_equal(fake.process.mapset, 0);
	t.record.time = again.time + 1;
	ask(0);
	assert_int_not_equal(runtimes_space(t.last.mapset, FAKE_PYTHON),
			     runtimes_space(m, FAKE_PYTHON));
	assert_true(
	    runtimes_see(fake.rt, t.last.mapset, t.record.tgid, words, 2, 1, &budget, NULL));
	assert_int_equal(budget, 8);
}

static void when_notes_were_lost_a_process_is_looked_at_once(void **state)
{
	struct mapset *m;

	ask(0);
	m = t.last.mapset;
	t.record.mapset = m->id;
	assert_true(holds());
	discovery_lost(t.d, m->read_ns);
	assert_false(holds());
	assert_null(discovery_mapset(t.d, &t.record));
	ask(0);
	assert_int_equal(t.answers, 2);
	/* Nothing was mapped since, so the mapset stays in force. */
	assert_ptr_equal(t.last.mapset, m);
	assert_int_equal(fake.process.mapset, m->id);
	assert_true(holds());
	assert_false(discovery_busy(t.d));
}

static void an_exchange_whose_note_was_lost_holds_from_the_loss_on(void **state)
{
	struct mapset *m;

	ask(0);
	m = t.last.mapset;
	t.record.mapset = m->id;
	t.record.time = m->read_ns + 1;
	/* As if another file were there now. */
	m->ranges[0].bias += 4096;
	discovery_lost(t.d, m->read_ns + 1);
	assert_false(holds());
	ask(0);
	assert_ptr_not_equal(t.last.mapset, m);
	assert_int_equal(fake.process.mapset, t.last.mapset->id);
	assert_false(holds());
	t.record.time = m->read_ns;
	assert_true(holds());
}

/* The process is gone, so there is no newer mapset than the one it has. */
static void a_process_that_cannot_be_looked_at_keeps_its_mapset(void **state)
{
	struct mapset *m;

	ask(0);
	m = t.last.mapset;
	t.record.mapset = m->id;
	discovery_lost(t.d, m->read_ns);
	assert_false(holds());
	discovery_executed(t.d, t.record.tgid, 2);
	assert_int_equal(discovery_ask(t.d, &t.record, false), 0);
	discovery_executed(t.d, t.record.tgid, 2);
	uv_run(&t.loop, UV_RUN_DEFAULT);
	assert_null(t.last.mapset);
	assert_int_equal(fake.process.mapset, m->id);
	assert_false(is_given_up());
	assert_true(holds());
	assert_ptr_equal(discovery_mapset(t.d, &t.record), m);
}

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
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(a_process_is_read_once_and_its_mapset_published),
	    TEST(who_it_is_can_be_asked_alone),
	    TEST(a_later_owner_of_the_pid_is_not_taken_for_it),
	    TEST(a_program_executed_since_the_sample_is_not_taken_for_it),
	    TEST(the_exec_is_the_one_of_the_program_before),
	    TEST(mappings_that_change_meanwhile_are_read_again),
	    TEST(what_finds_no_room_is_given_up_for_a_while),
	    TEST(a_cgroup_that_has_taken_its_share_of_the_room_is_given_up),
	    TEST(others_than_the_cgroup_that_has_taken_its_share_have_room),
	    TEST(a_runtime_that_is_loaded_again_has_its_names_read_again),
	    TEST(when_notes_were_lost_a_process_is_looked_at_once),
	    TEST(an_exchange_whose_note_was_lost_holds_from_the_loss_on),
	    TEST(a_process_that_cannot_be_looked_at_keeps_its_mapset),
	    TEST(an_exchange_is_in_force_from_its_time_on),
	    TEST(an_exec_that_is_told_of_before_the_sample_counts_too),
	    TEST(mappings_after_an_exec_are_not_read_for_the_old_program),
	    TEST(exchanges_are_read_at_once_and_each_sample_has_what_was_in_force),
	    TEST(exchanges_alone_are_not_read_without_end),
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
	    TEST(a_program_is_forgotten_when_it_was_not_used_for_a_while),
	    TEST(a_program_that_is_being_read_is_not_forgotten),
	    TEST(a_program_that_is_to_be_read_again_is_kept_with_its_mapset),
	    TEST(a_program_that_is_to_be_looked_at_again_is_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
