/* SPDX-License-Identifier: Apache-2.0 */
/* The sender with a spool: what is on disk goes out in order, over restarts, and nothing of it is
 * lost while there is room. */
#include "agent/export/spool.h"
#include "lib/work.h"
#include "tests/unit/agent/export/sender_bench.h"

static _Atomic int read_result; /* < 0: the spool cannot be read */
static _Atomic unsigned int failed_reads;
static _Atomic bool inline_jobs; /* no thread is available for a job */

int __wrap_spool_next(struct spool *s, uint64_t after, uint64_t *ret_seq, struct payload *ret,
		      struct spool_loss *loss);
int __real_spool_next(struct spool *s, uint64_t after, uint64_t *ret_seq, struct payload *ret,
		      struct spool_loss *loss);
int __wrap_work_submit(uv_loop_t *loop, struct work *w, void (*run)(struct work *w),
		       void (*done)(struct work *w));
int __real_work_submit(uv_loop_t *loop, struct work *w, void (*run)(struct work *w),
		       void (*done)(struct work *w));

int __wrap_spool_next(struct spool *s, uint64_t after, uint64_t *ret_seq, struct payload *ret,
		      struct spool_loss *loss)
{
	if (read_result == 0)
		return __real_spool_next(s, after, ret_seq, ret, loss);
	failed_reads++;
	assert_true(!inline_jobs || failed_reads < 1000); /* before a recursion ends the stack */
	return read_result;
}

int __wrap_work_submit(uv_loop_t *loop, struct work *w, void (*run)(struct work *w),
		       void (*done)(struct work *w))
{
	return inline_jobs ? -EAGAIN : __real_work_submit(loop, w, run, done);
}

static void test_what_is_left_goes_to_disk_and_out_after_the_next_start(void **state)
{
	struct bench *b = *state;

	b->config.queue.storage = b->dir;
	b->fake.silent = true;
	assert_int_equal(bench_start(b), 0);
	bench_consume(b, 1, 5);
	bench_flush(b, 20);
	assert_int_equal(bench_dropped(b), 0);
	bench_stop(b);

	b->fake.silent = false;
	assert_int_equal(bench_start(b), 0);
	sender_get_stats(b->sender, &b->st);
	assert_int_equal(b->st.spool_requests, 5);
	bench_consume(b, 6, 3);
	bench_flush(b, 60000);
	bench_assert_seen(b, 1, 8);
	assert_int_equal(bench_dropped(b), 0);
	bench_stop(b);

	assert_int_equal(bench_start(b), 0); /* requests that were sent are no longer on disk */
	sender_get_stats(b->sender, &b->st);
	assert_int_equal(b->st.spool_requests, 0);
}

static void test_numbers_go_on_after_a_restart(void **state)
{
	struct bench *b = *state;
	int run;

	b->config.queue.storage = b->dir;
	b->config.queue.queue_size = 2;
	b->fake.silent = true;
	for (run = 0; run < 3; run++) {
		assert_int_equal(bench_start(b), 0);
		bench_consume(b, 1 + (uint64_t)run * 4, 4);
		bench_flush(b, 10);
		bench_stop(b);
		assert_int_equal(bench_dropped(b), 0);
	}
	b->fake.silent = false;
	assert_int_equal(bench_start(b), 0);
	bench_flush(b, 60000);
	bench_assert_seen(b, 1, 12);
}

static void test_free_without_flush_leaves_on_disk_what_was_there(void **state)
{
	struct bench *b = *state;
	int run;

	b->config.queue.storage = b->dir;
	b->fake.silent = true;
	assert_int_equal(bench_start(b), 0);
	bench_consume(b, 1, 4);
	bench_flush(b, 10);
	bench_stop(b);
	for (run = 0; run < 2; run++) {
		assert_int_equal(bench_start(b), 0);
		run_until(b, b->st.queue_requests == 4); /* read back, one under way */
		bench_stop(b);
		assert_int_equal(bench_dropped(b), 0);
	}
	b->fake.silent = false;
	assert_int_equal(bench_start(b), 0);
	bench_flush(b, 60000);
	bench_assert_seen(b, 1, 4);
}

