/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/window/window.h"
#include "tests/support/test.h"

static struct stack s1, s2;
static struct process p1, p2;

enum { PERIOD = 50000000 };

static const struct window_sample base = {
    .stack = &s1,
    .process = &p1,
    .tid = 7,
    .comm = "main",
    .value = PERIOD,
    .period = PERIOD,
};

static void add(struct window *w, const struct window_sample *s)
{
	assert_int_equal(window_add(w, s), 0);
}

static void all_that_makes_samples_different_is_counted_apart(void **state)
{
	struct window w;
	int64_t samples = 0;
	uint64_t value = 0;
	struct label_set *labels = calloc(1, sizeof(*labels));
	struct window_sample others[9];

	assert_non_null(labels);
	labels->number = 1;
	labels->refs = 1;
	window_init(&w);
	window_reset(&w, 1, 0);
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		others[i] = base;
	others[0].stack = &s2;
	others[1].process = &p2;
	others[2].tid = 8;
	others[3].comm = "other";
	others[4].policy = 1;
	others[5].origin = KILN_ORIGIN_OFF_CPU;
	others[6].labels = labels;
	others[7].period = others[7].value = PERIOD / 5;
	others[8].period = 0;
	for (int i = 0; i < 3; i++)
		add(&w, &base);
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		add(&w, &others[i]);
	assert_int_equal(w.n, 1 + ARRAY_SIZE(others));
	for (struct count *c = w.list; c; c = c->next) {
		samples += c->samples;
		value += c->value;
		if (c->key.period)
			assert_int_equal(c->value, (uint64_t)c->samples * c->key.period);
	}
	assert_int_equal(samples, 3 + ARRAY_SIZE(others));
	assert_int_equal(value, 3 * PERIOD + 8UL * PERIOD + PERIOD / 5);
	assert_int_equal(labels->refs, 2);
	window_reset(&w, 2, 0);
	assert_int_equal(labels->refs, 1);
	label_set_unref(labels);
	window_done(&w);
}

/* A timer became slower than the policy's rate, or the CPU had time saved up. */
static void a_sample_of_several_periods_counts_as_many(void **state)
{
	struct window_sample s = base;
	struct window w;

	window_init(&w);
	window_reset(&w, 1, 0);
	s.timed = true;
	s.value = 3UL * PERIOD;
	s.time_unix_ns = 9;
	add(&w, &s);
	s.value = PERIOD;
	s.time_unix_ns = 0;
	add(&w, &s);
	assert_int_equal(w.n, 1);
	assert_int_equal(w.list->samples, 4);
	assert_int_equal(w.list->value, 4UL * PERIOD);
	assert_int_equal(w.list->times[2], 9);
	assert_int_equal(w.list->times[3], 0);
	window_done(&w);
}

static void a_value_that_is_no_multiple_of_its_period_is_refused(void **state)
{
	struct window_sample s = base;
	struct window w;

	window_init(&w);
	window_reset(&w, 1, 0);
	s.value = PERIOD + 1;
	assert_int_equal(window_add(&w, &s), -EBADMSG);
	s.value = 0;
	assert_int_equal(window_add(&w, &s), -EBADMSG);
	assert_int_equal(w.n, 0);
	window_done(&w);
}

/* Bytes behind the NUL of a thread's name are not compared. */
static void bytes_after_the_name_do_not_matter(void **state)
{
	char a[KILN_COMM_LEN] = "x\0aaaa", b[KILN_COMM_LEN] = "x\0bbbb";
	struct window_sample s = base;
	struct window w;

	window_init(&w);
	window_reset(&w, 1, 0);
	s.comm = a;
	add(&w, &s);
	s.comm = b;
	add(&w, &s);
	assert_int_equal(w.n, 1);
	window_done(&w);
}

/* The runtime's name may be known only after the thread's first samples: they must be one count
 * all the same. */
static void a_thread_has_the_name_that_its_runtime_gave_it(void **state)
{
	struct window_sample s = base;
	char name[] = "ForkJoinPool-1-worker-1";
	struct window w;

	window_init(&w);
	window_reset(&w, 1, 0);
	add(&w, &s);
	assert_null(w.list->thread_name);
	s.thread_name = name;
	add(&w, &s);
	name[0] = 'x';
	s.thread_name = NULL;
	add(&w, &s);
	assert_int_equal(w.n, 1);
	assert_int_equal(w.list->samples, 3);
	assert_string_equal(w.list->thread_name, "ForkJoinPool-1-worker-1");
	window_reset(&w, 2, 0);
	add(&w, &s);
	assert_null(w.list->thread_name);
	window_done(&w);
}

static void times_are_kept_when_wanted(void **state)
{
	struct window_sample s = base;
	struct window w;

	s.timed = true;
	window_init(&w);
	window_reset(&w, 1, 0);
	for (uint64_t i = 0; i < 100; i++) {
		s.time_unix_ns = 1000 + i;
		add(&w, &s);
	}
	assert_int_equal(w.list->samples, 100);
	for (uint64_t i = 0; i < 100; i++)
		assert_int_equal(w.list->times[i], 1000 + i);
	window_reset(&w, 2, 0);
	s.time_unix_ns = 5;
	add(&w, &s);
	assert_int_equal(w.list->samples, 1);
	assert_int_equal(w.list->times[0], 5);
	window_done(&w);
}

static void reset_empties(void **state)
{
	struct window_sample s = base;
	struct window w;

	window_init(&w);
	window_reset(&w, 1, 0);
	for (s.tid = 0; s.tid < 1000; s.tid++)
		add(&w, &s);
	window_reset(&w, 2, 5);
	assert_int_equal(w.n, 0);
	assert_null(w.list);
	assert_int_equal(w.number, 2);
	add(&w, &s);
	assert_int_equal(w.list->samples, 1);
	assert_int_equal(w.list->value, PERIOD);
	window_done(&w);
}

static enum window_fate drops(struct count *c, void *arg)
{
	return WINDOW_DROP;
}

/* A stack remembers the count that it was added to last; a dropped count must not be used again. */
static void what_was_dropped_is_counted_anew(void **state)
{
	struct window w, next;

	window_init(&w);
	window_init(&next);
	add(&w, &base);
	window_sort(&w, &next, drops, NULL);
	assert_null(w.list);
	add(&w, &base);
	add(&next, &base);
	add(&w, &base);
	assert_int_equal(w.n, 1);
	assert_int_equal(w.list->samples, 2);
	assert_int_equal(next.list->samples, 1);
	window_done(&w);
	window_done(&next);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(all_that_makes_samples_different_is_counted_apart),
	    cmocka_unit_test(a_sample_of_several_periods_counts_as_many),
	    cmocka_unit_test(a_value_that_is_no_multiple_of_its_period_is_refused),
	    cmocka_unit_test(bytes_after_the_name_do_not_matter),
	    cmocka_unit_test(a_thread_has_the_name_that_its_runtime_gave_it),
	    cmocka_unit_test(times_are_kept_when_wanted),
	    cmocka_unit_test(reset_empties),
	    cmocka_unit_test(what_was_dropped_is_counted_anew),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
