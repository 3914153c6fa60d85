/* SPDX-License-Identifier: Apache-2.0 */
/* When a program's mappings are known from the kernel's notes, and when they are not. */
#include "agent/sampler/map_notes.h"

#include "tests/support/test.h"

enum { PID = 7, PAGE = 4096 };

static struct map_notes *notes;
static struct maps maps;

static int setup(void **state)
{
	return map_notes_new(&notes);
}

static int teardown(void **state)
{
	maps_done(&maps);
	map_notes_free(notes);
	return 0;
}

static void map(uint32_t tgid, uint64_t time, uint64_t start, uint64_t pages, const char *path)
{
	const struct sideband_mapping m = {
	    .tgid = tgid,
	    .dev_major = 8,
	    .dev_minor = 1,
	    .inode = start + 1,
	    .start = start,
	    .length = pages * PAGE,
	    .offset = PAGE,
	    .time = time,
	};

	map_notes_mapped(notes, &m, path);
}

/* N notes of another process, from TIME on. */
static void fill(uint64_t time, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		map(PID + 1, time + i, 0x100000, 1, "/bin/x");
}

static int told(uint32_t tgid, uint64_t start_ns, uint64_t time)
{
	maps_done(&maps);
	return map_notes_read(notes, tgid, start_ns, time, &maps);
}

static void a_program_is_what_it_mapped_since_its_exec(void **state)
{
	map(PID, 90, 0x100000, 1, "/bin/before");
	map_notes_executed(notes, PID, 100);
	map(PID, 120, 0x300000, 2, "/lib/libc.so");
	map(PID + 1, 105, 0x300000, 2, "/lib/other.so");
	map(PID, 110, 0x200000, 1, "/bin/true (deleted)");
	map(PID, 130, 0x7f0000, 1, "[vdso]");
	map(PID, 141, 0x400000, 1, "/lib/later.so");
	assert_int_equal(told(PID, 50, 140), 0);
	assert_int_equal(maps.n, 3);
	assert_string_equal(maps.entries[0].path, "/bin/true");
	assert_true(maps.entries[0].deleted);
	assert_int_equal(maps.entries[0].kind, MAPPING_FILE);
	assert_int_equal(maps.entries[0].start, 0x200000);
	assert_int_equal(maps.entries[0].end, 0x201000);
	assert_int_equal(maps.entries[0].offset, PAGE);
	assert_int_equal(maps.entries[0].inode, 0x200001);
	assert_int_equal(maps.entries[0].dev_major, 8);
	assert_int_equal(maps.entries[0].dev_minor, 1);
	assert_string_equal(maps.entries[1].path, "/lib/libc.so");
	assert_int_equal(maps.entries[2].kind, MAPPING_VDSO);
}

static void each_of_two_programs_has_its_own(void **state)
{
	map_notes_executed(notes, PID, 100);
	map(PID, 110, 0x100000, 1, "/bin/sh");
	map_notes_executed(notes, PID, 200);
	map(PID, 210, 0x100000, 1, "/bin/ls");
	assert_int_equal(told(PID, 50, 199), 0);
	assert_int_equal(maps.n, 1);
	assert_string_equal(maps.entries[0].path, "/bin/sh");
	assert_int_equal(told(PID, 50, 220), 0);
	assert_int_equal(maps.n, 1);
	assert_string_equal(maps.entries[0].path, "/bin/ls");
}

/* Unmapping is not noted: a later mapping replaces earlier ones at its addresses. */
static void a_mapping_takes_the_place_of_earlier_ones(void **state)
{
	map_notes_executed(notes, PID, 100);
	map(PID, 140, 0x101000, 2, "/lib/new.so");
	map(PID, 110, 0x100000, 2, "/lib/a.so");
	map(PID, 120, 0x102000, 2, "/lib/b.so");
	map(PID, 130, 0x105000, 1, "/lib/c.so");
	assert_int_equal(told(PID, 50, 139), 0);
	assert_int_equal(maps.n, 3);
	assert_int_equal(told(PID, 50, 140), 0);
	assert_int_equal(maps.n, 2);
	assert_string_equal(maps.entries[0].path, "/lib/new.so");
	assert_string_equal(maps.entries[1].path, "/lib/c.so");
}

