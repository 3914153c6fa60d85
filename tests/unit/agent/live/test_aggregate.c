/* SPDX-License-Identifier: Apache-2.0 */
/* The tables, the ring of windows, their caps, and that nothing is counted twice or lost. */
#include "agent/live/aggregate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include "agent/live/encode.h"
#include "agent/live/profile.h"
#include "agent/profile/folded.h"
#include "lib/metrics.h"
#include "tests/support/sample_batch.h"

static int64_t total_of(const struct aggregate *a, enum profile_kind kind)
{
	int64_t sum = 0;

	for (uint32_t i = 0; i < a->rows.n; i++)
		if (aggregate_groups(a)[aggregate_rows(a)[i].group].kind == kind)
			sum += a->totals[i];
	return sum;
}

static void totals_are_those_of_the_batches(void **state)
{
	_cleanup_(aggregate_freep) struct aggregate *a = NULL;
	_cleanup_(batch_unrefp) struct batch *b = NULL;
	uint32_t rows;

	assert_int_equal(sample_batch_build(&b), 0);
	assert_int_equal(aggregate_new(&a), 0);
	assert_int_equal(aggregate_add(a, b), 0);
	assert_int_equal(total_of(a, PROFILE_CPU), 6);
	assert_int_equal(total_of(a, PROFILE_OFF_CPU), 1500);
	rows = a->rows.n;
	assert_int_equal(aggregate_add(a, b), 0);
	assert_int_equal(a->rows.n, rows); /* the same stacks again */
	assert_int_equal(total_of(a, PROFILE_CPU), 12);
	assert_int_equal(a->next_seq - a->first_seq, 2);
	assert_int_equal(a->overflow, 0);
}

/* As folded stacks, which encoders of batches make. */
static char *folded_of(const struct batch *b)
{
	struct folded *f = NULL;
	struct buf out;

	buf_init(&out, 1 << 24);
	assert_int_equal(folded_new(1 << 24, PROFILE_CPU, &f), 0);
	assert_int_equal(folded_add(f, b), 0);
	assert_int_equal(folded_write(f, &out), 0);
	folded_free(f);
	return out.data ? buf_take(&out) : strdup("");
}

static void what_comes_back_is_what_went_in(void **state)
{
	_cleanup_(aggregate_freep) struct aggregate *a = NULL;
	_cleanup_(batch_unrefp) struct batch *b = NULL, *all = NULL, *window = NULL;
	_cleanup_free_ char *want = NULL, *got = NULL, *last = NULL;
	const struct live_filter since = {0}, recent = {.window_ms = 10000};

	assert_int_equal(sample_batch_large(2000, &b), 0);
	b->duration_ns = 1000000000;
	assert_int_equal(aggregate_new(&a), 0);
	assert_int_equal(aggregate_add(a, b), 0);
	assert_int_equal(live_profile(a, &since, &all), 0);
	assert_int_equal(live_profile(a, &recent, &window), 0);
	want = folded_of(b);
	got = folded_of(all);
	last = folded_of(window);
	assert_string_equal(got, want);
	assert_string_equal(last, want);
}

static void filters_leave_out_what_they_do_not_name(void **state)
{
	_cleanup_(aggregate_freep) struct aggregate *a = NULL;
	_cleanup_(batch_unrefp) struct batch *b = NULL;
	const struct live_filter filters[] = {
	    {.process = "worker"},
	    {.pid = 2147483647},
	    {.container = "no such container"},
	    {.k8s_namespace = "nowhere"},
	};
	int64_t cpu[ARRAY_SIZE(filters)];

	assert_int_equal(sample_batch_build(&b), 0);
	assert_int_equal(aggregate_new(&a), 0);
	assert_int_equal(aggregate_add(a, b), 0);
	for (size_t i = 0; i < ARRAY_SIZE(filters); i++) {
		struct batch *out = NULL;

		assert_int_equal(live_profile(a, &filters[i], &out), 0);
		cpu[i] = batch_cpu_samples(out);
		for (uint32_t j = 0; i == 0 && j < out->n_processes; j++)
			assert_string_equal(out->processes[j].executable_name, "worker");
		batch_unref(out);
	}
	assert_int_equal(cpu[0], 2);
	assert_int_equal(cpu[1] + cpu[2] + cpu[3], 0);
}

static struct batch *many(uint32_t n, uint32_t from, uint64_t start_ms)
{
	struct batch *b = NULL;

	assert_int_equal(sample_batch_flat(n, from, start_ms, &b), 0);
	return b;
}

static void what_no_longer_fits_is_counted_under_other(void **state)
{
	_cleanup_(aggregate_freep) struct aggregate *a = NULL;
	int64_t before = metric_get(M_LIVE_OVERFLOW), all = 0;
	const uint32_t step = 30000;

	assert_int_equal(aggregate_new(&a), 0);
	for (uint32_t i = 0; i < 5; i++) {
		struct batch *b = many(step, i * step, 1000 + i * 1000);

		assert_int_equal(aggregate_add(a, b), 0);
		all += step;
		batch_unref(b);
	}
	assert_int_equal(total_of(a, PROFILE_CPU), all);
	assert_true(a->overflow > 0);
	assert_int_equal(metric_get(M_LIVE_OVERFLOW) - before, a->overflow);
	assert_true(a->rows.n <= AGGREGATE_ROWS_MAX && a->strings.n <= AGGREGATE_STRINGS_MAX);
	assert_true(a->window_bytes <= AGGREGATE_HISTORY_BYTES);
}

