/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/window/window.h"
#include "lib/metrics.h"
#include "tests/support/failalloc.h"
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

/* What is counted with and without times stays apart: each entry has the times of all its samples,
 * or none. */
static void a_sample_whose_time_has_no_room_is_counted_without(void **state)
{
	int64_t without = metric_get(M_COUNTS_WITHOUT_TIME);
	struct window_sample s = base;
	struct window w;

	window_init(&w);
	window_reset(&w, 1, 0);
	s.timed = true;
	s.value = (WINDOW_TIMES_MAX - 1) * (uint64_t)PERIOD;
	add(&w, &s);
	s.value = 2UL * PERIOD;
	add(&w, &s);
	s.value = PERIOD;
	add(&w, &s);
	add(&w, &s);
	assert_int_equal(w.n, 2);
	assert_int_equal(w.n_times, WINDOW_TIMES_MAX);
	assert_int_equal(w.list->samples, 3);
	assert_null(w.list->times);
	assert_int_equal(w.list->next->samples, WINDOW_TIMES_MAX);
	assert_int_equal(metric_get(M_COUNTS_WITHOUT_TIME) - without, 2);
	window_done(&w);
}

static void without_memory_for_its_time_a_sample_is_counted(void **state)
{
	struct window_sample s = base;
	struct window w;

	window_init(&w);
	window_reset(&w, 1, 0);
	s.timed = true;
	add(&w, &s);
	window_reset(&w, 2, 0);
	/* The entry is a spare one, so the first allocation is that of the times. */
	failalloc_at(0);
	assert_int_equal(window_add(&w, &s), 0);
	assert_int_equal(window_add(&w, &s), 0);
	s.tid++;
	assert_int_equal(window_add(&w, &s), -ENOMEM);
	assert_true(failalloc_stop());
	assert_int_equal(w.n, 1);
	assert_int_equal(w.shares.all->entries, 1);
	assert_int_equal(w.list->samples, 2);
	assert_null(w.list->times);
	assert_null(w.list->next);
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

/* ---- a window that fills up ------------------------------------------------------------------ */

enum { LIMIT = 1600, NOISY = 8, QUIET = 9 };

static struct process noisy = {.key = {.cgroup = NOISY}}, quiet = {.key = {.cgroup = QUIET}};
static struct stack bare;

static int64_t without_thread, without_stack;

static void begin_full(struct window *w)
{
	window_init(w);
	window_limit(w, LIMIT);
	window_reset(w, 1, 0);
	without_thread = metric_get(M_COUNTS_WITHOUT_THREAD);
	without_stack = metric_get(M_COUNTS_BARE);
}

/* Adds a sample of PROCESS's thread TID. */
static int add_of(struct window *w, struct process *process, uint32_t tid)
{
	struct window_sample s = base;

	s.bare = &bare;
	s.process = process;
	s.tid = tid;
	return window_add(w, &s);
}

/* Adds samples of new threads of PROCESS until W has N entries. */
static uint32_t fill(struct window *w, struct process *process, size_t n, uint32_t tid)
{
	while (w->n < n)
		assert_int_equal(add_of(w, process, ++tid), 0);
	return tid;
}

static struct count *count_of(const struct window *w, const struct process *process,
			      const struct stack *stack, uint32_t tid)
{
	for (struct count *c = w->list; c; c = c->next)
		if (c->key.process == process && c->key.stack == stack && c->key.tid == tid)
			return c;
	return NULL;
}

static void assert_shed(int64_t thread, int64_t stack)
{
	assert_int_equal(metric_get(M_COUNTS_WITHOUT_THREAD) - without_thread, thread);
	assert_int_equal(metric_get(M_COUNTS_BARE) - without_stack, stack);
}

static void who_fills_a_window_loses_threads_and_labels_and_nobody_a_sample(void **state)
{
	struct label_set labels = {.number = 1, .refs = 1};
	struct window_sample s = base;
	const struct count *c;
	struct window w;
	uint32_t tid;

	begin_full(&w);
	tid = fill(&w, &noisy, LIMIT * 12 / 16, 0);
	assert_shed(0, 0);
	s.bare = &bare;
	s.process = &noisy;
	s.thread_name = "a long name of a thread";
	s.labels = &labels;
	for (int i = 0; i < 10; i++) {
		s.tid = ++tid;
		add(&w, &s);
	}
	assert_shed(10, 0);
	assert_int_equal(w.n, LIMIT * 12 / 16 + 1);
	c = count_of(&w, &noisy, &s1, 0);
	assert_int_equal(c->samples, 10);
	assert_int_equal(c->value, 10UL * PERIOD);
	assert_string_equal(c->key.comm, "");
	assert_null(c->thread_name);
	assert_null(c->labels);
	assert_int_equal(labels.refs, 1);
	/* What has an entry is counted there, and others lose nothing. */
	add_of(&w, &noisy, 1);
	assert_int_equal(count_of(&w, &noisy, &s1, 1)->samples, 2);
	s.process = &quiet;
	add(&w, &s);
	assert_int_equal(count_of(&w, &quiet, &s1, tid)->key.labels, 1);
	assert_string_equal(count_of(&w, &quiet, &s1, tid)->thread_name, s.thread_name);
	assert_shed(10, 0);
	window_done(&w);
	assert_int_equal(labels.refs, 1);
}

static void nearly_full_it_loses_its_stack_and_others_the_thread(void **state)
{
	struct window_sample s = base;
	struct window w;
	uint32_t tid;

	begin_full(&w);
	tid = fill(&w, &noisy, LIMIT * 12 / 16, 0);
	tid = fill(&w, &quiet, LIMIT * 14 / 16, tid);
	assert_shed(0, 0);
	assert_int_equal(add_of(&w, &noisy, ++tid), 0);
	assert_int_equal(count_of(&w, &noisy, &bare, 0)->samples, 1);
	assert_int_equal(add_of(&w, &quiet, ++tid), 0);
	assert_int_equal(count_of(&w, &quiet, &s1, 0)->samples, 1);
	assert_shed(1, 1);
	/* Off-CPU samples are calibrated by thread. */
	s.bare = &bare;
	s.process = &noisy;
	s.origin = KILN_ORIGIN_OFF_CPU;
	s.period = 0;
	s.tid = ++tid;
	add(&w, &s);
	assert_string_equal(count_of(&w, &noisy, &bare, tid)->key.comm, "main");
	window_done(&w);
}

/* 16 owners with equal parts: nobody takes more than a share. Each sample is counted until even the
 * entries without a stack have no room, and those that exist take samples of a full window. */
static void a_full_window_counts_what_it_has_an_entry_for(void **state)
{
	struct process processes[LIMIT];
	struct window w;
	uint64_t value = 0;
	uint32_t tid = 0;

	begin_full(&w);
	memset(processes, 0, sizeof(processes));
	for (size_t i = 0; i < ARRAY_SIZE(processes); i++)
		processes[i].key.cgroup = 1 + i % 16;
	for (size_t i = 0; i < LIMIT * 15 / 16; i++)
		assert_int_equal(add_of(&w, &processes[i % 16], ++tid), 0);
	assert_int_equal(w.n, LIMIT * 14 / 16 + 16);
	for (size_t i = 0; w.n < LIMIT; i++)
		assert_int_equal(add_of(&w, &processes[i], ++tid), 0);
	assert_int_equal(add_of(&w, &processes[LIMIT - 1], ++tid), -ENOSPC);
	assert_int_equal(w.n, LIMIT);
	assert_ptr_equal(w.list->key.stack, &bare);
	assert_int_equal(add_of(&w, w.list->key.process, ++tid), 0);
	assert_int_equal(w.list->samples, 2);
	for (const struct count *c = w.list; c; c = c->next)
		value += c->value;
	assert_int_equal(value, (tid - 1) * (uint64_t)PERIOD);
	window_done(&w);
}

static enum window_fate waits(struct count *c, void *arg)
{
	return WINDOW_WAIT;
}

/* An entry is charged in the window that it is in. */
static void what_moves_to_the_next_window_is_charged_there(void **state)
{
	struct window w, next;

	begin_full(&w);
	begin_full(&next);
	fill(&w, &noisy, LIMIT * 12 / 16, 0);
	window_sort(&w, &next, waits, NULL);
	assert_int_equal(w.shares.n, 0);
	assert_int_equal(next.shares.n, 1);
	assert_int_equal(add_of(&next, &noisy, LIMIT), 0);
	assert_non_null(count_of(&next, &noisy, &s1, 0));
	window_reset(&next, 2, 0);
	assert_int_equal(next.shares.n, 0);
	fill(&next, &quiet, LIMIT * 12 / 16, 0);
	assert_int_equal(add_of(&next, &noisy, LIMIT), 0);
	assert_null(count_of(&next, &noisy, &s1, 0));
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
	    cmocka_unit_test(a_sample_whose_time_has_no_room_is_counted_without),
	    cmocka_unit_test(without_memory_for_its_time_a_sample_is_counted),
	    cmocka_unit_test(reset_empties),
	    cmocka_unit_test(what_was_dropped_is_counted_anew),
	    cmocka_unit_test(who_fills_a_window_loses_threads_and_labels_and_nobody_a_sample),
	    cmocka_unit_test(nearly_full_it_loses_its_stack_and_others_the_thread),
	    cmocka_unit_test(a_full_window_counts_what_it_has_an_entry_for),
	    cmocka_unit_test(what_moves_to_the_next_window_is_charged_there),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