static void who_had_the_pid_before_is_another(void **state)
{
	map_notes_executed(notes, PID, 100);
	map(PID, 110, 0x100000, 1, "/bin/sh");
	assert_int_equal(told(PID, 100, 300), 0);
	assert_int_equal(told(PID, 101, 300), -ENOENT);
	assert_int_equal(told(PID + 1, 50, 300), -ENOENT);
}

static void a_program_with_lost_notes_is_not_told(void **state)
{
	map_notes_executed(notes, PID, 100);
	map(PID, 110, 0x100000, 1, "/bin/sh");
	map_notes_lost(notes, 120);
	assert_int_equal(told(PID, 50, 300), -ENOENT);
	map_notes_executed(notes, PID, 121);
	map(PID, 130, 0x100000, 1, "/bin/ls");
	assert_int_equal(told(PID, 50, 300), 0);
}

static void an_exec_since_is_told_and_feared_where_notes_are_lost(void **state)
{
	map_notes_executed(notes, PID, 100);
	assert_false(map_notes_may_have_executed(notes, PID, 100, 300));
	assert_true(map_notes_may_have_executed(notes, PID, 99, 300));
	assert_false(map_notes_may_have_executed(notes, PID, 50, 99));
	assert_false(map_notes_may_have_executed(notes, PID + 1, 50, 300));
	map_notes_lost(notes, 200);
	assert_true(map_notes_may_have_executed(notes, PID + 1, 199, 300));
	assert_false(map_notes_may_have_executed(notes, PID + 1, 200, 300));
}

static void the_oldest_notes_go_first(void **state)
{
	map_notes_executed(notes, PID, 100);
	map(PID, 110, 0x100000, 1, "/bin/sh");
	fill(200, MAP_NOTES_MAX - 2);
	assert_int_equal(told(PID, 50, 150), 0);
	/* When the note of the exec is dropped, its mappings cannot be told either. */
	fill(10000, 1);
	assert_int_equal(told(PID, 50, 150), -ENOENT);
}

/*
 * The note of the exec is read after one of a later mapping, because its CPU's ring was read later.
 */
static void what_is_as_old_as_a_note_that_went_is_not_told(void **state)
{
	map(PID + 1, 100, 0x100000, 1, "/bin/x");
	map_notes_executed(notes, PID, 90);
	map(PID, 95, 0x100000, 1, "/bin/sh");
	fill(200, MAP_NOTES_MAX - 3);
	assert_int_equal(told(PID, 50, 150), 0);
	fill(10000, 1);
	assert_int_equal(told(PID, 50, 150), -ENOENT);
}

static void a_program_of_too_many_mappings_is_not_told(void **state)
{
	map_notes_executed(notes, PID, 100);
	for (uint64_t i = 0; i < MAP_NOTES_PROGRAM_MAX; i++)
		map(PID, 101 + i, (i + 1) * PAGE, 1, "/lib/x.so");
	assert_int_equal(told(PID, 50, 10000), 0);
	assert_int_equal(maps.n, MAP_NOTES_PROGRAM_MAX);
	map(PID, 9000, PAGE, 1, "/lib/x.so");
	assert_int_equal(told(PID, 50, 10000), -ENOENT);
}

static void long_paths_take_the_place_of_more_notes(void **state)
{
	char path[4000];

	memset(path, 'x', sizeof(path) - 1);
	path[sizeof(path) - 1] = 0;
	map_notes_executed(notes, PID, 100);
	map(PID, 110, 0x100000, 1, "/bin/sh");
	for (size_t i = 0; i < MAP_NOTES_BYTES_MAX / sizeof(path) - 1; i++)
		map(PID + 1, 200 + i, 0x100000, 1, path);
	assert_int_equal(told(PID, 50, 150), 0);
	map(PID + 1, 900, 0x100000, 1, path);
	map(PID + 1, 901, 0x100000, 1, path);
	assert_int_equal(told(PID, 50, 150), -ENOENT);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(a_program_is_what_it_mapped_since_its_exec),
	    TEST(each_of_two_programs_has_its_own),
	    TEST(a_mapping_takes_the_place_of_earlier_ones),
	    TEST(who_had_the_pid_before_is_another),
	    TEST(a_program_with_lost_notes_is_not_told),
	    TEST(an_exec_since_is_told_and_feared_where_notes_are_lost),
	    TEST(the_oldest_notes_go_first),
	    TEST(what_is_as_old_as_a_note_that_went_is_not_told),
	    TEST(a_program_of_too_many_mappings_is_not_told),
	    TEST(long_paths_take_the_place_of_more_notes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
