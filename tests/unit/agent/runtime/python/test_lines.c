// SPDX-License-Identifier: Apache-2.0
/* Tables of lines: those that the versions' own compilers made, and damaged ones. */
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdarg.h>

#include <cmocka.h>

#include "agent/runtime/python/python.h"

static uint32_t line(unsigned int minor, const char *bytes, size_t n, uint32_t first, int32_t lasti)
{
	return python_line(minor, cursor_of(bytes, n), first, lasti);
}
#define LINE(minor, text, first, lasti) line(minor, text, sizeof(text) - 1, first, lasti)

static void steps_go_forth_and_back(void **unused)
{
	/* Code 0..5 on line 10, 6..49 on line 11, 50.. on line 9; a step of no code adds lines. */
	static const char table[] = "\x06\x01\x2c\xfe\x00\x01\x04\x7f";

	(void)unused;
	assert_int_equal(LINE(8, table, 10, -1), 10);
	assert_int_equal(LINE(8, table, 10, 0), 10);
	assert_int_equal(LINE(8, table, 10, 5), 10);
	assert_int_equal(LINE(8, table, 10, 6), 11);
	assert_int_equal(LINE(8, table, 10, 49), 11);
	assert_int_equal(LINE(8, table, 10, 50), 10);
	assert_int_equal(LINE(8, table, 10, 54), 137);
	assert_int_equal(LINE(8, "", 10, 1000), 10);
	/* Below line 1 there is none. */
	assert_int_equal(LINE(8, "\x02\x80\x02\x80", 10, 4), 0);
}

static void ranges_may_have_no_line(void **unused)
{
	/* Bytes 0..3 line 5, 4..5 none, 6..9 line 7. */
	static const char table[] = "\x04\x00\x02\x80\x04\x02";

	(void)unused;
	assert_int_equal(LINE(10, table, 5, 0), 5);
	assert_int_equal(LINE(10, table, 5, 1), 5);
	assert_int_equal(LINE(10, table, 5, 2), 0);
	assert_int_equal(LINE(10, table, 5, 3), 7);
	assert_int_equal(LINE(10, table, 5, 4), 7);
	assert_int_equal(LINE(10, table, 5, 5), 0);
	assert_int_equal(LINE(10, table, 5, -1), 5);
}

static void locations_of_each_kind(void **unused)
{
	/* Short, one line further, none, no columns (+40 lines), long (-3 lines), short: 1 unit
	 * each. */
	static const char table[] = "\x80\x00"
				    "\xd8\x00\x00"
				    "\xf8"
				    "\xe8\x50\x01"
				    "\xf0\x07\x00\x01\x01"
				    "\x98\x00";

	(void)unused;
	assert_int_equal(LINE(11, table, 100, 0), 100);
	assert_int_equal(LINE(11, table, 100, 1), 100);
	assert_int_equal(LINE(11, table, 100, 2), 101);
	assert_int_equal(LINE(11, table, 100, 4), 0);
	assert_int_equal(LINE(11, table, 100, 6), 141);
	assert_int_equal(LINE(11, table, 100, 8), 138);
	assert_int_equal(LINE(11, table, 100, 10), 138);
	assert_int_equal(LINE(11, table, 100, 12), 0);
}

static void cut_tables_have_no_lines(void **unused)
{
	(void)unused;
	assert_int_equal(LINE(12, "", 1, 0), 0);
	assert_int_equal(LINE(12, "\xf0\x40\x40\x40\x40\x40\x40\x40\x40\x40\x40", 1, 0), 0);
	assert_int_equal(LINE(12, "\xf0", 1, 0), 0);
	assert_int_equal(LINE(12, "\x00\x00", 1, 0), 0);
	assert_int_equal(LINE(13, "\xe8\xfe\xff\xff\xff\xff\x7f\x01", UINT32_MAX, 0), 0);
	assert_int_equal(LINE(10, "\x04", 1, 0), 0);
	assert_int_equal(LINE(9, "\x04", 1, 100), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(steps_go_forth_and_back),
	    cmocka_unit_test(ranges_may_have_no_line),
	    cmocka_unit_test(locations_of_each_kind),
	    cmocka_unit_test(cut_tables_have_no_lines),
	};

	return cmocka_run_group_tests_name("python_lines", tests, NULL, NULL);
}
