/* SPDX-License-Identifier: Apache-2.0 */
/* What a probe may be called, and that a refusal names the wrong part and what is wanted. */
#include "lib/base.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "lib/probe_spec.h"

static struct probe_spec parsed(const char *text)
{
	struct probe_spec p;
	struct error err = {0};

	if (probe_spec_parse(text, &p, &err) < 0)
		fail_msg("%s: %s", text, err.message);
	return p;
}

static void test_each_kind_has_its_parts(void **state)
{
	static const struct {
		const char *text;
		enum probe_kind kind;
		const char *target, *name;
	} cases[] = {
	    {"uprobe:/lib/libc.so.6:malloc", PROBE_UPROBE, "/lib/libc.so.6", "malloc"},
	    {"uretprobe:/usr/bin/a:f", PROBE_URETPROBE, "/usr/bin/a", "f"},
	    {"kprobe:vfs_read", PROBE_KPROBE, "", "vfs_read"},
	    {"kprobe:tcp_ack.constprop.0", PROBE_KPROBE, "", "tcp_ack.constprop.0"},
	    {"tracepoint:sched:sched_process_exec", PROBE_TRACEPOINT, "sched",
	     "sched_process_exec"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct probe_spec p = parsed(cases[i].text);

		assert_int_equal(p.kind, cases[i].kind);
		assert_string_equal(p.target, cases[i].target);
		assert_string_equal(p.name, cases[i].name);
		assert_string_equal(p.text, cases[i].text);
		assert_int_equal(p.rate, PROBE_RATE_DEFAULT);
	}
}

static void test_the_last_colon_ends_the_path(void **state)
{
	struct probe_spec p = parsed("uprobe:/srv/a:b/c,d:main.(*T).Get");

	(void)state;
	assert_string_equal(p.target, "/srv/a:b/c,d");
	assert_string_equal(p.name, "main.(*T).Get");
}

static void test_the_rate_is_no_part_of_the_name(void **state)
{
	struct probe_spec p = parsed("uprobe:/bin/a:f,rate=2500");

	(void)state;
	assert_int_equal(p.rate, 2500);
	assert_string_equal(p.text, "uprobe:/bin/a:f");
	assert_string_equal(p.name, "f");
	p = parsed("uprobe:/bin/a,b:f,rate=1");
	assert_int_equal(p.rate, 1);
	assert_string_equal(p.target, "/bin/a,b");
}

static void test_a_refusal_says_what_is_wanted(void **state)
{
	static const struct {
		const char *text, *message;
	} cases[] = {
	    {"", "want uprobe:PATH:FUNCTION, uretprobe:PATH:FUNCTION, kprobe:FUNCTION or "
		 "tracepoint:SUBSYSTEM:NAME, got \"\""},
	    {"malloc", "want uprobe:PATH:FUNCTION, uretprobe:PATH:FUNCTION, kprobe:FUNCTION or "
		       "tracepoint:SUBSYSTEM:NAME, got \"malloc\""},
	    {"uprobes:/a:f",
	     "want uprobe:PATH:FUNCTION, uretprobe:PATH:FUNCTION, kprobe:FUNCTION or "
	     "tracepoint:SUBSYSTEM:NAME, got \"uprobes:/a:f\""},
	    {"uprobe:malloc", "want PATH:FUNCTION after the kind, got \"uprobe:malloc\""},
	    {"uprobe:libc.so.6:malloc", "want an absolute path after uprobe:, got \"libc.so.6\""},
	    {"uprobe:/:malloc", "want an absolute path after uprobe:, got \"/\""},
	    {"uprobe:/lib/libc.so.6:", "want the name of a function after the last colon"},
	    {"kprobe:", "want the name of a function after the last colon"},
	    {"kprobe:vfs_read+4", "want the name of a function, got \"vfs_read+4\""},
	    {"kprobe:4", "want the name of a function, got \"4\""},
	    {"tracepoint:sched_process_exec",
	     "want tracepoint:SUBSYSTEM:NAME, got \"tracepoint:sched_process_exec\""},
	    {"tracepoint:../x:y", "want the tracepoint's subsystem, got \"../x\""},
	    {"tracepoint:sched:", "want the name of a tracepoint after the last colon"},
	    {"tracepoint:sched:a/b", "want the name of a tracepoint, got \"a/b\""},
	    {"kprobe:vfs_read,rate=0", "rate: want 1..10000 samples a second, got \"0\""},
	    {"kprobe:vfs_read,rate=10001", "rate: want 1..10000 samples a second, got \"10001\""},
	    {"kprobe:vfs_read,rate=", "rate: want 1..10000 samples a second, got \"\""},
	    {"kprobe:vfs_read,rate=1/s", "rate: want 1..10000 samples a second, got \"1/s\""},
	    {"kprobe: vfs_read", "want printable ASCII without blanks, got \"kprobe: vfs_read\""},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct probe_spec p = {.rate = 77};
		struct error err = {0};

		assert_int_equal(probe_spec_parse(cases[i].text, &p, &err), -EINVAL);
		assert_string_equal(err.message, cases[i].message);
		assert_int_equal(p.rate, 77);
	}
}

static void test_lengths_have_an_end(void **state)
{
	char text[PROBE_TEXT_MAX + 2] = "uprobe:/";
	struct probe_spec p;
	struct error err = {0};
	size_t len = strlen(text);

	(void)state;
	memset(text + len, 'a', PROBE_TEXT_MAX - len);
	memcpy(text + PROBE_TEXT_MAX - 2, ":f", 2);
	text[PROBE_TEXT_MAX] = 0;
	assert_int_equal(probe_spec_parse(text, &p, &err), 0);
	strcat(text, "f");
	assert_int_equal(probe_spec_parse(text, &p, &err), -EINVAL);
	assert_string_equal(err.message, "want at most 512 characters, got 513");
	strcpy(text, "kprobe:");
	memset(text + 7, 'f', PROBE_NAME_MAX + 1);
	text[7 + PROBE_NAME_MAX + 1] = 0;
	assert_int_equal(probe_spec_parse(text, &p, &err), -EINVAL);
	assert_string_equal(err.message, "want a name of at most 255 characters, got 256");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_each_kind_has_its_parts),
	    cmocka_unit_test(test_the_last_colon_ends_the_path),
	    cmocka_unit_test(test_the_rate_is_no_part_of_the_name),
	    cmocka_unit_test(test_a_refusal_says_what_is_wanted),
	    cmocka_unit_test(test_lengths_have_an_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
