/* SPDX-License-Identifier: Apache-2.0 */
/* The sender: what goes out, in which order, and what becomes of the rest. See test_sender_spool.c
 * for what it keeps on disk. */
#include "lib/metrics.h"
#include "tests/support/failalloc.h"
#include "tests/support/log_capture.h"
#include "tests/unit/agent/export/sender_bench.h"

static uint64_t ahead_ms;

uint64_t __wrap_uv_now(const uv_loop_t *loop);
uint64_t __real_uv_now(const uv_loop_t *loop);

uint64_t __wrap_uv_now(const uv_loop_t *loop)
{
	return __real_uv_now(loop) + ahead_ms;
}

static void test_batches_go_out_in_order(void **state)
{
	struct bench *b = *state;

	assert_int_equal(bench_start(b), 0);
	bench_consume(b, 100, 50);
	bench_flush(b, 60000);
	bench_assert_seen(b, 100, 50);
	assert_int_equal(b->st.sent_requests, 50);
	assert_int_equal(b->st.sent_samples, 50 * SAMPLES);
	assert_int_equal(bench_dropped(b), 0);
}

static void test_a_retried_request_goes_before_the_next(void **state)
{
	const struct transport_answer *script[] = {&answer_busy, &answer_away, &answer_sent,
						   &answer_busy, &answer_sent, NULL};
	struct bench *b = *state;

	b->fake.script = script;
	assert_int_equal(bench_start(b), 0);
	bench_consume(b, 1, 2);
	bench_flush(b, 60000);
	assert_int_equal(b->fake.n_seen, 5);
	assert_int_equal(b->fake.seen[0], 1);
	assert_int_equal(b->fake.seen[1], 1);
	assert_int_equal(b->fake.seen[2], 1);
	assert_int_equal(b->fake.seen[3], 2);
	assert_int_equal(b->fake.seen[4], 2);
	assert_int_equal(b->st.retries, 3);
	assert_int_equal(b->st.uncertain, 1);
	assert_false(b->st.down);
	assert_int_equal(bench_dropped(b), 0);
}

static void test_a_request_that_was_taken_may_be_uncertain(void **state)
{
	static const struct transport_answer resent = {
	    .result = TRANSPORT_SENT, .uncertain = true, .message = ""};
	const struct transport_answer *script[] = {&resent, NULL};
	int64_t before = metric_get(M_EXPORT_REQUESTS_UNCERTAIN);
	struct bench *b = *state;

	b->fake.script = script;
	assert_int_equal(bench_start(b), 0);
	bench_consume(b, 1, 2);
	bench_flush(b, 60000);
	bench_assert_seen(b, 1, 2);
	assert_int_equal(b->st.sent_requests, 2);
	assert_int_equal(b->st.retries, 0);
	assert_int_equal(b->st.uncertain, 1);
	assert_int_equal(metric_get(M_EXPORT_REQUESTS_UNCERTAIN) - before, 1);
}

static void test_a_rejected_request_is_dropped_once(void **state)
{
	const struct transport_answer *script[] = {&answer_rejected, &answer_sent, NULL};
	int64_t before = metric_get(M_EXPORT_DROPPED_REJECTED);
	struct bench *b = *state;

	b->fake.script = script;
	assert_int_equal(bench_start(b), 0);
	bench_consume(b, 1, 2);
	bench_flush(b, 60000);
	bench_assert_seen(b, 1, 2);
	assert_int_equal(b->st.dropped_samples[DROP_REJECTED], SAMPLES);
	assert_int_equal(metric_get(M_EXPORT_DROPPED_REJECTED) - before, SAMPLES);
	assert_int_equal(b->st.retries, 0);
}

static void test_refusals_use_up_max_elapsed_time_and_absence_does_not(void **state)
{
	const struct transport_answer *refusals[] = {
	    &answer_busy, &answer_busy, &answer_busy, &answer_busy, &answer_busy, &answer_busy,
	    &answer_busy, &answer_busy, &answer_busy, &answer_busy, NULL};
	const struct transport_answer *absences[] = {
	    &answer_away, &answer_away, &answer_away, &answer_away, &answer_away, &answer_away,
	    &answer_away, &answer_away, &answer_away, &answer_away, NULL};
	struct bench *b = *state;

	b->config.retry.max_elapsed_time_ms = 4;
	b->fake.script = refusals;
	assert_int_equal(bench_start(b), 0);
	bench_consume(b, 1, 1);
	bench_flush(b, 60000);
	assert_int_equal(b->st.dropped_samples[DROP_EXPIRED], SAMPLES);
	assert_true(b->fake.n_seen < 10);
	bench_stop(b);

	b->fake.script = absences;
	assert_int_equal(bench_start(b), 0);
	bench_consume(b, 1, 1);
	bench_flush(b, 60000);
	assert_int_equal(b->st.sent_requests, 1);
	assert_int_equal(b->fake.n_seen, 11);
}

