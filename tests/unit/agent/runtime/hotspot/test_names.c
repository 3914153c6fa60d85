/* SPDX-License-Identifier: Apache-2.0 */
/* Texts, numbers and tables of lines, as the machine writes them and as nobody should. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent/runtime/hotspot/hotspot.h"

static void assert_class(const char *from, const char *want)
{
	char buffer[128];
	struct hotspot_text text = {.at = buffer, .left = sizeof(buffer)};
	const uint8_t *bytes = (const uint8_t *)from;

	hotspot_text_put_name(&text, bytes, hotspot_class_shown(bytes, strlen(from)), true);
	assert_string_equal(hotspot_text_end(&text, buffer), want);
}

static void test_classes_are_readable(void **state)
{
	assert_class("java/lang/String", "java.lang.String");
	assert_class("kiln/Work$Circle", "kiln.Work$Circle");
	assert_class("kiln/Work$$Lambda$14+0x00007f0c2c001000", "kiln.Work$$Lambda");
	assert_class("kiln/Work$$Lambda+0x00007f0c2c001000", "kiln.Work$$Lambda");
	assert_class("kiln/Work$$Lambda$1", "kiln.Work$$Lambda");
	assert_class("kiln/Work$$Lambda$1x", "kiln.Work$$Lambda$1x");
	assert_class("java/lang/invoke/LambdaForm$MH+0x1f", "java.lang.invoke.LambdaForm$MH");
	assert_class("", "");
}

static void assert_utf8(const char *from, size_t n, const char *want)
{
	char buffer[64];
	struct hotspot_text text = {.at = buffer, .left = sizeof(buffer)};

	hotspot_text_put_name(&text, (const uint8_t *)from, n, false);
	assert_string_equal(hotspot_text_end(&text, buffer), want);
}

static void test_modified_utf8_becomes_utf8(void **state)
{
	assert_utf8("gr\xc3\xbc\xc3\x9f", 6, "gr\xc3\xbc\xc3\x9f");
	assert_utf8("\xed\xa0\xbd\xed\xb8\x80", 6, "\xf0\x9f\x98\x80");
	/* Halves, cut ones, overlong ones. */
	assert_utf8("a\xed\xa0\xbd", 4, "a???");
	assert_utf8("a\xc3", 2, "a?");
	assert_utf8("\xc0\x80", 2, "??");
	assert_utf8("\xff/", 2, "?/");
	assert_utf8("\0", 1, "?");
}

static void test_a_text_without_room_is_cut(void **state)
{
	char buffer[8];

	for (size_t left = 1; left <= sizeof(buffer); left++) {
		struct hotspot_text text = {.at = buffer, .left = left};

		memset(buffer, 'x', sizeof(buffer));
		hotspot_text_put_name(&text,
				      (const uint8_t *)"gr\xc3\xbc\xc3\x9f"
						       "en",
				      8, true);
		assert_true(strlen(hotspot_text_end(&text, buffer)) < left);
	}
}

static void assert_demangled(const char *from, const char *file, const char *want)
{
	char name[128];

	snprintf(name, sizeof(name), "%s", from);
	hotspot_name_demangle(name, file);
	assert_string_equal(name, want);
}

static void test_other_languages_are_demangled(void **state)
{
	assert_demangled("List.$colon$colon", "List.scala", "List.::");
	assert_demangled("Set.$plus$eq", "Set.scala", "Set.+=");
	/* Words that only begin alike, and another language. */
	assert_demangled("A.$update", "A.scala", "A.$update");
	assert_demangled("List.$colon$colon", "List.java", "List.$colon$colon");
	assert_demangled("core$empty_QMARK_.invoke", "core.clj", "core$empty?.invoke");
	assert_demangled("Job.run-IoAF18A", "Job.kt", "Job.run");
	assert_demangled("Job.run-forever", "Job.kt", "Job.run-forever");
	assert_demangled("Job.run-IoAF18A", "Job.java", "Job.run-IoAF18A");
}

static uint32_t number_of(const uint8_t *bytes, size_t n, uint32_t excluded, bool *bad)
{
	struct cursor c = cursor_of(bytes, n);
	uint32_t v = hotspot_read_number(&c, excluded);

	*bad = c.bad;
	return v;
}

static void test_numbers(void **state)
{
	/* 191 is the largest of one byte; a byte of 192 and more has one behind it. */
	static const uint8_t one[] = {191}, two[] = {192, 1}, five[] = {255, 255, 255, 255, 255};
	bool bad;

	assert_int_equal(number_of(one, sizeof(one), 0, &bad), 191);
	assert_int_equal(number_of(one, sizeof(one), 1, &bad), 190);
	assert_int_equal(number_of(two, sizeof(two), 0, &bad), 192 + 64);
	assert_int_equal(number_of(two, sizeof(two), 1, &bad), 191);
	assert_false(bad);
	(void)number_of(five, sizeof(five), 0, &bad);
	assert_false(bad);
	(void)number_of(five, 4, 0, &bad);
	assert_true(bad);
}

static void test_lines(void **state)
{
	/* 0: line 10 (a pair: 0, 20 signed); 3: 11; 5: 16; 9: 14 (a loop's condition) */
	static const uint8_t table[] = {255, 0, 20, 3 << 3 | 1, 2 << 3 | 5, 255, 8, 3, 0};
	static const uint32_t want[] = {10, 10, 10, 11, 11, 16, 16, 16, 16, 14, 14};
	uint32_t line, start;

	for (int32_t bci = 0; bci < (int32_t)ARRAY_SIZE(want); bci++) {
		hotspot_lines_find(table, sizeof(table), bci, 0, &line, &start);
		assert_int_equal(line, want[bci]);
		assert_int_equal(start, 10);
	}
	hotspot_lines_find(table, sizeof(table), -1, 0, &line, &start);
	assert_int_equal(line, 0);
	hotspot_lines_find(NULL, 0, 5, 0, &line, &start);
	assert_int_equal(line, 0);
}

static void test_any_bytes_will_do(void **state)
{
	uint8_t bytes[64];
	uint32_t seed = 7, line, start;

	for (int i = 0; i < 200000; i++) {
		size_t n = (size_t)i % (sizeof(bytes) + 1);

		for (size_t k = 0; k < n; k++) {
			seed = seed * 1664525 + 1013904223;
			bytes[k] = seed >> 30 ? (uint8_t)(seed >> 20) : 255;
		}
		hotspot_lines_find(bytes, n, (int32_t)(seed >> 16), i & 1, &line, &start);
		assert_true(line <= INT32_MAX && start <= INT32_MAX);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_classes_are_readable),
	    cmocka_unit_test(test_modified_utf8_becomes_utf8),
	    cmocka_unit_test(test_a_text_without_room_is_cut),
	    cmocka_unit_test(test_other_languages_are_demangled),
	    cmocka_unit_test(test_numbers),
	    cmocka_unit_test(test_lines),
	    cmocka_unit_test(test_any_bytes_will_do),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
