/* SPDX-License-Identifier: Apache-2.0 */
/* Values from text: what is taken, what is refused, and that a refusal leaves the output alone. */
#include "lib/base.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "lib/parse.h"

enum { UNTOUCHED = 77 };

static void test_integers_are_whole_strings(void **state)
{
	static const struct {
		const char *text;
		int r;
		uint64_t value;
	} cases[] = {
	    {"0", 0, 0},
	    {"42", 0, 42},
	    {"0x1fF", 0, 0x1ff},
	    {"18446744073709551615", 0, UINT64_MAX},
	    {"18446744073709551616", -ERANGE, UNTOUCHED},
	    {"0x10000000000000000", -ERANGE, UNTOUCHED},
	    {"", -EINVAL, UNTOUCHED},
	    {"0x", -EINVAL, UNTOUCHED},
	    {"010", -EINVAL, UNTOUCHED},
	    {"+1", -EINVAL, UNTOUCHED},
	    {"-1", -EINVAL, UNTOUCHED},
	    {" 1", -EINVAL, UNTOUCHED},
	    {"1 ", -EINVAL, UNTOUCHED},
	    {"1e3", -EINVAL, UNTOUCHED},
	    {"12a", -EINVAL, UNTOUCHED},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint64_t v = UNTOUCHED;

		assert_int_equal(parse_u64(cases[i].text, &v), cases[i].r);
		assert_true(v == cases[i].value);
	}
}

static void test_signed_integers_reach_both_ends(void **state)
{
	int64_t v = UNTOUCHED;

	assert_int_equal(parse_i64("-9223372036854775808", &v), 0);
	assert_true(v == INT64_MIN);
	assert_int_equal(parse_i64("9223372036854775807", &v), 0);
	assert_true(v == INT64_MAX);
	assert_int_equal(parse_i64("-9223372036854775809", &v), -ERANGE);
	assert_int_equal(parse_i64("9223372036854775808", &v), -ERANGE);
	assert_int_equal(parse_i64("--1", &v), -EINVAL);
	assert_int_equal(parse_i64("-", &v), -EINVAL);
	assert_true(v == INT64_MAX);
}

static void test_fractions_are_decimal_and_finite(void **state)
{
	static const char *const bad[] = {"",	  ".",	  "-",	"inf", "nan",	"0x1p3", "1,5",
					  " 1.5", "1.5 ", "1e", "e5",  "1.5.2", "1e+",	 "1f"};
	double v = UNTOUCHED;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(parse_double(bad[i], &v), -EINVAL);
	assert_int_equal(parse_double("1e999", &v), -ERANGE);
	assert_true(v == UNTOUCHED);
	assert_int_equal(parse_double("-1.5e-1", &v), 0);
	assert_true(v == -0.15);
	assert_int_equal(parse_double(".5", &v), 0);
	assert_true(v == 0.5);
	assert_int_equal(parse_double("5.", &v), 0);
	assert_true(v == 5);
}

static void test_booleans_are_the_collectors(void **state)
{
	static const char *const bad[] = {"yes", "no", "on", "1", "0", "t", "tRUE", "", "true "};
	bool v = false;

	assert_true(parse_bool("true", &v) == 0 && v);
	assert_true(parse_bool("False", &v) == 0 && !v);
	assert_true(parse_bool("TRUE", &v) == 0 && v);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(parse_bool(bad[i], &v), -EINVAL);
	assert_true(v);
}

static void test_durations_are_gos(void **state)
{
	static const struct {
		const char *text;
		int r;
		uint64_t ns;
	} cases[] = {
	    {"0", 0, 0},
	    {"0s", 0, 0},
	    {"5s", 0, 5000000000},
	    {"1m30s", 0, 90000000000},
	    {"100ms", 0, 100000000},
	    {"1.5h", 0, 5400000000000},
	    {".5s", 0, 500000000},
	    {"2h45m1.25s", 0, 9901250000000},
	    {"7us", 0, 7000},
	    {"7\xc2\xb5s", 0, 7000},
	    {"7\xce\xbcs", 0, 7000},
	    {"3ns", 0, 3},
	    {"0.0000000009s", 0, 0},
	    {"2562047h47m16.854775807s", 0, INT64_MAX},
	    {"2562047h47m16.854775808s", -ERANGE, UNTOUCHED},
	    {"99999999999999999999s", -ERANGE, UNTOUCHED},
	    {"", -EINVAL, UNTOUCHED},
	    {"5", -EINVAL, UNTOUCHED},
	    {"s", -EINVAL, UNTOUCHED},
	    {".s", -EINVAL, UNTOUCHED},
	    {"-5s", -EINVAL, UNTOUCHED},
	    {"5 s", -EINVAL, UNTOUCHED},
	    {"5d", -EINVAL, UNTOUCHED},
	    {"5s3", -EINVAL, UNTOUCHED},
	    {"5S", -EINVAL, UNTOUCHED},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint64_t v = UNTOUCHED;

		assert_int_equal(parse_duration(cases[i].text, &v), cases[i].r);
		assert_true(v == cases[i].ns);
	}
}

