/* SPDX-License-Identifier: Apache-2.0 */
/* Tables: each type's destination and message, spellings, ranges, warnings, secrets. */
#include "lib/base.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "lib/fields.h"

struct inner {
	bool on;
	char *name;
};

struct thing {
	bool flag;
	uint32_t small;
	uint64_t large, wait_ms, bytes;
	double share;
	char *text, *choice, *secret;
	struct inner inner;
};

static const char *const choices[] = {"red", "green", "blue", NULL};
static const struct field inner_rows[] = {
    {.name = "on", .type = FIELD_BOOL, .offset = offsetof(struct inner, on)},
    {.name = "name", .type = FIELD_STRING, .offset = offsetof(struct inner, name)},
    {.type = FIELD_END},
};
#define AT(member) .offset = offsetof(struct thing, member)
static const struct field rows[] = {
    {.name = "a_flag", .type = FIELD_BOOL, AT(flag)},
    {.name = "small", .type = FIELD_U32, AT(small), .min = 1, .max = 10},
    {.name = "large", .type = FIELD_U64, AT(large)},
    {.name = "wait", .type = FIELD_DURATION_MS, AT(wait_ms), .min = 100, .max = 5400000},
    {.name = "bytes", .type = FIELD_SIZE, AT(bytes), .min = 1024, .max = 1 << 20},
    {.name = "share", .type = FIELD_DOUBLE, AT(share), .min = 0, .max = 1},
    {.name = "text", .type = FIELD_STRING, AT(text)},
    {.name = "choice", .type = FIELD_CHOICE, AT(choice), .choices = choices},
    {.name = "secret", .type = FIELD_CHOICE, AT(secret), .choices = choices, .secret = true},
    {.name = "inner", .type = FIELD_MAP, AT(inner), .rows = inner_rows},
    {.name = "elsewhere", .type = FIELD_IGNORED},
    {.name = "noted", .type = FIELD_IGNORED, .note = "a note"},
    {.name = "quiet", .type = FIELD_QUIET},
    {.type = FIELD_END},
};

static char warnings[1024];

static void keep(void *arg, const char *line)
{
	strcat(strcat(warnings, line), "\n");
}

static void thing_done(struct thing *t)
{
	free(t->text);
	free(t->choice);
	free(t->secret);
	free(t->inner.name);
}

static int decode(const char *yaml, struct thing *t, struct error *err)
{
	_cleanup_(yaml_tree_freep) struct yaml_node *root = NULL;
	struct fields f = {.file = "f", .warn = keep, .err = err};

	warnings[0] = 0;
	assert_int_equal(yaml_tree_load("f", yaml, strlen(yaml), &root, err), 0);
	fields_enter(&f, "top");
	return fields_decode(&f, root, rows, t);
}

static void test_each_type_reaches_its_member(void **state)
{
	_cleanup_(thing_done) struct thing t = {.share = 0.25, .text = strdup("old")};
	struct error err = {0};

	assert_int_equal(decode("A_Flag: true\nSMALL: 10\nlarge: 0xffffffffffffffff\n"
				"wait: 1m30s\nbytes: 4KiB\nshare:\ntext: new\nchoice: blue\n"
				"inner: {on: true, name: 'x'}\nquiet: [1]\n",
				&t, &err),
			 0);
	assert_true(t.flag);
	assert_int_equal(t.small, 10);
	assert_true(t.large == UINT64_MAX);
	assert_int_equal(t.wait_ms, 90000);
	assert_int_equal(t.bytes, 4096);
	assert_true(t.share == 0.25); /* null keeps what was there */
	assert_string_equal(t.text, "new");
	assert_string_equal(t.choice, "blue");
	assert_true(t.inner.on);
	assert_string_equal(t.inner.name, "x");
	assert_string_equal(warnings, "");
}

static void test_a_rest_of_a_millisecond_counts(void **state)
{
	_cleanup_(thing_done) struct thing t = {0};
	struct error err = {0};

	assert_int_equal(decode("wait: 100.0001ms\n", &t, &err), 0);
	assert_int_equal(t.wait_ms, 101);
}

