/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sender with a transport that answers as the test says, and an encoder that writes the batch's
 * number: what goes out, in which order, and what becomes of the rest. The loop is real, waits are
 * 1 ms.
 */
#include "agent/export/sender.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include "lib/metrics.h"
#include "tests/support/failalloc.h"

enum { SEEN_MAX = 4096, TURNS_MAX = 200000, SAMPLES = 3, WAIT_S = 60 };

/* ---- the transport --------------------------------------------------------------------------- */

static struct transport_answer sent = {.result = TRANSPORT_SENT, .message = ""};
static struct transport_answer busy = {.result = TRANSPORT_RETRY, .message = "busy"};
static struct transport_answer away = {
    .result = TRANSPORT_RETRY, .away = true, .uncertain = true, .message = "away"};
static struct transport_answer rejected = {.result = TRANSPORT_REJECTED, .message = "no"};

struct fake {
	struct transport transport;
	uv_timer_t timer;
	const struct transport_answer **script; /* NULL-terminated; then SENT for ever */
	bool silent;				/* never answers */
	int refuse;				/* so many sends cannot begin */
	uint64_t seen[SEEN_MAX];		/* batch numbers */
	size_t n_seen;
	int under_way, cancels, destroyed;
	const struct payload *payload; /* under way: must stay what it is */
	void (*done)(const struct transport_answer *answer, void *arg);
	void *arg;
};

static void answer_now(uv_timer_t *timer)
{
	struct fake *f = container_of(timer, struct fake, timer);
	const struct transport_answer *a = &sent;

	if (f->script && *f->script)
		a = *f->script++;
	assert_memory_equal(f->payload->data, &f->seen[f->n_seen - 1], sizeof(uint64_t));
	f->under_way--;
	f->done(a, f->arg);
}

static int fake_send(struct transport *t, const struct payload *p, uint64_t timeout_ms,
		     void (*done)(const struct transport_answer *, void *), void *arg)
{
	struct fake *f = container_of(t, struct fake, transport);

	assert_int_equal(f->under_way, 0); /* one at a time */
	if (f->refuse > 0) {
		f->refuse--;
		return -ENOMEM;
	}
	f->under_way++;
	f->payload = p;
	f->done = done;
	f->arg = arg;
	assert_true(f->n_seen < SEEN_MAX);
	memcpy(&f->seen[f->n_seen++], p->data, sizeof(uint64_t));
	if (!f->silent)
		uv_timer_start(&f->timer, answer_now, 0, 0);
	return 0;
}

static bool fake_cancel(struct transport *t)
{
	struct fake *f = container_of(t, struct fake, transport);

	uv_timer_stop(&f->timer);
	f->under_way--;
	f->cancels++;
	return true;
}

static struct transport *fake_destroy(struct transport *t)
{
	struct fake *f = container_of(t, struct fake, transport);

	f->destroyed++;
	uv_close((uv_handle_t *)&f->timer, NULL);
	return NULL;
}

static const struct transport_ops fake_ops = {fake_send, fake_cancel, fake_destroy};

/* ---- the encoder ----------------------------------------------------------------------------- */

static _Atomic size_t encoded; /* batches, counted on the pool's threads */
static int encode_result;
static size_t encode_len = 64, encode_requests = 1;

static int fake_encode(const struct batch *b, const struct otlp_options *options,
		       struct otlp_request **ret, size_t *ret_n, struct error *err)
{
	struct otlp_request *requests;
	size_t i;

	encoded++;
	if (encode_result < 0)
		return error_set(err, encode_result, "the test says so");
	requests = calloc(encode_requests, sizeof(*requests));
	if (!requests)
		return -ENOMEM;
	for (i = 0; i < encode_requests; i++) {
		requests[i].data = calloc(1, encode_len);
		if (!requests[i].data) {
			otlp_requests_free(requests, i);
			return -ENOMEM;
		}
		requests[i].len = encode_len;
		requests[i].samples = SAMPLES;
		memcpy(requests[i].data, &b->start_unix_ns, sizeof(uint64_t));
	}
	*ret = requests;
	*ret_n = encode_requests;
	return 0;
}

/* ---- a bench --------------------------------------------------------------------------------- */

struct bench {
	uv_loop_t loop;
	struct fake fake;
	struct exporter_config config;
	struct sender *sender;
	struct sender_stats st;
	int flushed;
	bool free_when_flushed;
	char dir[64];
};

