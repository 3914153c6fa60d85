/* SPDX-License-Identifier: Apache-2.0 */
/* What is made from the list of runtimes, of a list that is this test's own. */
#include "agent/runtime/metrics.h"
#include "agent/runtime/runtimes.h"
#include "agent/runtime/tracers.h"
#include "lib/metrics.h"
#include "tests/support/test.h"

enum { LAST = 31, RUBY = 3 };

static const struct interpreter_ops last = {.name = "last", .api_name = "latest", .id = LAST},
				    ruby = {.name = "rubinius", .id = RUBY},
				    twin = {.name = "twin", .id = LAST},
				    nobody = {.name = "nobody"},
				    far = {.name = "far", .id = KILN_RUNTIME_MAX};

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

static void a_row_takes_the_place_of_the_name_that_was_kept(void **state)
{
	uint32_t seen = 0;

	assert_null(find("ruby"));
	assert_string_equal(find("rubinius")->api_name, "rubinius");
	assert_true(find("rubinius")->walked);
	assert_false(find("hotspot")->walked);
	assert_string_equal(find("hotspot")->api_name, "jvm");
	for (const struct tracer *t = runtime_tracers(); t->name; t++) {
		assert_false(t->id && seen & 1U << t->id);
		seen |= 1U << t->id;
	}
}

static void two_rows_with_one_id_are_refused(void **state)
{
	const struct interpreter_ops *const tables[][3] = {
	    {&last, &twin, NULL}, {&nobody, NULL}, {&far, NULL}};

	for (size_t i = 0; i < ARRAY_SIZE(tables); i++) {
		const struct runtimes_options options = {.table = tables[i]};
		struct runtimes *rt = NULL;

		assert_int_equal(runtimes_new(&options, &rt), -EINVAL);
		assert_null(rt);
	}
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
	assert_int_equal(value("runtime=\"rubinius\",reason=\"broken\""), 0);
	assert_int_equal(metrics_render(&out), 0);
	assert_non_null(strstr(out.data, "\nkiln_runtime_frames_total{runtime=\"last\"} 7\n"));
	assert_non_null(strstr(out.data, "\nkiln_runtime_frames_total{runtime=\"rubinius\"} 0\n"));
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
	    cmocka_unit_test(a_row_takes_the_place_of_the_name_that_was_kept),
	    cmocka_unit_test(two_rows_with_one_id_are_refused),
	    cmocka_unit_test(each_row_has_metrics_and_nobody_else),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