static void test_without_retry_one_failure_is_the_end(void **state)
{
	const struct transport_answer *script[] = {&answer_away, &answer_sent, NULL};
	struct bench *b = *state;

	b->config.retry.enabled = false;
	b->fake.script = script;
	assert_int_equal(bench_start(b), 0);
	bench_consume(b, 1, 2);
	bench_flush(b, 60000);
	bench_assert_seen(b, 1, 2);
	assert_int_equal(b->st.dropped_samples[DROP_EXPIRED], SAMPLES);
}

static void test_a_full_queue_drops_the_oldest_but_not_what_is_under_way(void **state)
{
	struct bench *b = *state;

	b->config.queue.queue_size = 3;
	b->fake.silent = true;
	assert_int_equal(bench_start(b), 0);
	bench_consume(b, 1, 10);
	run_until(b, b->st.queue_requests + b->st.dropped_requests[DROP_QUEUE_FULL] == 10);
	assert_int_equal(b->st.queue_requests, 3);
	assert_int_equal(b->st.dropped_samples[DROP_QUEUE_FULL], 7 * SAMPLES);
	b->fake.silent = false;
	bench_answer(b);
	bench_flush(b, 60000);
	assert_int_equal(b->fake.n_seen, 3);
	assert_int_equal(b->fake.seen[0], 1);
	assert_int_equal(b->fake.seen[1], 9);
	assert_int_equal(b->fake.seen[2], 10);
}

static void test_bytes_are_capped_too(void **state)
{
	struct bench *b = *state;

	b->config.queue.max_bytes = 1000;
	b->fake.silent = true;
	bench_encode_len = 300;
	assert_int_equal(bench_start(b), 0);
	bench_consume(b, 1, 10);
	run_until(b, b->st.queue_requests + b->st.dropped_requests[DROP_QUEUE_FULL] == 10);
	assert_int_equal(b->st.queue_bytes, 900);
}

static void test_a_batch_of_several_requests(void **state)
{
	struct bench *b = *state;

	bench_encode_requests = 4;
	assert_int_equal(bench_start(b), 0);
	bench_consume(b, 1, 2);
	bench_flush(b, 60000);
	assert_int_equal(b->fake.n_seen, 8);
	assert_int_equal(b->fake.seen[3], 1);
	assert_int_equal(b->fake.seen[4], 2);
}

static void test_the_end_without_disk_drops_and_counts(void **state)
{
	struct bench *b = *state;

	b->fake.silent = true;
	assert_int_equal(bench_start(b), 0);
	bench_consume(b, 1, 5);
	bench_flush(b, 20);
	assert_int_equal(b->fake.cancels, 1);
	assert_int_equal(b->st.dropped_samples[DROP_SHUTDOWN], 5 * SAMPLES);
	assert_int_equal(b->st.uncertain, 1);
	bench_consume(b, 6, 1); /* too late */
	sender_get_stats(b->sender, &b->st);
	assert_int_equal(b->st.dropped_samples[DROP_SHUTDOWN], 6 * SAMPLES);
}

static void test_an_encoding_of_another_transport_is_not_sent(void **state)
{
	struct bench *b = *state;

	b->config.queue.storage = b->dir;
	b->fake.silent = true;
	assert_int_equal(bench_start(b), 0);
	bench_consume(b, 1, 1);
	bench_flush(b, 10);
	bench_stop(b);
	b->fake.silent = false;
	{
		struct sender_options o = {.config = &b->config,
					   .encoding = PAYLOAD_GZIP,
					   .encodings = 1u << PAYLOAD_GZIP,
					   .encode = fake_encode};
		struct error err;

		b->fake = (struct fake){.transport.ops = &fake_ops};
		uv_timer_init(&b->loop, &b->fake.timer);
		b->flushed = 0;
		assert_int_equal(sender_new(&o, &b->fake.transport, &b->loop, &b->sender, &err), 0);
	}
	bench_flush(b, 60000);
	assert_int_equal(b->fake.n_seen, 0);
	assert_int_equal(b->st.dropped_samples[DROP_ENCODING], SAMPLES);
	assert_int_equal(b->st.spool_requests, 0);
}