static void test_an_absent_receiver_is_not_waited_for_at_the_end_with_a_disk(void **state)
{
	const struct transport_answer *script[] = {&answer_away, &answer_away, &answer_away,
						   &answer_away, &answer_away, &answer_away,
						   NULL};
	struct bench *b = *state;
	char error[256];

	b->config.queue.storage = b->dir;
	b->config.retry.initial_interval_ms = b->config.retry.max_interval_ms = 100000;
	b->fake.script = script;
	assert_int_equal(bench_start(b), 0);
	assert_true(sender_healthy(b->sender, error, sizeof(error)));
	bench_consume(b, 1, 3);
	run_until(b, b->st.down);
	assert_false(sender_healthy(b->sender, error, sizeof(error)));
	assert_int_equal(strncmp(error, "unreachable: ", 13), 0);
	bench_flush(b, 1000000000);	     /* ms: the test would not end */
	assert_int_equal(b->fake.n_seen, 2); /* once before, and once more at the end */
	bench_stop(b);
	assert_int_equal(b->st.queue_requests, 0);
	b->fake.script = NULL;
	assert_int_equal(bench_start(b), 0);
	bench_flush(b, 60000);
	bench_assert_seen(b, 1, 3);
	assert_true(sender_healthy(b->sender, error, sizeof(error)));
}

static void test_order_holds_through_memory_and_disk(void **state)
{
	struct bench *b = *state;

	b->config.queue.storage = b->dir;
	b->config.queue.queue_size = 4;
	b->fake.silent = true;
	assert_int_equal(bench_start(b), 0);
	bench_consume(b, 1, 20);
	run_until(b, b->st.queue_requests + b->st.spool_requests == 20);
	assert_int_equal(b->st.queue_requests, 4);
	b->fake.silent = false;
	bench_answer(b);
	bench_consume(b, 21, 20); /* while the disk drains */
	bench_flush(b, 60000);
	bench_assert_seen(b, 1, 40);
	assert_int_equal(bench_dropped(b), 0);
	assert_int_equal(b->st.spool_requests, 0);
}

/* A request that was read back from the spool is still on disk, so it is not lost when the queue in
 * memory is full. */
static void test_what_is_on_disk_is_never_dropped_for_memory(void **state)
{
	const struct transport_answer *answers[41] = {NULL};
	struct bench *b = *state;

	for (size_t i = 0; i + 1 < ARRAY_SIZE(answers); i++)
		answers[i] = i % 3 ? &answer_away : &answer_sent;
	b->config.queue.storage = b->dir;
	b->config.queue.max_bytes = 190; /* two requests; two are read from disk when one is left */
	b->fake.silent = true;
	b->fake.script = answers;
	assert_int_equal(bench_start(b), 0);
	bench_consume(b, 1, 20);
	run_until(b, b->st.queue_requests + b->st.spool_requests == 20);
	b->fake.silent = false;
	bench_answer(b);
	for (uint64_t i = 21; i <= 40; i++) { /* while it comes and goes */
		bench_consume(b, i, 1);
		run_until(b, b->fake.n_seen >= i - 10);
	}
	bench_flush(b, 60000);
	assert_int_equal(bench_dropped(b), 0);
	assert_int_equal(b->st.sent_samples / SAMPLES + (int64_t)b->st.spool_requests, 40);
}

