/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/agent/window/discovery_rig.h"

struct discovery_rig t;

atomic_llong ahead_ns;

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

uint64_t monotonic_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

uint64_t boot_ns(void)
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

int setup(void **state)
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

int teardown(void **state)
{
	assert_int_equal(discovery_stop(t.d), 0);
	uv_run(&t.loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&t.loop), 0);
	discovery_free(t.d);
	map_notes_free(t.notes);
	return fake_teardown(state);
}

void ask(int want)
{
	assert_int_equal(discovery_ask(t.d, &t.record, false), want);
	uv_run(&t.loop, UV_RUN_DEFAULT);
}

bool holds(void)
{
	return discovery_holds(t.d, &t.record, mapset_store_find(fake.mapsets, t.record.mapset));
}

bool is_given_up(void)
{
	return fake.process.flags & KILN_PROCESS_UNRESOLVED;
}
