/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/agent/export/sender_bench.h"

#include <dirent.h>

#include "lib/metrics.h"

/* ---- the transport --------------------------------------------------------------------------- */

const struct transport_answer answer_sent = {.result = TRANSPORT_SENT, .message = ""};
const struct transport_answer answer_busy = {.result = TRANSPORT_RETRY, .message = "busy"};
const struct transport_answer answer_away = {
    .result = TRANSPORT_RETRY, .away = true, .uncertain = true, .message = "away"};
const struct transport_answer answer_rejected = {.result = TRANSPORT_REJECTED, .message = "no"};

static void answer_now(uv_timer_t *timer)
{
	struct fake *f = container_of(timer, struct fake, timer);
	const struct transport_answer *a = &answer_sent;

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

const struct transport_ops fake_ops = {
    .send = fake_send, .cancel = fake_cancel, .destroy = fake_destroy};

/* ---- the encoder ----------------------------------------------------------------------------- */

_Atomic size_t bench_encoded;
int bench_encode_result;
size_t bench_encode_len = 64, bench_encode_requests = 1;

int fake_encode(const struct batch *b, const struct otlp_options *options,
		struct otlp_request **ret, size_t *ret_n, struct error *err)
{
	struct otlp_request *requests;
	size_t i;

	bench_encoded++;
	if (bench_encode_result < 0)
		return error_set(err, bench_encode_result, "the test says so");
	requests = calloc(bench_encode_requests, sizeof(*requests));
	if (!requests)
		return -ENOMEM;
	for (i = 0; i < bench_encode_requests; i++) {
		requests[i].data = calloc(1, bench_encode_len);
		if (!requests[i].data) {
			otlp_requests_free(requests, i);
			return -ENOMEM;
		}
		requests[i].len = bench_encode_len;
		requests[i].samples = SAMPLES;
		memcpy(requests[i].data, &b->start_unix_ns, sizeof(uint64_t));
	}
	*ret = requests;
	*ret_n = bench_encode_requests;
	return 0;
}

/* ---- a bench --------------------------------------------------------------------------------- */

int bench_setup(void **state)
{
	struct bench *b = calloc(1, sizeof(*b));

	if (!b)
		return -1;
	bench_encode_result = 0;
	bench_encode_len = 64;
	bench_encode_requests = 1;
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

int bench_start(struct bench *b)
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

void bench_answer(struct bench *b)
{
	uv_timer_start(&b->fake.timer, answer_now, 0, 0);
}

void bench_stop(struct bench *b)
{
	if (b->sender)
		sender_get_stats(b->sender, &b->st);
	b->sender = sender_free(b->sender);
	uv_run(&b->loop, UV_RUN_DEFAULT);
	assert_int_equal(b->fake.destroyed, 1);
}

int bench_teardown(void **state)
{
	struct bench *b = *state;

	if (b->sender)
		bench_stop(b);
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

struct batch *bench_batch(uint64_t number)
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

void bench_consume(struct bench *b, uint64_t first, size_t n)
{
	struct batch *batch;
	int turns;
	size_t i, before;

	for (i = 0; i < n; i++) {
		before = bench_encoded;
		batch = bench_batch(first + i);
		sender_consume(b->sender, batch);
		batch_unref(batch);
		/* Only so many batches may wait for the pool: let each one through. */
		for (turns = 0; turns < TURNS_MAX && bench_encoded == before && !b->flushed;
		     turns++)
			uv_run(&b->loop, UV_RUN_ONCE);
	}
}

void bench_flushed(void *arg)
{
	struct bench *b = arg;

	b->flushed++;
	if (b->free_when_flushed)
		b->sender = sender_free(b->sender);
}

void bench_flush(struct bench *b, uint64_t deadline_ms)
{
	int turns;

	sender_flush(b->sender, deadline_ms, bench_flushed, b);
	for (turns = 0; turns < TURNS_MAX && !b->flushed; turns++)
		uv_run(&b->loop, UV_RUN_ONCE);
	assert_int_equal(b->flushed, 1);
	if (b->sender)
		sender_get_stats(b->sender, &b->st);
}

void bench_assert_seen(const struct bench *b, uint64_t first, size_t n)
{
	size_t i;

	assert_int_equal(b->fake.n_seen, n);
	for (i = 0; i < n; i++)
		assert_int_equal(b->fake.seen[i], first + i);
}

int64_t bench_dropped(const struct bench *b)
{
	int64_t sum = 0;
	size_t i;

	for (i = 0; i < DROP_REASONS; i++)
		sum += b->st.dropped_samples[i];
	return sum;
}
