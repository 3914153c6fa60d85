/* SPDX-License-Identifier: Apache-2.0 */
/* The batch builder: uniqueness, sums, order, repair of strings, and survival of every failure. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent/profile/batch.h"
#include "agent/profile/strings.h"
#include "tests/support/failalloc.h"
#include "tests/support/sample_batch.h"

static struct batch_builder *new_builder(void)
{
	struct batch_builder *b;

	assert_int_equal(batch_builder_new(1, &b), 0);
	return b;
}

static uint32_t named_location(struct batch_builder *b, const char *name)
{
	struct batch_line line = {.function = batch_add_function(b, name, NULL, NULL, 0)};

	return batch_add_location(b, BATCH_NO_MAPPING, 0, FRAME_NATIVE, &line, 1);
}

static void equal_entries_have_one_index(void **state)
{
	struct batch_builder *b = new_builder();
	struct batch_mapping m = {.filename = "/bin/x", .start = 1, .limit = 2}, other = m;
	struct batch_line lines[2] = {{0, 1}, {0, 2}};
	uint32_t f, l, s, two[2];
	char name[] = "name";

	f = batch_add_function(b, "name", "mangled", "f.c", 1);
	assert_int_equal(batch_add_function(b, name, "mangled", "f.c", 1), f);
	assert_int_not_equal(batch_add_function(b, "name", "mangled", "f.c", 2), f);
	assert_int_not_equal(batch_add_function(b, "name", "other", "f.c", 1), f);
	assert_ptr_equal(batch_string(b, "name"), batch_string(b, name));
	assert_ptr_not_equal(batch_string(b, "name"), batch_string(b, "nam"));

	other.htlhash = "ff";
	assert_int_equal(batch_add_mapping(b, &m), batch_add_mapping(b, &m));
	assert_int_not_equal(batch_add_mapping(b, &m), batch_add_mapping(b, &other));

	l = batch_add_location(b, 0, 16, FRAME_NATIVE, lines, 2);
	assert_int_equal(batch_add_location(b, 0, 16, FRAME_NATIVE, lines, 2), l);
	assert_int_not_equal(batch_add_location(b, 0, 16, FRAME_NATIVE, lines, 1), l);
	assert_int_not_equal(batch_add_location(b, 0, 16, FRAME_RUST, lines, 2), l);
	assert_int_not_equal(batch_add_location(b, 0, 17, FRAME_NATIVE, lines, 2), l);

	two[0] = l;
	two[1] = l + 1;
	s = batch_add_stack(b, two, 2);
	assert_int_equal(batch_add_stack(b, two, 2), s);
	assert_int_not_equal(batch_add_stack(b, two, 1), s);
	two[0] = l + 1;
	two[1] = l;
	assert_int_not_equal(batch_add_stack(b, two, 2), s);

	assert_int_equal(batch_add_process(b, 1, "a", "/a"), batch_add_process(b, 1, "a", "/a"));
	assert_int_not_equal(batch_add_process(b, 1, "a", "/a"),
			     batch_add_process(b, 2, "a", "/a"));
	batch_builder_free(b);
}

static void resources_differ_by_any_attribute(void **state)
{
	struct batch_builder *b = new_builder();
	struct attr attrs[2] = {{.key = "k", .type = ATTR_STR, .str = "v", .num = 99},
				{.key = "n", .type = ATTR_INT, .num = 1}};
	uint32_t r = batch_add_resource(b, attrs, 2, "");

	attrs[0].num = 5; /* not a field of a string attribute */
	assert_int_equal(batch_add_resource(b, attrs, 2, ""), r);
	assert_int_not_equal(batch_add_resource(b, attrs, 1, ""), r);
	assert_int_not_equal(batch_add_resource(b, attrs, 2, "id"), r);
	attrs[1].num = 2;
	assert_int_not_equal(batch_add_resource(b, attrs, 2, ""), r);
	attrs[1] = (struct attr){
	    .key = "n", .type = ATTR_STRS, .strs = (const char *const[]){"a", "b"}, .n_strs = 2};
	r = batch_add_resource(b, attrs, 2, "");
	assert_int_equal(batch_add_resource(b, attrs, 2, ""), r);
	attrs[1].strs = (const char *const[]){"a", "c"};
	assert_int_not_equal(batch_add_resource(b, attrs, 2, ""), r);
	batch_builder_free(b);
}