static int setup(void **state)
{
	struct bench *b = calloc(1, sizeof(*b));

	if (!b)
		return -1;
	encode_result = 0;
	encode_len = 64;
	encode_requests = 1;
	b->config = (struct exporter_config){
	    .id = (char *)"otlp_grpc/a.b",
	    .endpoint = (char *)"http://user:secret@host:1/",
	    .timeout_ms = 1000,
	    .retry = {.enabled = true,
		      .initial_interval_ms = 1,
		      .multiplier = 1.0,
		      .max_interval_ms = 1},
	    .queue = {.enabled = true,
		      .queue_size = 1000,
		      .max_bytes = 1 << 20,
		      .storage_max_bytes = 1 << 20},
	};
	snprintf(b->dir, sizeof(b->dir), "/tmp/kiln-sender-XXXXXX");
	if (!mkdtemp(b->dir))
		return -1;
	uv_loop_init(&b->loop);
	*state = b;
	return 0;
}

static void remove_spool(const char *dir)
{
	char path[512], sub[128];
	struct dirent *entry;
	DIR *d;

	snprintf(sub, sizeof(sub), "%s/otlp_grpc_a_b", dir);
	d = opendir(sub);
	while (d && (entry = readdir(d))) {
		snprintf(path, sizeof(path), "%s/%s", sub, entry->d_name);
		unlink(path);
	}
	if (d)
		closedir(d);
	rmdir(sub);
	rmdir(dir);
}

static int start(struct bench *b)
{
	struct sender_options o = {.config = &b->config,
				   .encoding = PAYLOAD_PLAIN,
				   .encodings = 1u << PAYLOAD_PLAIN,
				   .encode = fake_encode};
	const struct transport_answer **script = b->fake.script;
	bool silent = b->fake.silent;
	struct error err = {0};

	b->fake = (struct fake){.transport.ops = &fake_ops, .script = script, .silent = silent};
	uv_timer_init(&b->loop, &b->fake.timer);
	b->flushed = 0;
	return sender_new(&o, &b->fake.transport, &b->loop, &b->sender, &err);
}

static void stop(struct bench *b)
{
	if (b->sender)
		sender_get_stats(b->sender, &b->st);
	b->sender = sender_free(b->sender);
	uv_run(&b->loop, UV_RUN_DEFAULT);
	assert_int_equal(b->fake.destroyed, 1);
}

static int teardown(void **state)
{
	struct bench *b = *state;

	if (b->sender)
		stop(b);
	assert_int_equal(uv_loop_close(&b->loop), 0);
	remove_spool(b->dir);
	free(b);
	/* Gauges come back to where they were. */
	assert_int_equal(metric_get(M_EXPORT_QUEUE_REQUESTS), 0);
	assert_int_equal(metric_get(M_EXPORT_QUEUE_BYTES), 0);
	assert_int_equal(metric_get(M_EXPORT_SPOOL_REQUESTS), 0);
	assert_int_equal(metric_get(M_EXPORT_SPOOL_BYTES), 0);
	return 0;
}

static struct batch *batch_of(uint64_t number)
{
	struct batch_line line = {0};
	struct batch_builder *builder;
	struct batch_sample sample = {.value = SAMPLES, .thread_name = "t"};
	struct batch *batch;
	uint32_t location;

	assert_int_equal(batch_builder_new(number, &builder), 0);
	line.function = batch_add_function(builder, "f", "f", "", 0);
	location = batch_add_location(builder, BATCH_NO_MAPPING, 0, FRAME_GO, &line, 1);
	sample.stack = batch_add_stack(builder, &location, 1);
	sample.process = batch_add_process(builder, 1, "p", "/p");
	batch_add_sample(builder, batch_add_resource(builder, NULL, 0, ""), PROFILE_CPU, 1,
			 &sample);
	assert_int_equal(batch_builder_finish(builder, 1, &batch), 0);
	return batch;
}

static void consume(struct bench *b, uint64_t first, size_t n)
{
	struct batch *batch;
	int turns;
	size_t i, before;

	for (i = 0; i < n; i++) {
		before = encoded;
		batch = batch_of(first + i);
		sender_consume(b->sender, batch);
		batch_unref(batch);
		/* Only so many batches may wait for the pool: let each one through. */
		for (turns = 0; turns < TURNS_MAX && encoded == before && !b->flushed; turns++)
			uv_run(&b->loop, UV_RUN_ONCE);
	}
}

