/* SPDX-License-Identifier: Apache-2.0 */
/* The tables, the ring of windows and their caps; no sample is counted twice or lost. */
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
	assert_int_equal(a->rows.n, rows); /* no new rows for the same stacks */
	assert_int_equal(total_of(a, PROFILE_CPU), 12);
	assert_int_equal(a->next_seq - a->first_seq, 2);
	assert_int_equal(a->overflow, 0);
}

/* The CPU samples of B as folded stacks. */
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

/*
 * New stacks all the time, for longer than the history: the tables stay below their caps, no sample
 * of the last five minutes is counted under "[other]", and the sum since the start is right.
 */
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
		/* The rows were renumbered: the windows must have the same stacks as before. */
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

/* Number of CPU samples that pass the filter. */
static int64_t cpu_of(const struct aggregate *a, const struct live_filter *filter)
{
	_cleanup_(batch_unrefp) struct batch *b = NULL;

	assert_int_equal(live_profile(a, filter, &b), 0);
	return batch_cpu_samples(b);
}

/* As many(), with a process, a pod and a container; process and container are the owner. */
static struct batch *owned(uint32_t n, uint32_t from, uint64_t start_ms, const char *process,
			   const char *container)
{
	const struct attr attrs[] = {{.key = "k8s.container.name", .str = "main"},
				     {.key = "k8s.pod.name", .str = "pod-1"},
				     {.key = "k8s.namespace.name", .str = "shop"}};
	struct batch_builder *builder = NULL;
	struct batch *b = NULL;
	uint32_t resource;

	assert_int_equal(batch_builder_new(start_ms * 1000000, &builder), 0);
	resource = batch_add_resource(builder, attrs, ARRAY_SIZE(attrs), container);
	for (uint32_t i = 0; i < n; i++) {
		const struct batch_label label = {"tenant", "A"};
		struct batch_sample s = {
		    .process = batch_add_process(builder, 100 + i % 3, process, "/p"),
		    .tid = 7,
		    .thread_name = "t",
		    .value = 1,
		    .labels = i % 2 ? batch_add_labels(builder, &label, 1) : BATCH_NO_LABELS};
		struct batch_line line = {0};
		uint32_t location;
		char name[32];

		snprintf(name, sizeof(name), "f%u", from + i);
		line.function = batch_add_function(builder, name, name, "", 0);
		location = batch_add_location(builder, BATCH_NO_MAPPING, from + i + 1UL,
					      FRAME_NATIVE, &line, 1);
		s.stack = batch_add_stack(builder, &location, 1);
		batch_add_sample(builder, resource, PROFILE_CPU, 50000000, &s);
	}
	assert_int_equal(batch_builder_finish(builder, 1000000000, &b), 0);
	return b;
}

/* Dropping stacks to make room leaves their counts with their process and container. */
static void what_went_keeps_its_owner(void **state)
{
	_cleanup_(aggregate_freep) struct aggregate *a = NULL;
	_cleanup_(batch_unrefp) struct batch *one = owned(1000, 0, 1000, "server", "c0ffee"),
					     *two = owned(500, 0, 1000, "client", "c0ffee");
	const struct live_filter by_process = {.process = "server"}, by_pid = {.pid = 101},
				 by_container = {.container = "c0ffee"},
				 by_name = {.container = "main"}, by_pod = {.pod = "pod-1"},
				 by_namespace = {.k8s_namespace = "shop"},
				 by_thread = {.thread = "t"}, by_label = {.label = "tenant=A"};
	uint32_t from = 5000;

	assert_int_equal(aggregate_new(&a), 0);
	assert_int_equal(aggregate_add(a, one), 0);
	assert_int_equal(aggregate_add(a, two), 0);
	assert_int_equal(cpu_of(a, &by_label), 750);
	/* Room is made twice: counts that an owner has already are not moved to another one. */
	for (uint64_t ms = 400000; a->born < 2; ms += 100000, from += 30000) {
		_cleanup_(batch_unrefp) struct batch *more = many(30000, from, ms);

		assert_true(ms < 2000000);
		assert_int_equal(aggregate_add(a, more), 0);
	}
	assert_int_equal(cpu_of(a, &by_process), 1000);
	assert_int_equal(cpu_of(a, &by_container), 1500);
	assert_int_equal(cpu_of(a, &by_name), 1500);
	assert_int_equal(cpu_of(a, &by_pod), 1500);
	assert_int_equal(cpu_of(a, &by_namespace), 1500);
	assert_int_equal(cpu_of(a, &by_pid) + cpu_of(a, &by_label), 0);
	assert_true(cpu_of(a, &by_thread) <= from - 5000);
	assert_int_equal(total_of(a, PROFILE_CPU), 1500 + from - 5000);
}

