/* SPDX-License-Identifier: Apache-2.0 */
/* What is made from the list of runtimes, of a list that is this test's own. */
#include "agent/runtime/metrics.h"
#include "agent/runtime/tracers.h"
#include "lib/metrics.h"
#include "tests/support/test.h"

enum { LAST = 28, RUBY = 3 };

static const struct interpreter_ops last = {.name = "last", .api_name = "latest", .id = LAST},
				    ruby = {.name = "ruby", .api_name = "rb", .id = RUBY};

const struct interpreter_ops *const runtime_table[] = {&last, &ruby, NULL};

static const struct tracer *find(const char *name)
{
	for (const struct tracer *t = runtime_tracers(); t->name; t++)
		if (streq(t->name, name))
			return t;
	return NULL;
}

static void rows_are_tracers_with_their_id(void **state)
{
	const struct tracer *t = find("last");

	assert_non_null(t);
	assert_int_equal(t->id, LAST);
	assert_string_equal(t->api_name, "latest");
	assert_true(t->walked);
	assert_null(find("python"));
}

static void the_native_walk_has_no_id(void **state)
{
	static const char *const names[] = {"native", "kernel", "go"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		assert_string_equal(runtime_tracers()[i].name, names[i]);
		assert_int_equal(runtime_tracers()[i].id, 0);
	}
}

static void a_row_takes_the_id_that_was_kept_for_its_name(void **state)
{
	uint32_t seen = 0;

	assert_string_equal(find("ruby")->api_name, "rb");
	assert_true(find("ruby")->walked);
	assert_false(find("hotspot")->walked);
	assert_string_equal(find("hotspot")->api_name, "jvm");
	for (const struct tracer *t = runtime_tracers(); t->name; t++) {
		assert_false(t->id && seen & 1U << t->id);
		seen |= 1U << t->id;
	}
}

static void a_table_that_makes_no_sense_is_refused_with_the_rows_names(void **state)
{
	static const struct interpreter_ops nobody = {.name = "nobody"},
					    far = {.name = "far", .id = KILN_LABELS_OTEL},
					    twin = {.name = "twin", .id = LAST},
					    again = {.name = "last", .id = LAST - 1},
					    rubinius = {.name = "rubinius", .id = RUBY},
					    php = {.name = "php", .id = RUBY + 20};
	static const struct {
		const struct interpreter_ops *table[3];
		const char *message;
	} cases[] = {
	    {{&nobody, NULL}, "runtime nobody: its id is 0, want 1..28"},
	    {{&far, NULL}, "runtime far: its id is 29, want 1..28"},
	    {{&last, &twin, NULL}, "runtimes last and twin: both have the id 28"},
	    {{&last, &again, NULL}, "two runtimes are called last"},
	    {{&rubinius, NULL}, "runtime rubinius: its id is 3, but 3 is kept for ruby"},
	    {{&php, NULL}, "runtime php: its id is 23, but 4 is kept for php"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct error err = {0};

		assert_int_equal(runtime_table_check(cases[i].table, &err), -EINVAL);
		assert_string_equal(err.message, cases[i].message);
	}
	assert_int_equal(runtime_table_check(runtime_table, NULL), 0);
}

static int64_t value(const char *labels)
{
	return metric_family_get("kiln_runtime_missing_total", labels);
}

static void each_row_has_metrics_and_nobody_else(void **state)
{
	struct buf out;

	buf_init(&out, 1 << 20);
	runtime_metrics_init(runtime_table);
	runtime_metrics_init(runtime_table);
	runtime_metrics_frames(LAST, 7);
	runtime_metrics_frames(KILN_RUNTIME_MAX, 7);
	for (int why = KILN_MISSING_NONE + 1; why < KILN_MISSING_COUNT; why++)
		runtime_metrics_missing(LAST, (enum kiln_missing)why);
	runtime_metrics_missing(LAST, KILN_MISSING_COUNT);
	assert_int_equal(value("runtime=\"last\",reason=\"broken\""), 1);
	assert_int_equal(value("runtime=\"ruby\",reason=\"broken\""), 0);
	assert_int_equal(metrics_render(&out), 0);
	assert_non_null(strstr(out.data, "\nkiln_runtime_frames_total{runtime=\"last\"} 7\n"));
	assert_non_null(strstr(out.data, "\nkiln_runtime_frames_total{runtime=\"ruby\"} 0\n"));
	assert_null(strstr(out.data, "runtime=\"python\""));
	assert_null(strstr(out.data, "(null)"));
	assert_null(strstr(out.data, "{}"));
	/* Once, although it was added twice. */
	assert_null(strstr(strstr(out.data, "# TYPE kiln_runtime_frames_total counter\n") + 1,
			   "# TYPE kiln_runtime_frames_total"));
	buf_done(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(rows_are_tracers_with_their_id),
	    cmocka_unit_test(the_native_walk_has_no_id),
	    cmocka_unit_test(a_row_takes_the_id_that_was_kept_for_its_name),
	    cmocka_unit_test(a_table_that_makes_no_sense_is_refused_with_the_rows_names),
	    cmocka_unit_test(each_row_has_metrics_and_nobody_else),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
