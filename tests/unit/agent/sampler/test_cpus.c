/* SPDX-License-Identifier: Apache-2.0 */
#include <unistd.h>

#include "agent/sampler/cpus.h"
#include "tests/support/test.h"

/* PATH: a template for mkstemp(). */
static void write_list(char *path, const char *text)
{
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static int read_list_beyond(const char *text, bool *ret, size_t n, size_t *ret_beyond)
{
	char path[] = "/tmp/kiln-test-cpus-XXXXXX";
	int r;

	write_list(path, text);
	r = cpus_read(path, ret, n, ret_beyond);
	unlink(path);
	return r;
}

static int read_list(const char *text, bool *ret, size_t n)
{
	return read_list_beyond(text, ret, n, NULL);
}

static size_t expect_of(const char *text, size_t possible)
{
	char path[] = "/tmp/kiln-test-cpus-XXXXXX";
	size_t n;

	write_list(path, text);
	n = cpus_expected(path, possible);
	unlink(path);
	return n;
}

static void ranges_and_single_cpus_are_read(void **state)
{
	bool online[8];

	assert_int_equal(read_list("0-2,5,7\n", online, 8), 0);
	for (int i = 0; i < 8; i++)
		assert_int_equal(online[i], i <= 2 || i == 5 || i == 7);
	assert_int_equal(read_list("0\n", online, 8), 0);
	assert_true(online[0] && !online[1]);
	assert_int_equal(read_list("\n", online, 8), 0);
	assert_false(online[0]);
}

static void cpus_beyond_the_end_are_only_counted(void **state)
{
	static const struct {
		const char *list;
		size_t beyond;
	} cases[] = {{"1", 0}, {"1-2", 1}, {"0-1,5,7-9", 4}, {"1-99999", 99998}, {"8-7", 0}};
	bool online[3] = {false, false, true};
	size_t beyond = 7;

	assert_int_equal(read_list("1-99999\n", online, 2), 0);
	assert_true(!online[0] && online[1] && online[2]);
	assert_int_equal(read_list_beyond("0-3;", online, 2, &beyond), -EBADMSG);
	assert_int_equal(beyond, 7);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(read_list_beyond(cases[i].list, online, 2, &beyond), 0);
		assert_int_equal(beyond, cases[i].beyond);
	}
}

static void there_is_room_for_twice_the_cpus_within_the_possible_ones(void **state)
{
	assert_int_equal(cpus_room(2, 240), 4);
	assert_int_equal(cpus_room(8, 240), 16);
	assert_int_equal(cpus_room(1, 240), 4);
	assert_int_equal(cpus_room(2, 2), 2);
	assert_int_equal(cpus_room(96, 128), 128);
	assert_int_equal(cpus_room(128, 128), 128);
}

static void cpus_that_are_present_are_expected_with_as_many_again(void **state)
{
	assert_int_equal(expect_of("0-1\n", 128), 4);
	assert_int_equal(expect_of("0-127\n", 128), 128);
	assert_int_equal(expect_of("0\n", 1), 1);
	/* Numbers count, not CPUs. */
	assert_int_equal(expect_of("0,4-6\n", 128), 14);
	/* More than the possible ones are not believed. */
	assert_int_equal(expect_of("0-7\n", 2), 2);
	/* Without a list, every possible CPU is expected. */
	assert_int_equal(expect_of("x", 128), 128);
	assert_int_equal(cpus_expected("/nonexistent", 128), 128);
}

static void what_is_no_list_changes_nothing(void **state)
{
	static const char *const lists[] = {"x", "0-", "1;2", "-3", "0-1 x"};
	bool online[4] = {true, false, true, false};

	for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
		assert_int_equal(read_list(lists[i], online, 4), -EBADMSG);
	assert_true(online[0] && !online[1] && online[2] && !online[3]);
	assert_int_equal(cpus_read("/nonexistent", online, 4, NULL), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(ranges_and_single_cpus_are_read),
	    cmocka_unit_test(cpus_beyond_the_end_are_only_counted),
	    cmocka_unit_test(there_is_room_for_twice_the_cpus_within_the_possible_ones),
	    cmocka_unit_test(cpus_that_are_present_are_expected_with_as_many_again),
	    cmocka_unit_test(what_is_no_list_changes_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