/*
 * There are more owners than places. Those with the most time keep their counts; of owners with
 * equal time, those that came first. The counts of the others go to the process "[other]". No table
 * gets full.
 */
static void owners_are_bounded(void **state)
{
	_cleanup_(aggregate_freep) struct aggregate *a = NULL;
	const struct live_filter first = {.process = "p0"}, last = {.process = "p4999"},
				 nobody = {.process = "[other]"}, most = {.process = "p"};
	uint32_t from = 5000;

	assert_int_equal(aggregate_new(&a), 0);
	for (uint32_t i = 0; i < 5000; i += 10) {
		_cleanup_(batch_unrefp) struct batch *b = NULL;
		struct batch_builder *builder = NULL;

		assert_int_equal(batch_builder_new(1000000000, &builder), 0);
		for (uint32_t j = i; j < i + 10; j++) {
			struct batch_sample s = {.tid = 7, .thread_name = "t", .value = 1};
			char name[16];

			snprintf(name, sizeof(name), "p%u", j);
			s.process = batch_add_process(builder, 100 + j, name, "/p");
			s.stack = batch_add_stack(builder, NULL, 0);
			batch_add_sample(builder, batch_add_resource(builder, NULL, 0, ""),
					 PROFILE_CPU, 50000000, &s);
		}
		assert_int_equal(batch_builder_finish(builder, 1000000000, &b), 0);
		assert_int_equal(aggregate_add(a, b), 0);
	}
	for (uint64_t ms = 400000; a->born < 2; ms += 100000, from += 30000) {
		_cleanup_(batch_unrefp) struct batch *more = many(30000, from, ms);

		assert_true(ms < 2000000);
		assert_int_equal(aggregate_add(a, more), 0);
	}
	assert_int_equal(cpu_of(a, &first), 1);
	assert_int_equal(cpu_of(a, &last), 0);
	/* The processes "p" and "[other]" take two of the 4096 places. */
	assert_int_equal(cpu_of(a, &nobody), 5000 - (4096 - 2));
	assert_int_equal(cpu_of(a, &most), from - 5000);
	assert_true(a->groups.n < 4200);
	assert_int_equal(total_of(a, PROFILE_CPU), 5000 + from - 5000);
}

/*
 * Five minutes of new stacks alone fill a table: the oldest windows are dropped, so that new
 * samples keep their stacks.
 */
static void the_oldest_windows_make_room(void **state)
{
	_cleanup_(aggregate_freep) struct aggregate *a = NULL;
	int64_t overflow = metric_get(M_LIVE_OVERFLOW);
	const uint32_t step = 12000;

	assert_int_equal(aggregate_new(&a), 0);
	for (uint32_t i = 0; i < 30; i++) {
		_cleanup_(batch_unrefp) struct batch *b = many(step, i * step, 1000 + i * 16000UL);
		_cleanup_free_ char *want = folded_of(b), *got = NULL;
		unsigned int born = a->born;

		assert_int_equal(aggregate_add(a, b), 0);
		got = recent_of(a, 1000);
		assert_string_equal(got, want);
		assert_int_equal(total_of(a, PROFILE_CPU), (int64_t)(i + 1) * step);
		/*
		 * Making room keeps the windows that fill half of the rows' cap, and the new
		 * window.
		 */
		if (a->born != born)
			assert_int_equal(a->next_seq - a->first_seq,
					 AGGREGATE_ROWS_MAX / 2 / step + 1);
	}
	assert_in_range(a->born, 3, 8);
	assert_int_equal(metric_get(M_LIVE_OVERFLOW), overflow);
}