static void test_the_end_in_the_middle_keeps_order_and_counts(void **state)
{
	struct bench *b = *state;
	size_t had;

	b->config.queue.storage = b->dir;
	b->config.queue.queue_size = 4;
	b->fake.silent = true;
	assert_int_equal(bench_start(b), 0);
	bench_consume(b, 1, 12);
	run_until(b, b->st.queue_requests + b->st.spool_requests == 12);
	b->fake.silent = false;
	bench_answer(b);
	run_until(b, b->st.sent_requests >= 5);
	b->fake.silent = true; /* some of the queue came from disk, some did not */
	bench_consume(b, 13, 6);
	run_until(b, b->fake.under_way);
	had = b->st.sent_requests;
	bench_flush(b, 20);
	had = b->st.sent_requests > had ? b->st.sent_requests : had;
	bench_stop(b);
	b->fake.silent = false;
	assert_int_equal(bench_start(b), 0);
	bench_flush(b, 60000);
	bench_assert_seen(b, had + 1, 18 - had);
}

static void test_a_full_disk_drops_the_oldest_there(void **state)
{
	struct bench *b = *state;

	b->config.queue.storage = b->dir;
	b->config.queue.queue_size = 1;
	b->config.queue.storage_max_bytes = 3 * (64 + 48);
	b->fake.silent = true;
	assert_int_equal(bench_start(b), 0);
	bench_consume(b, 1, 10);
	run_until(b, b->st.dropped_requests[DROP_SPOOL_FULL] == 6);
	assert_int_equal(b->st.dropped_samples[DROP_SPOOL_FULL], 6 * SAMPLES);
	b->fake.silent = false;
	bench_answer(b);
	bench_flush(b, 60000);
	assert_int_equal(b->fake.n_seen, 4);
	assert_int_equal(b->fake.seen[0], 1);
	assert_int_equal(b->fake.seen[1], 8);
	assert_int_equal(b->fake.seen[3], 10);
}

static void test_a_request_larger_than_the_disk_is_counted(void **state)
{
	struct bench *b = *state;

	b->config.queue.storage = b->dir;
	b->config.queue.storage_max_bytes = 50;
	b->fake.silent = true;
	assert_int_equal(bench_start(b), 0);
	bench_consume(b, 1, 2);
	bench_flush(b, 10);
	assert_int_equal(b->st.dropped_samples[DROP_SPOOL_ERROR], 2 * SAMPLES);
}

static void test_a_spool_that_cannot_be_read_for_now_is_read_later(void **state)
{
	enum { READS_MAX = 20, TURNS = 200 };
	struct bench *b = *state;

	b->config.queue.storage = b->dir;
	b->config.queue.queue_size = 4;
	for (int i = 0; i < 2; i++) {
		b->fake.silent = true;
		assert_int_equal(bench_start(b), 0);
		bench_consume(b, 1, 12);
		run_until(b, b->st.queue_requests + b->st.spool_requests == 12);
		failed_reads = 0;
		read_result = -EMFILE;
		inline_jobs = i;
		b->fake.silent = false;
		bench_answer(b);
		run_until(b, b->st.sent_requests == 4 && failed_reads > 0);
		for (int k = 0; k < TURNS; k++) {
			uv_run(&b->loop, UV_RUN_NOWAIT);
			usleep(1000);
		}
		assert_in_range(failed_reads, 1, READS_MAX);
		read_result = 0;
		bench_flush(b, 60000);
		inline_jobs = false;
		bench_assert_seen(b, 1, 12);
		assert_int_equal(bench_dropped(b), 0);
		assert_int_equal(b->st.spool_requests, 0);
		bench_stop(b);
	}
}

#define test(name) cmocka_unit_test_setup_teardown(name, bench_setup, bench_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    test(test_what_is_left_goes_to_disk_and_out_after_the_next_start),
	    test(test_numbers_go_on_after_a_restart),
	    test(test_free_without_flush_leaves_on_disk_what_was_there),
	    test(test_an_absent_receiver_is_not_waited_for_at_the_end_with_a_disk),
	    test(test_order_holds_through_memory_and_disk),
	    test(test_what_is_on_disk_is_never_dropped_for_memory),
	    test(test_a_spool_that_cannot_be_read_for_now_is_read_later),
	    test(test_the_end_in_the_middle_keeps_order_and_counts),
	    test(test_a_full_disk_drops_the_oldest_there),
	    test(test_a_request_larger_than_the_disk_is_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