/* Turns the loop until the condition holds, for WAIT_S at most. */
#define run_until(b, condition)                                                                    \
	do {                                                                                       \
		uint64_t until_ = uv_hrtime() + WAIT_S * 1000000000ULL;                            \
		int turns_;                                                                        \
		for (turns_ = 0; uv_hrtime() < until_; turns_++) {                                 \
			sender_get_stats((b)->sender, &(b)->st);                                   \
			if (condition)                                                             \
				break;                                                             \
			uv_run(&(b)->loop, UV_RUN_NOWAIT);                                         \
			if (turns_ % 64 == 63)                                                     \
				usleep(1000);                                                      \
		}                                                                                  \
		assert_true(condition);                                                            \
	} while (0)

static void on_flushed(void *arg)
{
	struct bench *b = arg;

	b->flushed++;
	if (b->free_when_flushed)
		b->sender = sender_free(b->sender);
}

static void flush(struct bench *b, uint64_t deadline_ms)
{
	int turns;

	sender_flush(b->sender, deadline_ms, on_flushed, b);
	for (turns = 0; turns < TURNS_MAX && !b->flushed; turns++)
		uv_run(&b->loop, UV_RUN_ONCE);
	assert_int_equal(b->flushed, 1);
	if (b->sender)
		sender_get_stats(b->sender, &b->st);
}

static void assert_seen(const struct bench *b, uint64_t first, size_t n)
{
	size_t i;

	assert_int_equal(b->fake.n_seen, n);
	for (i = 0; i < n; i++)
		assert_int_equal(b->fake.seen[i], first + i);
}