/* All windows have the same stacks, nearly as many as there is room for: none can be dropped, so
 * no row is renumbered. */
static void what_cannot_go_is_not_numbered_anew(void **state)
{
	_cleanup_(aggregate_freep) struct aggregate *a = NULL;
	_cleanup_(batch_unrefp) struct batch *b = many(120000, 0, 1000);
	_cleanup_free_ char *want = folded_of(b), *got = NULL;

	assert_int_equal(aggregate_new(&a), 0);
	for (uint64_t i = 0; i < 5; i++) {
		b->start_unix_ns = (1000 + i * 31000) * 1000000;
		assert_int_equal(aggregate_add(a, b), 0);
	}
	assert_int_equal(a->born, 0);
	assert_int_equal(a->next_seq - a->first_seq, 5);
	got = recent_of(a, 1000);
	assert_string_equal(got, want);
}

/* While a table stays full, room is made every 30 s, not with every batch. */
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

/* Counts the messages: each begins with its length, and the last ends where the buffer ends. */
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

/* ---- labels and traces ----------------------------------------------------------------------- */

/* N requests from FROM on, each a sample in f0 or f1 with a trace of its own and the labels
 * "tenant" (A or B) and, when they are numbered, "request". */
static struct batch *requests(uint32_t n, uint32_t from, uint64_t start_ms, bool numbered)
{
	struct batch_builder *builder = NULL;
	struct batch *b = NULL;
	uint32_t stacks[2], resource, process;

	assert_int_equal(batch_builder_new(start_ms * 1000000, &builder), 0);
	resource = batch_add_resource(builder, NULL, 0, "");
	process = batch_add_process(builder, 7, "p", "/p");
	for (uint32_t i = 0; i < 2; i++) {
		const char *name = i ? "f1" : "f0";
		const struct batch_line line = {.function =
						    batch_add_function(builder, name, name, "", 0)};
		uint32_t location =
		    batch_add_location(builder, BATCH_NO_MAPPING, i + 1UL, FRAME_NATIVE, &line, 1);

		stacks[i] = batch_add_stack(builder, &location, 1);
	}
	for (uint32_t i = from; i < from + n; i++) {
		char trace[33], span[17], number[16];
		const struct batch_label labels[] = {{"trace_id", trace},
						     {"span_id", span},
						     {"tenant", i % 2 ? "B" : "A"},
						     {"request", number}};
		struct batch_sample s = {.process = process,
					 .stack = stacks[i % 2],
					 .tid = 7,
					 .thread_name = "t",
					 .value = 2};

		snprintf(trace, sizeof(trace), "%08x%024x", i, 1);
		snprintf(span, sizeof(span), "%016x", i + 1);
		snprintf(number, sizeof(number), "%u", i);
		s.labels = batch_add_labels(builder, labels, numbered ? 4 : 3);
		batch_add_sample(builder, resource, PROFILE_CPU, 50000000, &s);
	}
	assert_int_equal(batch_builder_finish(builder, 1000000000, &b), 0);
	return b;
}

static int64_t cpu_of_trace(const struct aggregate *a, const char *hex, uint64_t window_ms)
{
	struct live_trace_prefix prefix;
	const struct live_filter filter = {.trace = &prefix, .window_ms = window_ms};

	assert_int_equal(live_trace_parse(hex, &prefix), 0);
	return cpu_of(a, &filter);
}