/* Folded stacks of the last windows. */
static char *recent_of(const struct aggregate *a, uint64_t ms)
{
	const struct live_filter recent = {.window_ms = ms};
	_cleanup_(batch_unrefp) struct batch *b = NULL;

	assert_int_equal(live_profile(a, &recent, &b), 0);
	return folded_of(b);
}

/* Stacks that are new all the time, for longer than the history: the tables stay below their caps,
 * nothing is counted under "[other]" that came in the last five minutes, and the sum since the
 * start is true. */
static void what_nobody_has_seen_for_long_makes_room(void **state)
{
	_cleanup_(aggregate_freep) struct aggregate *a = NULL;
	const uint32_t step = 6000, steps = 90;
	int64_t overflow = metric_get(M_LIVE_OVERFLOW);
	unsigned int born = 0;

	assert_int_equal(aggregate_new(&a), 0);
	for (uint32_t i = 0; i < steps; i++) {
		_cleanup_(batch_unrefp) struct batch *b = many(step, i * step, 1000 + i * 20000UL);
		_cleanup_free_ char *want = NULL, *got = NULL;

		assert_int_equal(aggregate_add(a, b), 0);
		assert_int_equal(total_of(a, PROFILE_CPU), (int64_t)(i + 1) * step);
		if (a->born == born && i + 1 < steps)
			continue;
		/* Numbers have changed: the windows mean the same. */
		born = a->born;
		want = folded_of(b);
		got = recent_of(a, 1000);
		assert_string_equal(got, want);
		assert_in_range(a->next_seq - a->first_seq, 1, 17);
	}
	assert_true(born > 1);
	assert_int_equal(metric_get(M_LIVE_OVERFLOW), overflow);
	assert_true(a->rows.n < AGGREGATE_ROWS_MAX);
}

/* All of it is of the last minutes: that there is no room is found out once in a while, not each
 * time. */
static void what_is_all_new_is_not_moved_each_time(void **state)
{
	_cleanup_(aggregate_freep) struct aggregate *a = NULL;

	assert_int_equal(aggregate_new(&a), 0);
	for (uint32_t i = 0; i < 60; i++) {
		_cleanup_(batch_unrefp) struct batch *b = many(3000, i * 3000, 1000 + i * 1000UL);

		assert_int_equal(aggregate_add(a, b), 0);
	}
	assert_in_range(a->born, 1, 2);
	assert_int_equal(total_of(a, PROFILE_CPU), 180000);
}

static void windows_go_after_five_minutes(void **state)
{
	_cleanup_(aggregate_freep) struct aggregate *a = NULL;

	assert_int_equal(aggregate_new(&a), 0);
	for (uint64_t i = 0; i < 700; i++) {
		struct batch *b = many(3, 0, 1000 + i * 1000);

		assert_int_equal(aggregate_add(a, b), 0);
		batch_unref(b);
	}
	assert_int_equal(a->next_seq, 701);
	assert_null(aggregate_window(a, a->first_seq - 1));
	assert_int_equal(aggregate_window(a, a->first_seq)->seq, a->first_seq);
	assert_in_range(a->next_seq - a->first_seq, 300, 302);
	assert_int_equal(total_of(a, PROFILE_CPU), 2100);
}

/* Messages: the lengths that they begin with lead from one to the next, to the very end. */
static unsigned int messages_in(const struct buf *b)
{
	size_t at = 0;
	unsigned int n = 0;

	while (at + 4 <= b->len) {
		const unsigned char *p = (const unsigned char *)b->data + at;

		at += 4 + (p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16 | (size_t)p[3] << 24);
		n++;
	}
	assert_int_equal(at, b->len);
	return n;
}

static void a_client_gets_each_entry_once(void **state)
{
	_cleanup_(aggregate_freep) struct aggregate *a = NULL;
	struct batch *b = many(50000, 0, 1000);
	struct live_cursor cursor = {0}, synced;
	struct buf first, second;

	buf_init(&first, 64 << 20);
	buf_init(&second, 64 << 20);
	assert_int_equal(aggregate_new(&a), 0);
	assert_int_equal(aggregate_add(a, b), 0);
	live_encode_hello(a, "host", 1000, &first);
	live_encode_totals(a, &cursor, 0, &first);
	assert_int_equal(messages_in(&first), 2);
	assert_int_equal(cursor.rows, a->rows.n);
	assert_int_equal(cursor.strings, a->strings.n);
	synced = cursor;
	assert_int_equal(aggregate_add(a, b), 0);
	live_encode_window(a, aggregate_window(a, a->next_seq - 1), false, &cursor, &second);
	assert_int_equal(messages_in(&second), 1);
	assert_memory_equal(&cursor, &synced, sizeof(cursor));
	/* The aim: 200 KiB a second with 50,000 stacks, and a window is no shorter than a second.
	 */
	assert_true(second.len < 200 << 10);
	assert_true(second.len > 50000);
	buf_done(&first);
	buf_done(&second);
	batch_unref(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(totals_are_those_of_the_batches),
	    cmocka_unit_test(what_comes_back_is_what_went_in),
	    cmocka_unit_test(filters_leave_out_what_they_do_not_name),
	    cmocka_unit_test(what_no_longer_fits_is_counted_under_other),
	    cmocka_unit_test(what_nobody_has_seen_for_long_makes_room),
	    cmocka_unit_test(what_is_all_new_is_not_moved_each_time),
	    cmocka_unit_test(windows_go_after_five_minutes),
	    cmocka_unit_test(a_client_gets_each_entry_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