static void test_a_batch_that_cannot_be_encoded_is_counted(void **state)
{
	struct bench *b = *state;

	bench_encode_result = -E2BIG;
	assert_int_equal(bench_start(b), 0);
	bench_consume(b, 1, 1);
	bench_flush(b, 60000);
	assert_int_equal(b->st.dropped_samples[DROP_ENCODING], SAMPLES);
	assert_int_equal(b->fake.n_seen, 0);
}

static void test_too_many_batches_at_once_drop_the_oldest(void **state)
{
	struct bench *b = *state;
	struct batch *batch;
	uint64_t i;

	assert_int_equal(bench_start(b), 0);
	for (i = 1; i <= 30; i++) { /* the loop never turns: only the first is being encoded */
		batch = bench_batch(i);
		sender_consume(b->sender, batch);
		batch_unref(batch);
	}
	bench_flush(b, 60000);
	assert_int_equal(b->st.dropped_samples[DROP_BACKLOG], 22 * SAMPLES);
	assert_int_equal(b->fake.n_seen, 8);
	assert_int_equal(b->fake.seen[0], 1);
	assert_int_equal(b->fake.seen[1], 24);
	assert_int_equal(b->fake.seen[7], 30);
}

static void test_a_transport_that_cannot_begin_is_asked_again(void **state)
{
	struct bench *b = *state;

	assert_int_equal(bench_start(b), 0);
	b->fake.refuse = 1;
	bench_consume(b, 1, 1);
	bench_flush(b, 60000);
	bench_assert_seen(b, 1, 1);
}

static struct transport *second_transport(struct bench *b, struct fake *f)
{
	*f = (struct fake){.transport.ops = &fake_ops};
	uv_timer_init(&b->loop, &f->timer);
	return &f->transport;
}

static void test_a_new_transport_takes_over_after_the_answer(void **state)
{
	struct bench *b = *state;
	struct fake second, third;

	b->fake.silent = true;
	assert_int_equal(bench_start(b), 0);
	bench_consume(b, 1, 3);
	run_until(b, b->fake.under_way == 1);
	sender_set_transport(b->sender, second_transport(b, &second));
	sender_set_transport(b->sender, second_transport(b, &third)); /* before the second began */
	assert_int_equal(second.destroyed, 1);
	assert_int_equal(b->fake.destroyed, 0); /* waits for the answer in progress */
	bench_answer(b);
	run_until(b, b->st.sent_requests == 3);
	assert_int_equal(b->fake.destroyed, 1);
	assert_int_equal(b->fake.cancels, 0);
	bench_assert_seen(b, 1, 1);
	assert_int_equal(second.n_seen, 0);
	assert_int_equal(third.n_seen, 2);
	assert_int_equal(third.seen[0], 2);
	bench_stop(b);
	assert_int_equal(third.destroyed, 1);
	assert_int_equal(bench_dropped(b), 0);
}

static void test_a_new_transport_does_not_wait_for_the_former_receiver(void **state)
{
	static const struct transport_answer *script[] = {&answer_away, NULL};
	struct bench *b = *state;
	struct fake second;

	b->config.retry.initial_interval_ms = b->config.retry.max_interval_ms = 3600 * 1000;
	b->fake.script = script;
	assert_int_equal(bench_start(b), 0);
	bench_consume(b, 1, 1);
	run_until(b, b->st.down);
	sender_set_transport(b->sender, second_transport(b, &second));
	run_until(b, b->st.sent_requests == 1);
	assert_int_equal(second.n_seen, 1);
	bench_stop(b);
	assert_int_equal(second.destroyed, 1);
}

static void test_partial_success_is_counted_and_the_request_is_gone(void **state)
{
	static struct transport_answer partial = {
	    .result = TRANSPORT_SENT, .rejected = 4, .message = "half"};
	const struct transport_answer *script[] = {&partial, NULL};
	struct bench *b = *state;

	b->fake.script = script;
	assert_int_equal(bench_start(b), 0);
	bench_consume(b, 1, 2);
	bench_flush(b, 60000);
	bench_assert_seen(b, 1, 2);
	assert_int_equal(b->st.partial, 1);
	assert_int_equal(b->st.rejected_profiles, 4);
}