static void equal_samples_add_up_and_profiles_are_sorted(void **state)
{
	struct batch_builder *b = new_builder();
	_cleanup_(batch_unrefp) struct batch *batch = NULL;
	struct attr attr = {.key = "k", .type = ATTR_STR, .str = "v"};
	uint32_t first = batch_add_resource(b, &attr, 1, ""),
		 second = batch_add_resource(b, NULL, 0, "");
	uint32_t p = batch_add_process(b, 1, "a", "/a"), l = named_location(b, "f");
	struct batch_sample s = {.stack = batch_add_stack(b, &l, 1), .process = p, .value = 2};

	batch_add_sample(b, second, PROFILE_OFF_CPU, 123, &s);
	batch_add_sample(b, second, PROFILE_CPU, 10, &s);
	batch_add_sample(b, first, PROFILE_CPU, 20, &s);
	batch_add_sample(b, first, PROFILE_CPU, 10, &s);
	batch_add_sample(b, first, PROFILE_CPU, 10, &s);
	s.tid = 7;
	batch_add_sample(b, first, PROFILE_CPU, 10, &s);
	s.thread_name = "t";
	batch_add_sample(b, first, PROFILE_CPU, 10, &s);
	s.value = 0;
	batch_add_sample(b, first, PROFILE_CPU, 99, &s); /* stands for nothing: no profile either */
	assert_int_equal(batch_builder_finish(b, 5, &batch), 0);

	assert_int_equal(batch->n_profiles, 4);
	assert_int_equal(batch->n_samples, 6);
	const struct batch_profile *q = batch->profiles;
	assert_true(q[0].resource == first && q[0].period_ns == 10 && q[0].n_samples == 3);
	assert_true(q[1].resource == first && q[1].period_ns == 20 && q[1].n_samples == 1);
	assert_true(q[2].resource == second && q[2].kind == PROFILE_CPU);
	assert_true(q[3].kind == PROFILE_OFF_CPU && q[3].period_ns == 0);
	assert_int_equal(batch->samples[q[0].first_sample].value, 4);
	assert_int_equal(batch->samples[q[0].first_sample + 1].tid, 7);
	assert_string_equal(batch->samples[q[0].first_sample + 2].thread_name, "t");
	assert_int_equal(q[1].first_sample, 3);
	assert_int_equal(batch_cpu_samples(batch), 4 + 2 + 2 + 2 + 2);
	assert_true(batch->start_unix_ns == 1 && batch->duration_ns == 5);
}

static void timestamps_of_equal_samples_are_joined(void **state)
{
	struct batch_builder *b = new_builder();
	_cleanup_(batch_unrefp) struct batch *batch = NULL;
	uint64_t times[3] = {100, 200, 300};
	uint32_t r = batch_add_resource(b, NULL, 0, ""), p = batch_add_process(b, 1, "a", "/a");
	struct batch_sample s = {.stack = batch_add_stack(b, NULL, 0), .process = p, .value = 1};

	for (uint64_t i = 0; i < 50; i++) {
		s.timestamps = &i;
		batch_add_sample(b, r, PROFILE_CPU, 1, &s);
	}
	s.timestamps = times;
	s.value = 3;
	batch_add_sample(b, r, PROFILE_CPU, 1, &s);
	s.timestamps = NULL;
	batch_add_sample(b, r, PROFILE_CPU, 1, &s);
	assert_int_equal(batch_builder_finish(b, 5, &batch), 0);
	assert_int_equal(batch->n_samples, 2);
	assert_int_equal(batch->samples[0].value, 53);
	assert_int_equal(batch->samples[0].timestamps[49], 49);
	assert_int_equal(batch->samples[0].timestamps[52], 300);
	assert_null(batch->samples[1].timestamps);
}