static int64_t dropped(const struct bench *b)
{
	int64_t sum = 0;
	size_t i;

	for (i = 0; i < DROP_REASONS; i++)
		sum += b->st.dropped_samples[i];
	return sum;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_batches_go_out_in_order(void **state)
{
	struct bench *b = *state;

	assert_int_equal(start(b), 0);
	consume(b, 100, 50);
	flush(b, 60000);
	assert_seen(b, 100, 50);
	assert_int_equal(b->st.sent_requests, 50);
	assert_int_equal(b->st.sent_samples, 50 * SAMPLES);
	assert_int_equal(dropped(b), 0);
}

static void test_a_retried_request_goes_before_the_next(void **state)
{
	const struct transport_answer *script[] = {&busy, &away, &sent, &busy, &sent, NULL};
	struct bench *b = *state;

	b->fake.script = script;
	assert_int_equal(start(b), 0);
	consume(b, 1, 2);
	flush(b, 60000);
	assert_int_equal(b->fake.n_seen, 5);
	assert_int_equal(b->fake.seen[0], 1);
	assert_int_equal(b->fake.seen[1], 1);
	assert_int_equal(b->fake.seen[2], 1);
	assert_int_equal(b->fake.seen[3], 2);
	assert_int_equal(b->fake.seen[4], 2);
	assert_int_equal(b->st.retries, 3);
	assert_int_equal(b->st.uncertain, 1);
	assert_false(b->st.down);
	assert_int_equal(dropped(b), 0);
}

static void test_a_rejected_request_is_dropped_once(void **state)
{
	const struct transport_answer *script[] = {&rejected, &sent, NULL};
	int64_t before = metric_get(M_EXPORT_DROPPED_REJECTED);
	struct bench *b = *state;

	b->fake.script = script;
	assert_int_equal(start(b), 0);
	consume(b, 1, 2);
	flush(b, 60000);
	assert_seen(b, 1, 2);
	assert_int_equal(b->st.dropped_samples[DROP_REJECTED], SAMPLES);
	assert_int_equal(metric_get(M_EXPORT_DROPPED_REJECTED) - before, SAMPLES);
	assert_int_equal(b->st.retries, 0);
}

static void test_refusals_use_up_max_elapsed_time_and_absence_does_not(void **state)
{
	const struct transport_answer *refusals[] = {&busy, &busy, &busy, &busy, &busy, &busy,
						     &busy, &busy, &busy, &busy, NULL};
	const struct transport_answer *absences[] = {&away, &away, &away, &away, &away, &away,
						     &away, &away, &away, &away, NULL};
	struct bench *b = *state;

	b->config.retry.max_elapsed_time_ms = 4;
	b->fake.script = refusals;
	assert_int_equal(start(b), 0);
	consume(b, 1, 1);
	flush(b, 60000);
	assert_int_equal(b->st.dropped_samples[DROP_EXPIRED], SAMPLES);
	assert_true(b->fake.n_seen < 10);
	stop(b);

	b->fake.script = absences;
	assert_int_equal(start(b), 0);
	consume(b, 1, 1);
	flush(b, 60000);
	assert_int_equal(b->st.sent_requests, 1);
	assert_int_equal(b->fake.n_seen, 11);
}

static void test_without_retry_one_failure_is_the_end(void **state)
{
	const struct transport_answer *script[] = {&away, &sent, NULL};
	struct bench *b = *state;

	b->config.retry.enabled = false;
	b->fake.script = script;
	assert_int_equal(start(b), 0);
	consume(b, 1, 2);
	flush(b, 60000);
	assert_seen(b, 1, 2);
	assert_int_equal(b->st.dropped_samples[DROP_EXPIRED], SAMPLES);
}

static void test_a_full_queue_drops_the_oldest_but_not_what_is_under_way(void **state)
{
	struct bench *b = *state;

	b->config.queue.queue_size = 3;
	b->fake.silent = true;
	assert_int_equal(start(b), 0);
	consume(b, 1, 10);
	run_until(b, b->st.queue_requests + b->st.dropped_requests[DROP_QUEUE_FULL] == 10);
	assert_int_equal(b->st.queue_requests, 3);
	assert_int_equal(b->st.dropped_samples[DROP_QUEUE_FULL], 7 * SAMPLES);
	b->fake.silent = false;
	uv_timer_start(&b->fake.timer, answer_now, 0, 0);
	flush(b, 60000);
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
	encode_len = 300;
	assert_int_equal(start(b), 0);
	consume(b, 1, 10);
	run_until(b, b->st.queue_requests + b->st.dropped_requests[DROP_QUEUE_FULL] == 10);
	assert_int_equal(b->st.queue_bytes, 900);
}

static void test_a_batch_of_several_requests(void **state)
{
	struct bench *b = *state;

	encode_requests = 4;
	assert_int_equal(start(b), 0);
	consume(b, 1, 2);
	flush(b, 60000);
	assert_int_equal(b->fake.n_seen, 8);
	assert_int_equal(b->fake.seen[3], 1);
	assert_int_equal(b->fake.seen[4], 2);
}

static void test_the_end_without_disk_drops_and_counts(void **state)
{
	struct bench *b = *state;

	b->fake.silent = true;
	assert_int_equal(start(b), 0);
	consume(b, 1, 5);
	flush(b, 20);
	assert_int_equal(b->fake.cancels, 1);
	assert_int_equal(b->st.dropped_samples[DROP_SHUTDOWN], 5 * SAMPLES);
	assert_int_equal(b->st.uncertain, 1);
	consume(b, 6, 1); /* too late */
	sender_get_stats(b->sender, &b->st);
	assert_int_equal(b->st.dropped_samples[DROP_SHUTDOWN], 6 * SAMPLES);
}

static void test_what_is_left_goes_to_disk_and_out_after_the_next_start(void **state)
{
	struct bench *b = *state;

	b->config.queue.storage = b->dir;
	b->fake.silent = true;
	assert_int_equal(start(b), 0);
	consume(b, 1, 5);
	flush(b, 20);
	assert_int_equal(dropped(b), 0);
	stop(b);

	b->fake.silent = false;
	assert_int_equal(start(b), 0);
	sender_get_stats(b->sender, &b->st);
	assert_int_equal(b->st.spool_requests, 5);
	consume(b, 6, 3);
	flush(b, 60000);
	assert_seen(b, 1, 8);
	assert_int_equal(dropped(b), 0);
	stop(b);

	assert_int_equal(start(b), 0); /* delivered is gone */
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
		assert_int_equal(start(b), 0);
		consume(b, 1 + (uint64_t)run * 4, 4);
		flush(b, 10);
		stop(b);
		assert_int_equal(dropped(b), 0);
	}
	b->fake.silent = false;
	assert_int_equal(start(b), 0);
	flush(b, 60000);
	assert_seen(b, 1, 12);
}