static void test_the_log_tells_of_the_first_success_and_once_an_hour(void **state)
{
	/*
	 * Per request: the minute in which it is sent, and the number of hourly log lines by then.
	 */
	static const struct {
		unsigned int minute;
		size_t lines;
	} rows[] = {{0, 0}, {0, 0}, {58, 0}, {61, 1}, {61, 1}, {119, 1}, {122, 2}};
	struct bench *b = *state;

	assert_int_equal(bench_start(b), 0);
	log_capture_clear();
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		ahead_ms = rows[i].minute * 60000ULL;
		bench_consume(b, i + 1, 1);
		run_until(b, b->st.sent_requests == i + 1);
		assert_int_equal(log_capture_count("has taken"), rows[i].lines);
	}
	assert_int_equal(log_capture_count("takes profiles"), 1);
	assert_int_equal(log_capture_count("otlp_grpc/a.b: http://host:1/ takes profiles: 3 "
					   "samples, as OTLP v1.8 and v1.9"),
			 1);
	assert_int_equal(log_capture_count("http://host:1/ has taken 4 requests with 12 samples "
					   "since the start"),
			 1);
	assert_int_equal(log_capture_count("has taken 7 requests with 21 samples"), 1);
	ahead_ms = 0;
}

static void test_free_at_any_moment_leaves_nothing(void **state)
{
	struct bench *b = *state;
	int turns, i;

	b->config.queue.storage = b->dir;
	b->config.queue.queue_size = 2;
	for (turns = 0; turns < 40; turns++) {
		assert_int_equal(bench_start(b), 0);
		bench_consume(b, 1, 4);
		for (i = 0; i < turns; i++)
			uv_run(&b->loop, UV_RUN_NOWAIT);
		if (turns % 2)
			sender_flush(b->sender, 0, bench_flushed, b);
		bench_stop(b);
	}
}

static void test_free_from_inside_the_callback_of_flush(void **state)
{
	struct bench *b = *state;

	assert_int_equal(bench_start(b), 0);
	b->free_when_flushed = true;
	bench_consume(b, 1, 1);
	bench_flush(b, 60000);
	assert_null(b->sender);
	uv_run(&b->loop, UV_RUN_DEFAULT);
	assert_int_equal(b->fake.destroyed, 1);
}

static void test_out_of_memory_at_any_allocation(void **state)
{
	struct bench *b = *state;
	bool failed = true;
	int r;
	long n;

	b->config.queue.storage = b->dir;
	for (n = 0; failed; n++) {
		failalloc_at(n);
		r = bench_start(b);
		failed = failalloc_stop();
		assert_int_equal(r, failed ? -ENOMEM : 0);
		bench_stop(b);
	}
	assert_in_range(n, 3, 100);
}

#define test(name) cmocka_unit_test_setup_teardown(name, bench_setup, bench_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    test(test_batches_go_out_in_order),
	    test(test_a_retried_request_goes_before_the_next),
	    test(test_a_request_that_was_taken_may_be_uncertain),
	    test(test_a_rejected_request_is_dropped_once),
	    test(test_refusals_use_up_max_elapsed_time_and_absence_does_not),
	    test(test_without_retry_one_failure_is_the_end),
	    test(test_a_full_queue_drops_the_oldest_but_not_what_is_under_way),
	    test(test_bytes_are_capped_too),
	    test(test_a_batch_of_several_requests),
	    test(test_the_end_without_disk_drops_and_counts),
	    test(test_an_encoding_of_another_transport_is_not_sent),
	    test(test_a_batch_that_cannot_be_encoded_is_counted),
	    test(test_too_many_batches_at_once_drop_the_oldest),
	    test(test_a_transport_that_cannot_begin_is_asked_again),
	    test(test_a_new_transport_takes_over_after_the_answer),
	    test(test_a_new_transport_does_not_wait_for_the_former_receiver),
	    test(test_partial_success_is_counted_and_the_request_is_gone),
	    test(test_the_log_tells_of_the_first_success_and_once_an_hour),
	    test(test_free_at_any_moment_leaves_nothing),
	    test(test_free_from_inside_the_callback_of_flush),
	    test(test_out_of_memory_at_any_allocation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