static void test_sizes_have_binary_and_decimal_units(void **state)
{
	static const struct {
		const char *text;
		int r;
		uint64_t bytes;
	} cases[] = {
	    {"512", 0, 512},
	    {"512B", 0, 512},
	    {"64MiB", 0, 64 << 20},
	    {"1.5 GiB", 0, 3ULL << 29},
	    {"10KB", 0, 10000},
	    {"10k", 0, 10000},
	    {"2Ti", 0, 2ULL << 40},
	    {"16777216TiB", -ERANGE, UNTOUCHED},
	    {"64mib", -EINVAL, UNTOUCHED},
	    {"MiB", -EINVAL, UNTOUCHED},
	    {"-1", -EINVAL, UNTOUCHED},
	    {"1 ", -EINVAL, UNTOUCHED},
	    {"", -EINVAL, UNTOUCHED},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint64_t v = UNTOUCHED;

		assert_int_equal(parse_size(cases[i].text, &v), cases[i].r);
		assert_true(v == cases[i].bytes);
	}
}

static void test_addresses_need_a_port(void **state)
{
	static const struct {
		const char *text;
		int r;
		const char *host;
		uint16_t port;
	} cases[] = {
	    {"host:4317", 0, "host", 4317},	{"a.b-c_d.svc:1", 0, "a.b-c_d.svc", 1},
	    {"127.0.0.1:0", 0, "127.0.0.1", 0}, {":1777", 0, "", 1777},
	    {"[::1]:4317", 0, "::1", 4317},	{"[fe80::1%eth0]:65535", 0, "fe80::1%eth0", 65535},
	    {"host:65536", -ERANGE, NULL, 0},	{"host", -EINVAL, NULL, 0},
	    {"host:", -EINVAL, NULL, 0},	{"::1:4317", -EINVAL, NULL, 0},
	    {"[::1]", -EINVAL, NULL, 0},	{"[]:1", -EINVAL, NULL, 0},
	    {"[host]:1", -EINVAL, NULL, 0},	{"[::1]x:1", -EINVAL, NULL, 0},
	    {"a b:1", -EINVAL, NULL, 0},	{"host:+1", -EINVAL, NULL, 0},
	    {"http://h:1", -EINVAL, NULL, 0},	{"", -EINVAL, NULL, 0},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct host_port v = {.host = "untouched", .port = UNTOUCHED};

		assert_int_equal(parse_host_port(cases[i].text, &v), cases[i].r);
		assert_string_equal(v.host, cases[i].r ? "untouched" : cases[i].host);
		assert_int_equal(v.port, cases[i].r ? UNTOUCHED : cases[i].port);
	}
}

static void test_a_host_is_as_long_as_dns_allows(void **state)
{
	char text[PARSE_HOST_MAX + 8];
	struct host_port v;

	memset(text, 'a', sizeof(text));
	strcpy(text + PARSE_HOST_MAX, ":1");
	assert_int_equal(parse_host_port(text, &v), 0);
	assert_int_equal(strlen(v.host), PARSE_HOST_MAX);
	memset(text, 'a', sizeof(text));
	strcpy(text + PARSE_HOST_MAX + 1, ":1");
	assert_int_equal(parse_host_port(text, &v), -EINVAL);
}

static void test_percent_escapes_are_decoded_or_left_alone(void **state)
{
	char good[] = "a%20b%2Cc%c3%a9", bad[] = "a%20b%2", zero[] = "a%20%00";

	assert_int_equal(parse_percent_decode(good), 0);
	assert_string_equal(good, "a b,c\xc3\xa9");
	assert_int_equal(parse_percent_decode(bad), -EINVAL);
	assert_string_equal(bad, "a%20b%2");
	assert_int_equal(parse_percent_decode(zero), -EINVAL);
}

static void test_names_compare_without_case_and_underscores(void **state)
{
	assert_true(parse_same_name("samples_per_second", "SamplesPerSecond"));
	assert_true(parse_same_name("_a_", "A"));
	assert_false(parse_same_name("samples", "sample"));
	assert_false(parse_same_name("sample", "samples_"));
	assert_int_equal(parse_edit_distance("samples_per_second", "SamplesPerSecond"), 0);
	assert_int_equal(parse_edit_distance("sampels", "samples"), 1); /* neighbours swapped */
	assert_int_equal(parse_edit_distance("kitten", "sitting"), 3);
	assert_int_equal(parse_edit_distance("", "abc"), 3);
	assert_int_equal(parse_edit_distance("abc", ""), 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_integers_are_whole_strings),
	    cmocka_unit_test(test_signed_integers_reach_both_ends),
	    cmocka_unit_test(test_fractions_are_decimal_and_finite),
	    cmocka_unit_test(test_booleans_are_the_collectors),
	    cmocka_unit_test(test_durations_are_gos),
	    cmocka_unit_test(test_sizes_have_binary_and_decimal_units),
	    cmocka_unit_test(test_addresses_need_a_port),
	    cmocka_unit_test(test_a_host_is_as_long_as_dns_allows),
	    cmocka_unit_test(test_percent_escapes_are_decoded_or_left_alone),
	    cmocka_unit_test(test_names_compare_without_case_and_underscores),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