static void test_free_without_flush_leaves_on_disk_what_was_there(void **state)
{
	struct bench *b = *state;
	int run;

	b->config.queue.storage = b->dir;
	b->fake.silent = true;
	assert_int_equal(start(b), 0);
	consume(b, 1, 4);
	flush(b, 10);
	stop(b);
	for (run = 0; run < 2; run++) {
		assert_int_equal(start(b), 0);
		run_until(b, b->st.queue_requests == 4); /* read back, one under way */
		stop(b);
		assert_int_equal(dropped(b), 0);
	}
	b->fake.silent = false;
	assert_int_equal(start(b), 0);
	flush(b, 60000);
	assert_seen(b, 1, 4);
}

static void test_an_absent_receiver_is_not_waited_for_at_the_end_with_a_disk(void **state)
{
	const struct transport_answer *script[] = {&away, &away, &away, &away, &away, &away, NULL};
	struct bench *b = *state;
	char error[256];

	b->config.queue.storage = b->dir;
	b->config.retry.initial_interval_ms = b->config.retry.max_interval_ms = 100000;
	b->fake.script = script;
	assert_int_equal(start(b), 0);
	assert_true(sender_healthy(b->sender, error, sizeof(error)));
	consume(b, 1, 3);
	run_until(b, b->st.down);
	assert_false(sender_healthy(b->sender, error, sizeof(error)));
	assert_int_equal(strncmp(error, "unreachable: ", 13), 0);
	flush(b, 1000000000);		     /* would be felt */
	assert_int_equal(b->fake.n_seen, 2); /* the first, and once more at the end */
	stop(b);
	assert_int_equal(b->st.queue_requests, 0);
	b->fake.script = NULL;
	assert_int_equal(start(b), 0);
	flush(b, 60000);
	assert_seen(b, 1, 3);
	assert_true(sender_healthy(b->sender, error, sizeof(error)));
}

static void test_order_holds_through_memory_and_disk(void **state)
{
	struct bench *b = *state;

	b->config.queue.storage = b->dir;
	b->config.queue.queue_size = 4;
	b->fake.silent = true;
	assert_int_equal(start(b), 0);
	consume(b, 1, 20);
	run_until(b, b->st.queue_requests + b->st.spool_requests == 20);
	assert_int_equal(b->st.queue_requests, 4);
	b->fake.silent = false;
	uv_timer_start(&b->fake.timer, answer_now, 0, 0);
	consume(b, 21, 20); /* while the disk drains */
	flush(b, 60000);
	assert_seen(b, 1, 40);
	assert_int_equal(dropped(b), 0);
	assert_int_equal(b->st.spool_requests, 0);
}

/* What was read back from disk is not dropped for its room in memory: it is still there. */
static void test_what_is_on_disk_is_never_dropped_for_memory(void **state)
{
	const struct transport_answer *answers[41] = {NULL};
	struct bench *b = *state;

	for (size_t i = 0; i + 1 < ARRAY_SIZE(answers); i++)
		answers[i] = i % 3 ? &away : &sent;
	b->config.queue.storage = b->dir;
	b->config.queue.max_bytes = 190; /* two; of the disk's two are read when one is left */
	b->fake.silent = true;
	b->fake.script = answers;
	assert_int_equal(start(b), 0);
	consume(b, 1, 20);
	run_until(b, b->st.queue_requests + b->st.spool_requests == 20);
	b->fake.silent = false;
	uv_timer_start(&b->fake.timer, answer_now, 0, 0);
	for (uint64_t i = 21; i <= 40; i++) { /* while it comes and goes */
		consume(b, i, 1);
		run_until(b, b->fake.n_seen >= i - 10);
	}
	flush(b, 60000);
	assert_int_equal(dropped(b), 0);
	assert_int_equal(b->st.sent_samples / SAMPLES + (int64_t)b->st.spool_requests, 40);
}

