/* SPDX-License-Identifier: Apache-2.0 */
#include <unistd.h>

#include "agent/sampler/cpus.h"
#include "tests/support/test.h"

static int read_list(const char *text, bool *ret, size_t n)
{
	char path[] = "/tmp/kiln-test-cpus-XXXXXX";
	int fd = mkstemp(path), r;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	r = cpus_read(path, ret, n);
	unlink(path);
	return r;
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

static void cpus_beyond_the_possible_ones_are_left_out(void **state)
{
	bool online[3] = {false, false, true};

	assert_int_equal(read_list("1-99999\n", online, 2), 0);
	assert_true(!online[0] && online[1] && online[2]);
}

static void what_is_no_list_changes_nothing(void **state)
{
	static const char *const lists[] = {"x", "0-", "1;2", "-3", "0-1 x"};
	bool online[4] = {true, false, true, false};

	for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
		assert_int_equal(read_list(lists[i], online, 4), -EBADMSG);
	assert_true(online[0] && !online[1] && online[2] && !online[3]);
	assert_int_equal(cpus_read("/nonexistent", online, 4), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(ranges_and_single_cpus_are_read),
	    cmocka_unit_test(cpus_beyond_the_possible_ones_are_left_out),
	    cmocka_unit_test(what_is_no_list_changes_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