static void labels_tell_rows_apart_and_traces_do_not(void **state)
{
	_cleanup_(aggregate_freep) struct aggregate *a = NULL;
	_cleanup_(batch_unrefp) struct batch *b = requests(1000, 0, 1000, false), *of_a = NULL;
	const struct live_filter tenant_a = {.label = "tenant=A"}, tenant_c = {.label = "tenant=C"},
				 other = {.label = "span_id=A"};

	assert_int_equal(aggregate_new(&a), 0);
	assert_int_equal(aggregate_add(a, b), 0);
	assert_int_equal(a->rows.n, 1 + 2);
	assert_int_equal(aggregate_window(a, 1)->n_traces, 1000);
	assert_int_equal(cpu_of(a, &tenant_a), 1000);
	assert_int_equal(cpu_of(a, &tenant_c) + cpu_of(a, &other), 0);
	/* The samples of a filtered profile have their labels. */
	assert_int_equal(live_profile(a, &tenant_a, &of_a), 0);
	assert_int_equal(of_a->n_samples, 1);
	assert_int_equal(of_a->label_sets[of_a->samples[0].labels].n, 1);
	assert_string_equal(of_a->label_sets[of_a->samples[0].labels].labels[0].key, "tenant");
	assert_string_equal(of_a->label_sets[of_a->samples[0].labels].labels[0].value, "A");
}

static void a_trace_is_found_by_its_beginning(void **state)
{
	_cleanup_(aggregate_freep) struct aggregate *a = NULL;
	struct live_trace_prefix prefix;

	assert_int_equal(aggregate_new(&a), 0);
	for (uint32_t i = 0; i < 10; i++) {
		_cleanup_(batch_unrefp) struct batch *b =
		    requests(64, i * 32, 1000 + i * 1000UL, false);

		assert_int_equal(aggregate_add(a, b), 0);
	}
	/* The trace id is the number of the request in hex. Two windows have samples of request 32
	 * (0x20), one has some of 31 (0x1f), none of 352 (0x160). */
	assert_int_equal(cpu_of_trace(a, "00000020000000000000000000000001", 0), 4);
	assert_int_equal(cpu_of_trace(a, "0000001f", 0), 2);
	assert_int_equal(cpu_of_trace(a, "00000160", 0), 0);
	/* Requests 0x100 to 0x10f. Each is in two windows: those that begin with request 224 and
	 * with request 256. */
	assert_int_equal(cpu_of_trace(a, "0000010", 0), 2 * 16 * 2);
	assert_int_equal(cpu_of_trace(a, "0", 0), 10 * 64 * 2);
	/* The last window has requests 288 to 351. */
	assert_int_equal(cpu_of_trace(a, "00000120", 500), 2);
	assert_int_equal(cpu_of_trace(a, "00000020", 500), 0);
	assert_int_equal(live_trace_parse("", &prefix), -EINVAL);
	assert_int_equal(live_trace_parse("0000002A", &prefix), -EINVAL);
	assert_int_equal(live_trace_parse("000000200000000000000000000000011", &prefix), -EINVAL);
}

/*
 * Each request has a label value of its own. Once the table of label sets is full, stacks keep
 * their rows, the sum is right, and the samples without their labels are counted. After the oldest
 * rows were dropped, new samples have their labels again.
 */
static void too_many_labels_leave_room_for_stacks(void **state)
{
	_cleanup_(aggregate_freep) struct aggregate *a = NULL;
	int64_t left_out = metric_get(M_LIVE_LABELS_LEFT_OUT), all = 0;
	const struct live_filter last = {.label = "request=49999"}, first = {.label = "request=9"};
	uint32_t number = 0;

	assert_int_equal(aggregate_new(&a), 0);
	for (uint64_t ms = 1000; number < 50000; ms += 1000, number += 5000, all += 10000) {
		_cleanup_(batch_unrefp) struct batch *b = requests(5000, number, ms, true);

		assert_int_equal(aggregate_add(a, b), 0);
	}
	assert_int_equal(total_of(a, PROFILE_CPU), all);
	assert_int_equal(a->overflow, 0);
	assert_true(metric_get(M_LIVE_LABELS_LEFT_OUT) - left_out > 25000);
	assert_int_equal(cpu_of(a, &first), 2);
	assert_int_equal(cpu_of(a, &last), 0);
	{
		_cleanup_(batch_unrefp) struct batch *late = requests(10, 49990, 900000, true),
						     *next = requests(10, 49990, 1300000, true);

		assert_int_equal(aggregate_add(a, late), 0);
		assert_int_equal(aggregate_add(a, next), 0);
	}
	assert_true(a->born > 0);
	assert_int_equal(cpu_of(a, &last), 2);
	assert_int_equal(total_of(a, PROFILE_CPU), all + 40);
}