static void test_the_end_in_the_middle_keeps_order_and_counts(void **state)
{
	struct bench *b = *state;
	size_t had;

	b->config.queue.storage = b->dir;
	b->config.queue.queue_size = 4;
	b->fake.silent = true;
	assert_int_equal(start(b), 0);
	consume(b, 1, 12);
	run_until(b, b->st.queue_requests + b->st.spool_requests == 12);
	b->fake.silent = false;
	uv_timer_start(&b->fake.timer, answer_now, 0, 0);
	run_until(b, b->st.sent_requests >= 5);
	b->fake.silent = true; /* some of the queue came from disk, some did not */
	consume(b, 13, 6);
	run_until(b, b->fake.under_way);
	had = b->st.sent_requests;
	flush(b, 20);
	had = b->st.sent_requests > had ? b->st.sent_requests : had;
	stop(b);
	b->fake.silent = false;
	assert_int_equal(start(b), 0);
	flush(b, 60000);
	assert_seen(b, had + 1, 18 - had);
}

static void test_a_full_disk_drops_the_oldest_there(void **state)
{
	struct bench *b = *state;

	b->config.queue.storage = b->dir;
	b->config.queue.queue_size = 1;
	b->config.queue.storage_max_bytes = 3 * (64 + 48);
	b->fake.silent = true;
	assert_int_equal(start(b), 0);
	consume(b, 1, 10);
	run_until(b, b->st.dropped_requests[DROP_SPOOL_FULL] == 6);
	assert_int_equal(b->st.dropped_samples[DROP_SPOOL_FULL], 6 * SAMPLES);
	b->fake.silent = false;
	uv_timer_start(&b->fake.timer, answer_now, 0, 0);
	flush(b, 60000);
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
	assert_int_equal(start(b), 0);
	consume(b, 1, 2);
	flush(b, 10);
	assert_int_equal(b->st.dropped_samples[DROP_SPOOL_ERROR], 2 * SAMPLES);
}

static void test_an_encoding_of_another_transport_is_not_sent(void **state)
{
	struct bench *b = *state;

	b->config.queue.storage = b->dir;
	b->fake.silent = true;
	assert_int_equal(start(b), 0);
	consume(b, 1, 1);
	flush(b, 10);
	stop(b);
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
	flush(b, 60000);
	assert_int_equal(b->fake.n_seen, 0);
	assert_int_equal(b->st.dropped_samples[DROP_ENCODING], SAMPLES);
	assert_int_equal(b->st.spool_requests, 0);
}

static void test_a_batch_that_cannot_be_encoded_is_counted(void **state)
{
	struct bench *b = *state;

	encode_result = -E2BIG;
	assert_int_equal(start(b), 0);
	consume(b, 1, 1);
	flush(b, 60000);
	assert_int_equal(b->st.dropped_samples[DROP_ENCODING], SAMPLES);
	assert_int_equal(b->fake.n_seen, 0);
}

static void test_too_many_batches_at_once_drop_the_oldest(void **state)
{
	struct bench *b = *state;
	struct batch *batch;
	uint64_t i;

	assert_int_equal(start(b), 0);
	for (i = 1; i <= 30; i++) { /* the loop never turns: only the first is being encoded */
		batch = batch_of(i);
		sender_consume(b->sender, batch);
		batch_unref(batch);
	}
	flush(b, 60000);
	assert_int_equal(b->st.dropped_samples[DROP_BACKLOG], 22 * SAMPLES);
	assert_int_equal(b->fake.n_seen, 8);
	assert_int_equal(b->fake.seen[0], 1);
	assert_int_equal(b->fake.seen[1], 24);
	assert_int_equal(b->fake.seen[7], 30);
}

static void test_a_transport_that_cannot_begin_is_asked_again(void **state)
{
	struct bench *b = *state;

	assert_int_equal(start(b), 0);
	b->fake.refuse = 1;
	consume(b, 1, 1);
	flush(b, 60000);
	assert_seen(b, 1, 1);
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
	assert_int_equal(start(b), 0);
	consume(b, 1, 3);
	run_until(b, b->fake.under_way == 1);
	sender_set_transport(b->sender, second_transport(b, &second));
	sender_set_transport(b->sender, second_transport(b, &third)); /* before the second began */
	assert_int_equal(second.destroyed, 1);
	assert_int_equal(b->fake.destroyed, 0); /* its answer is still to come */
	uv_timer_start(&b->fake.timer, answer_now, 0, 0);
	run_until(b, b->st.sent_requests == 3);
	assert_int_equal(b->fake.destroyed, 1);
	assert_int_equal(b->fake.cancels, 0);
	assert_seen(b, 1, 1);
	assert_int_equal(second.n_seen, 0);
	assert_int_equal(third.n_seen, 2);
	assert_int_equal(third.seen[0], 2);
	stop(b);
	assert_int_equal(third.destroyed, 1);
	assert_int_equal(dropped(b), 0);
}