static void strings_are_valid_utf8_and_short(void **state)
{
	static const struct {
		const char *in, *out;
	} cases[] = {
	    {"plain", "plain"},
	    {"gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f"},
	    {"\xf0\x9f\x94\xa5", "\xf0\x9f\x94\xa5"},
	    {"cut\xc3", "cut\xef\xbf\xbd"}, /* a comm cut by the kernel */
	    {"\xff"
	     "a",
	     "\xef\xbf\xbd"
	     "a"},
	    {"\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd"},		      /* overlong */
	    {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* surrogate */
	    {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
	};
	struct batch_builder *b = new_builder();
	_cleanup_free_ char *big = malloc(3 * STRINGS_LEN_MAX);

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_string_equal(batch_string(b, cases[i].in), cases[i].out);
	assert_string_equal(batch_string(b, NULL), "");
	/* Two-byte characters after one byte: the cap falls inside of one. */
	memset(big, 'x', 1);
	for (size_t i = 1; i + 2 < 3 * STRINGS_LEN_MAX; i += 2)
		memcpy(big + i, "\xc3\xbc", 2);
	big[3 * STRINGS_LEN_MAX - 1] = big[3 * STRINGS_LEN_MAX - 2] = 0;
	assert_int_equal(strlen(batch_string(b, big)), STRINGS_LEN_MAX - 1);
	memset(big, 0xff, 3 * STRINGS_LEN_MAX - 1);
	assert_in_range(strlen(batch_string(b, big)), STRINGS_LEN_MAX - 3, STRINGS_LEN_MAX);
	batch_builder_free(b);
}

static void an_index_out_of_range_fails_the_batch(void **state)
{
	for (int i = 0; i < 6; i++) {
		struct batch_builder *b = new_builder();
		struct batch_line line = {.function = 5};
		struct batch_sample s = {.value = 1, .stack = i == 3 ? 9 : 0};
		struct batch *batch = NULL;
		uint32_t bad = 7;

		named_location(b, "f");
		batch_add_stack(b, NULL, 0);
		batch_add_process(b, 1, "", "");
		batch_add_resource(b, NULL, 0, "");
		if (i == 0)
			batch_add_location(b, BATCH_NO_MAPPING, 0, FRAME_GO, &line, 1);
		else if (i == 1)
			batch_add_location(b, 3, 0, FRAME_GO, &(struct batch_line){0}, 1);
		else if (i == 2)
			batch_add_stack(b, &bad, 1);
		else if (i == 3)
			batch_add_sample(b, 0, PROFILE_CPU, 1, &s);
		else if (i == 4)
			batch_add_sample(b, 1, PROFILE_CPU, 1, &s);
		else
			batch_add_location(b, BATCH_NO_MAPPING, 0, FRAME_GO, NULL, 0);
		assert_int_equal(batch_builder_finish(b, 1, &batch), -EINVAL);
		assert_null(batch);
	}
}

static void a_stack_too_deep_fails_with_e2big(void **state)
{
	static uint32_t deep[5000];
	struct batch_builder *b = new_builder();
	struct batch *batch = NULL;

	named_location(b, "f");
	batch_add_stack(b, deep, ARRAY_SIZE(deep));
	assert_int_equal(batch_builder_finish(b, 1, &batch), -E2BIG);
}

static void every_failing_allocation_is_survived(void **state)
{
	for (int large = 0; large < 2; large++) {
		bool failed = true;
		long n = 0;

		for (; failed; n++) {
			struct batch *batch = NULL;
			int r;

			failalloc_at(n);
			r = large ? sample_batch_large(40, &batch) : sample_batch_build(&batch);
			failed = failalloc_stop();
			assert_int_equal(r, failed ? -ENOMEM : 0);
			assert_true(failed == !batch);
			batch_unref(batch);
		}
		assert_in_range(n, 20, 10000); /* the loop did fail something */
	}
}

/* Whether there is memory for the room or not. */
static void room_changes_nothing_but_how_often_it_grows(void **state)
{
	const struct batch_counts many = {500, 500, 500, 500, 500, 500};

	for (long n = 0; n < 12; n++) {
		_cleanup_(batch_unrefp) struct batch *batch = NULL;
		struct batch_builder *b = new_builder();
		struct batch_counts counts;

		failalloc_at(n);
		batch_builder_expect(b, &many);
		(void)failalloc_stop();
		for (uint32_t i = 0; i < 600; i++) {
			char name[16];
			uint32_t l;

			snprintf(name, sizeof(name), "f%u", i);
			l = named_location(b, name);
			assert_int_equal(l, i);
			assert_int_equal(batch_add_stack(b, &l, 1), i);
		}
		assert_int_equal(batch_builder_finish(b, 1, &batch), 0);
		counts = batch_counts(batch);
		assert_int_equal(counts.functions, 600);
		assert_int_equal(counts.stack_locations, 600);
		assert_int_equal(counts.samples, 0);
		assert_string_equal(batch->functions[599].name, "f599");
	}
}

static void an_empty_batch_is_a_batch(void **state)
{
	_cleanup_(batch_unrefp) struct batch *batch = NULL;

	assert_int_equal(batch_builder_finish(new_builder(), 1, &batch), 0);
	assert_int_equal(batch->n_samples, 0);
	assert_int_equal(batch_cpu_samples(batch), 0);
	assert_ptr_equal(batch_ref(batch), batch);
	assert_null(batch_unref(batch));
	assert_null(batch_unref(NULL));
}

static void frame_types_have_their_semantic_convention_names(void **state)
{
	enum frame_type type;

	for (int i = 0; i < FRAME_TYPE_COUNT; i++) {
		assert_int_equal(frame_type_parse(frame_type_name((enum frame_type)i), &type), 0);
		assert_int_equal(type, i);
	}
	assert_string_equal(frame_type_name(FRAME_CPYTHON), "cpython");
	assert_int_equal(frame_type_parse("python", &type), -ENOENT);
}

static void labels_tell_samples_apart_and_are_kept(void **state)
{
	const struct batch_label a[] = {{"trace_id", "01"}, {"user", "x"}}, b2[] = {{"user", "y"}};
	_cleanup_(batch_unrefp) struct batch *batch = NULL;
	struct batch_builder *b;
	struct batch_sample s = {.value = 1};
	uint32_t r, none, first, second;

	assert_int_equal(batch_builder_new(1, &b), 0);
	s.stack = batch_add_stack(b, NULL, 0);
	s.process = batch_add_process(b, 1, "p", "");
	r = batch_add_resource(b, NULL, 0, "");
	first = batch_add_labels(b, a, 2);
	second = batch_add_labels(b, b2, 1);
	none = batch_add_labels(b, NULL, 0);
	assert_int_equal(none, BATCH_NO_LABELS);
	assert_int_equal(batch_add_labels(b, a, 2), first);
	for (int i = 0; i < 2; i++) {
		s.labels = first;
		batch_add_sample(b, r, PROFILE_CPU, 1, &s);
		s.labels = second;
		batch_add_sample(b, r, PROFILE_CPU, 1, &s);
		s.labels = none;
		batch_add_sample(b, r, PROFILE_CPU, 1, &s);
	}
	assert_int_equal(batch_builder_finish(b, 1, &batch), 0);
	assert_int_equal(batch->n_samples, 3);
	assert_int_equal(batch->n_label_sets, 3);
	assert_int_equal(batch->label_sets[batch->samples[0].labels].n, 2);
	assert_string_equal(batch->label_sets[batch->samples[0].labels].labels[1].key, "user");
	assert_string_equal(batch->label_sets[batch->samples[1].labels].labels[0].value, "y");
	assert_int_equal(batch->label_sets[batch->samples[2].labels].n, 0);
	assert_int_equal(batch->samples[2].value, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(labels_tell_samples_apart_and_are_kept),
	    cmocka_unit_test(equal_entries_have_one_index),
	    cmocka_unit_test(resources_differ_by_any_attribute),
	    cmocka_unit_test(equal_samples_add_up_and_profiles_are_sorted),
	    cmocka_unit_test(timestamps_of_equal_samples_are_joined),
	    cmocka_unit_test(strings_are_valid_utf8_and_short),
	    cmocka_unit_test(an_index_out_of_range_fails_the_batch),
	    cmocka_unit_test(a_stack_too_deep_fails_with_e2big),
	    cmocka_unit_test(every_failing_allocation_is_survived),
	    cmocka_unit_test(room_changes_nothing_but_how_often_it_grows),
	    cmocka_unit_test(an_empty_batch_is_a_batch),
	    cmocka_unit_test(frame_types_have_their_semantic_convention_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