/* Rows are renumbered when room is made: traces must refer to the same stacks as before. */
static void traces_stay_with_their_rows(void **state)
{
	_cleanup_(aggregate_freep) struct aggregate *a = NULL;
	_cleanup_(batch_unrefp) struct batch *b = requests(10, 0, 1000000, false);
	uint32_t from = 0;

	assert_int_equal(aggregate_new(&a), 0);
	for (uint64_t ms = 1000; ms < 90000; ms += 30000, from += 30000) {
		_cleanup_(batch_unrefp) struct batch *old = many(30000, from, ms);

		assert_int_equal(aggregate_add(a, old), 0);
	}
	assert_int_equal(aggregate_add(a, b), 0);
	for (uint64_t ms = 1001000; !a->born && ms < 1200000; ms += 31000, from += 15000) {
		_cleanup_(batch_unrefp) struct batch *more = many(15000, from, ms);

		assert_int_equal(aggregate_add(a, more), 0);
	}
	assert_true(a->born > 0);
	for (uint32_t i = 0; i < 10; i++) {
		struct live_trace_prefix prefix;
		const struct live_filter filter = {.trace = &prefix};
		_cleanup_(batch_unrefp) struct batch *found = NULL;
		_cleanup_free_ char *folded = NULL;
		char hex[33];

		snprintf(hex, sizeof(hex), "%08x%024x", i, 1);
		assert_int_equal(live_trace_parse(hex, &prefix), 0);
		assert_int_equal(live_profile(a, &filter, &found), 0);
		folded = folded_of(found);
		assert_string_equal(folded, i % 2 ? "p;f1 2\n" : "p;f0 2\n");
	}
}

/* The oldest windows lose their traces first; traces beyond a window's own limit are counted. */
static void traces_are_bounded(void **state)
{
	_cleanup_(aggregate_freep) struct aggregate *a = NULL;
	int64_t left_out = metric_get(M_LIVE_TRACES_LEFT_OUT);
	const uint32_t n = AGGREGATE_WINDOW_TRACES_MAX;

	assert_int_equal(aggregate_new(&a), 0);
	for (uint32_t i = 0; i < 6; i++) {
		_cleanup_(batch_unrefp) struct batch *b =
		    requests(n + 7, i * (n + 7), 1000 + i * 1000UL, false);

		assert_int_equal(aggregate_add(a, b), 0);
	}
	assert_int_equal(a->held_traces, AGGREGATE_TRACES_MAX);
	assert_int_equal(metric_get(M_LIVE_TRACES_LEFT_OUT) - left_out, 6 * 7);
	assert_int_equal(aggregate_window(a, 2)->n_traces, 0);
	assert_int_equal(aggregate_window(a, 3)->n_traces, n);
	assert_int_equal(total_of(a, PROFILE_CPU), 6 * (n + 7) * 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(totals_are_those_of_the_batches),
	    cmocka_unit_test(what_comes_back_is_what_went_in),
	    cmocka_unit_test(filters_leave_out_what_they_do_not_name),
	    cmocka_unit_test(what_no_longer_fits_is_counted_under_other),
	    cmocka_unit_test(what_nobody_has_seen_for_long_makes_room),
	    cmocka_unit_test(what_went_keeps_its_owner),
	    cmocka_unit_test(owners_are_bounded),
	    cmocka_unit_test(the_oldest_windows_make_room),
	    cmocka_unit_test(what_cannot_go_is_not_numbered_anew),
	    cmocka_unit_test(what_is_all_new_is_not_moved_each_time),
	    cmocka_unit_test(windows_go_after_five_minutes),
	    cmocka_unit_test(a_client_gets_each_entry_once),
	    cmocka_unit_test(labels_tell_rows_apart_and_traces_do_not),
	    cmocka_unit_test(a_trace_is_found_by_its_beginning),
	    cmocka_unit_test(too_many_labels_leave_room_for_stacks),
	    cmocka_unit_test(traces_stay_with_their_rows),
	    cmocka_unit_test(traces_are_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