static void test_a_new_transport_does_not_wait_for_the_former_receiver(void **state)
{
	static const struct transport_answer *script[] = {&away, NULL};
	struct bench *b = *state;
	struct fake second;

	b->config.retry.initial_interval_ms = b->config.retry.max_interval_ms = 3600 * 1000;
	b->fake.script = script;
	assert_int_equal(start(b), 0);
	consume(b, 1, 1);
	run_until(b, b->st.down);
	sender_set_transport(b->sender, second_transport(b, &second));
	run_until(b, b->st.sent_requests == 1);
	assert_int_equal(second.n_seen, 1);
	stop(b);
	assert_int_equal(second.destroyed, 1);
}

static void test_partial_success_is_counted_and_the_request_is_gone(void **state)
{
	static struct transport_answer partial = {
	    .result = TRANSPORT_SENT, .rejected = 4, .message = "half"};
	const struct transport_answer *script[] = {&partial, NULL};
	struct bench *b = *state;

	b->fake.script = script;
	assert_int_equal(start(b), 0);
	consume(b, 1, 2);
	flush(b, 60000);
	assert_seen(b, 1, 2);
	assert_int_equal(b->st.partial, 1);
	assert_int_equal(b->st.rejected_profiles, 4);
}

static void test_free_at_any_moment_leaves_nothing(void **state)
{
	struct bench *b = *state;
	int turns, i;

	b->config.queue.storage = b->dir;
	b->config.queue.queue_size = 2;
	for (turns = 0; turns < 40; turns++) {
		assert_int_equal(start(b), 0);
		consume(b, 1, 4);
		for (i = 0; i < turns; i++)
			uv_run(&b->loop, UV_RUN_NOWAIT);
		if (turns % 2)
			sender_flush(b->sender, 0, on_flushed, b);
		stop(b);
	}
}

static void test_free_from_inside_the_callback_of_flush(void **state)
{
	struct bench *b = *state;

	assert_int_equal(start(b), 0);
	b->free_when_flushed = true;
	consume(b, 1, 1);
	flush(b, 60000);
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
		r = start(b);
		failed = failalloc_stop();
		assert_int_equal(r, failed ? -ENOMEM : 0);
		stop(b);
	}
	assert_in_range(n, 3, 100);
}

#define test(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    test(test_batches_go_out_in_order),
	    test(test_a_retried_request_goes_before_the_next),
	    test(test_a_rejected_request_is_dropped_once),
	    test(test_refusals_use_up_max_elapsed_time_and_absence_does_not),
	    test(test_without_retry_one_failure_is_the_end),
	    test(test_a_full_queue_drops_the_oldest_but_not_what_is_under_way),
	    test(test_bytes_are_capped_too),
	    test(test_a_batch_of_several_requests),
	    test(test_the_end_without_disk_drops_and_counts),
	    test(test_numbers_go_on_after_a_restart),
	    test(test_free_without_flush_leaves_on_disk_what_was_there),
	    test(test_what_is_left_goes_to_disk_and_out_after_the_next_start),
	    test(test_an_absent_receiver_is_not_waited_for_at_the_end_with_a_disk),
	    test(test_order_holds_through_memory_and_disk),
	    test(test_what_is_on_disk_is_never_dropped_for_memory),
	    test(test_the_end_in_the_middle_keeps_order_and_counts),
	    test(test_a_full_disk_drops_the_oldest_there),
	    test(test_a_request_larger_than_the_disk_is_counted),
	    test(test_an_encoding_of_another_transport_is_not_sent),
	    test(test_a_batch_that_cannot_be_encoded_is_counted),
	    test(test_too_many_batches_at_once_drop_the_oldest),
	    test(test_a_transport_that_cannot_begin_is_asked_again),
	    test(test_a_new_transport_takes_over_after_the_answer),
	    test(test_a_new_transport_does_not_wait_for_the_former_receiver),
	    test(test_partial_success_is_counted_and_the_request_is_gone),
	    test(test_free_at_any_moment_leaves_nothing),
	    test(test_free_from_inside_the_callback_of_flush),
	    test(test_out_of_memory_at_any_allocation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