static void test_each_mistake_is_told_in_one_line(void **state)
{
	static const struct {
		const char *yaml, *message;
	} cases[] = {
	    {"a_flag: 1", "f:1: top.a_flag: want true or false, got \"1\""},
	    {"a_flag: {}", "f:1: top.a_flag: want true or false, got a map"},
	    {"\nsmall: 11", "f:2: top.small: want 1..10, got 11"},
	    {"small: 5000000000", "f:1: top.small: want 1..10, got 5000000000"},
	    {"small: x", "f:1: top.small: want a whole number, got \"x\""},
	    {"large: 18446744073709551616", "f:1: top.large: 18446744073709551616 is too large"},
	    {"wait: 2h", "f:1: top.wait: want 100ms..1h30m, got \"2h\""},
	    {"bytes: 2MiB", "f:1: top.bytes: want 1KiB..1MiB, got \"2MiB\""},
	    {"bytes: 99999999999TiB", "f:1: top.bytes: want 1KiB..1MiB, got \"99999999999TiB\""},
	    {"share: -0.1", "f:1: top.share: want 0..1, got -0.1"},
	    {"share: [1]", "f:1: top.share: want a number, got a list"},
	    {"text: [1]", "f:1: top.text: want text, got a list"},
	    {"choice: gren", "f:1: top.choice: want red, green or blue, got \"gren\""},
	    {"secret: hunter2", "f:1: top.secret: want red, green or blue, got something else"},
	    {"inner: [1]", "f:1: top.inner: want a map, got a list"},
	    {"inner:\n  onn: 1", "f:2: top.inner.onn: unknown key; did you mean on?"},
	    {"choise: red", "f:1: top.choise: unknown key; did you mean choice?"},
	    {"zzzzzz: red", "f:1: top.zzzzzz: unknown key"},
	    {"aflag: true\na_flag: true", "f:2: top.a_flag: given twice, in two spellings"},
	    {"[a]", "f:1: top: want a map, got a list"},
	    {"text: x\nsmall: \"a\\nb\"", "f:2: top.small: want a whole number, got \"a?b\""},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(thing_done) struct thing t = {0};
		struct error err = {0};

		assert_int_equal(decode(cases[i].yaml, &t, &err), -EINVAL);
		assert_string_equal(err.message, cases[i].message);
	}
}

static void test_ignored_keys_warn(void **state)
{
	_cleanup_(thing_done) struct thing t = {0};
	struct error err = {0};

	assert_int_equal(decode("elsewhere: 1\nnoted: {a: b}\n", &t, &err), 0);
	assert_string_equal(warnings,
			    "f:1: top.elsewhere: accepted, but has no effect in this agent\n"
			    "f:2: top.noted: a note\n");
}

static void test_quotes_never_cut_a_character(void **state)
{
	char text[256] = "";

	assert_string_equal(quote_text("a\tb").text, "\"a?b\"");
	for (int i = 0; i < 40; i++)
		strcat(text, "\xc3\xa9");
	assert_int_equal(strlen(quote_text(text).text), 64 + 5);
	memmove(text + 1, text, strlen(text) + 1);
	text[0] = 'x';
	assert_int_equal(strlen(quote_text(text).text), 63 + 5);
}

static void test_a_message_is_one_line_whatever_it_quotes(void **state)
{
	struct error err = {0};
	struct fields f = {.file = "f\ng", .warn = keep, .err = &err};

	warnings[0] = 0;
	fields_enter(&f, "k\x1b[0m");
	assert_int_equal(fields_error(&f, NULL, "got %s", "a\r\nb"), -EINVAL);
	assert_string_equal(err.message, "f?g: k?[0m: got a??b");
	fields_warn(&f, NULL, "got %s", "\x7f");
	assert_string_equal(warnings, "f?g: k?[0m: got ?\n");
}

static void test_paths_longer_than_the_buffer_are_cut_and_come_back(void **state)
{
	struct fields f = {.file = "f"};
	char key[400];
	size_t a, b;

	memset(key, 'k', sizeof(key) - 1);
	key[sizeof(key) - 1] = 0;
	fields_enter(&f, "top");
	a = fields_enter(&f, key);
	b = fields_enter(&f, "more");
	assert_int_equal(strlen(f.path), sizeof(f.path) - 1);
	fields_leave(&f, b);
	fields_leave(&f, a);
	assert_string_equal(f.path, "top");
	fields_enter(&f, "[0]");
	fields_enter(&f, "x");
	assert_string_equal(f.path, "top[0].x");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_each_type_reaches_its_member),
	    cmocka_unit_test(test_a_rest_of_a_millisecond_counts),
	    cmocka_unit_test(test_each_mistake_is_told_in_one_line),
	    cmocka_unit_test(test_ignored_keys_warn),
	    cmocka_unit_test(test_quotes_never_cut_a_character),
	    cmocka_unit_test(test_a_message_is_one_line_whatever_it_quotes),
	    cmocka_unit_test(test_paths_longer_than_the_buffer_are_cut_and_come_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
