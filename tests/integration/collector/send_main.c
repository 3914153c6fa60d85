/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends synthetic batches through the real exporters, so that tests can look at what arrives.
 *
 * Every sample has a thread name of its own, "PREFIX-batch-sample", and the value sample % 3 + 1:
 * the receiver's side can tell lost from doubled. One JSON line of statistics after each batch and
 * one at the end, on standard output.
 */
#include "agent/export/otlp_exporter.h"

#include <getopt.h>
#include <inttypes.h>
#include <time.h>

struct run {
	uv_loop_t loop;
	uv_timer_t tick;
	struct exporter *exporter;
	const char *prefix;
	unsigned long batches, samples, bloat, made;
	uint64_t interval_ms, flush_ms;
	int64_t sum;
	bool finished;
};

static uint64_t unix_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Bytes that do not compress, so that queues and limits see real sizes. */
static void noise(char *out, size_t len, uint64_t seed)
{
	size_t i;

	for (i = 0; i < len; i++)
		out[i] = (char)('0' + mix64(seed * 1000003 + i) % 75);
	out[len] = 0;
}

static void add_sample(struct run *run, struct batch_builder *b, uint32_t resource, unsigned long i)
{
	_cleanup_free_ char *name = malloc(run->bloat + 64);
	struct batch_line line = {.line = (uint32_t)i % 100 + 1};
	uint32_t frames[2];
	char thread[128];
	struct batch_sample sample = {.tid = (uint32_t)i + 1, .thread_name = thread};

	if (!name)
		abort();
	snprintf(thread, sizeof(thread), "%s-%lu-%lu", run->prefix, run->made, i);
	snprintf(name, 64, "leaf_%lu_", i);
	if (run->bloat)
		noise(name + strlen(name), run->bloat, run->made * 100003 + i);
	line.function = batch_add_function(b, name, name, "leaf.c", 1);
	frames[0] = batch_add_location(b, BATCH_NO_MAPPING, 0, FRAME_CPYTHON, &line, 1);
	line.function = batch_add_function(b, "main", "main", "main.c", 1);
	frames[1] = batch_add_location(b, BATCH_NO_MAPPING, 0, FRAME_CPYTHON, &line, 1);
	sample.stack = batch_add_stack(b, frames, ARRAY_SIZE(frames));
	sample.process = batch_add_process(b, 42, "send", "/usr/bin/send");
	sample.value = (int64_t)(i % 3) + 1;
	run->sum += sample.value;
	batch_add_sample(b, resource, PROFILE_CPU, 1000000000 / 20, &sample);
}

static void print_stats(const struct run *run, const char *state)
{
	struct sender_stats st;
	int64_t dropped = 0;
	size_t i;

	otlp_exporter_stats(run->exporter, &st);
	printf("{\"state\": \"%s\", \"batches\": %lu, \"made\": %" PRId64 ", \"sent\": %" PRId64
	       ", \"sent_requests\": %" PRIu64 ", \"retries\": %" PRIu64 ", \"uncertain\": %" PRIu64
	       ", \"partial\": %" PRIu64 ", \"rejected_profiles\": %" PRIu64
	       ", \"queue_requests\": %zu, \"queue_bytes\": %zu, \"spool_requests\": %zu"
	       ", \"down\": %s, \"drops\": {",
	       state, run->made, run->sum, st.sent_samples, st.sent_requests, st.retries,
	       st.uncertain, st.partial, st.rejected_profiles, st.queue_requests, st.queue_bytes,
	       st.spool_requests, st.down ? "true" : "false");
	for (i = 0; i < DROP_REASONS; i++) {
		dropped += st.dropped_samples[i];
		printf("\"%s\": %" PRId64 ", ", sender_drop_name((enum sender_drop)i),
		       st.dropped_samples[i]);
	}
	printf("\"all\": %" PRId64 "}}\n", dropped);
	fflush(stdout);
}

static void on_flushed(void *arg)
{
	struct run *run = arg;

	print_stats(run, "end");
	run->exporter = run->exporter->ops->destroy(run->exporter);
	run->finished = true;
}

static void on_tick(uv_timer_t *timer)
{
	struct run *run = container_of(timer, struct run, tick);
	struct attr attr = {.key = "service.name", .type = ATTR_STR, .str = "send"};
	struct batch_builder *b;
	struct batch *batch;
	uint32_t resource;
	unsigned long i;

	if (run->made == run->batches) {
		uv_close((uv_handle_t *)timer, NULL);
		run->exporter->ops->flush(run->exporter, run->flush_ms, on_flushed, run);
		return;
	}
	if (batch_builder_new(unix_ns(), &b) < 0)
		abort();
	resource = batch_add_resource(b, &attr, 1, "");
	for (i = 0; i < run->samples; i++)
		add_sample(run, b, resource, i);
	if (batch_builder_finish(b, 1000000000, &batch) < 0)
		abort();
	run->made++;
	run->exporter->ops->consume(run->exporter, batch);
	batch_unref(batch);
	print_stats(run, "run");
}

enum option_id {
	OPT_PROTOCOL = 1000,
	OPT_ENDPOINT,
	OPT_INSECURE,
	OPT_SKIP_VERIFY,
	OPT_CA,
	OPT_CERT,
	OPT_KEY,
	OPT_SERVER_NAME,
	OPT_COMPRESSION,
	OPT_HEADER,
	OPT_TIMEOUT,
	OPT_INITIAL,
	OPT_MAX_INTERVAL,
	OPT_MAX_ELAPSED,
	OPT_QUEUE_SIZE,
	OPT_MAX_BYTES,
	OPT_STORAGE,
	OPT_STORAGE_MAX,
	OPT_GENERATION,
	OPT_BATCHES,
	OPT_SAMPLES,
	OPT_BLOAT,
	OPT_INTERVAL,
	OPT_FLUSH,
	OPT_PREFIX,
};

static const struct option options[] = {
    {"protocol", required_argument, NULL, OPT_PROTOCOL},
    {"endpoint", required_argument, NULL, OPT_ENDPOINT},
    {"insecure", no_argument, NULL, OPT_INSECURE},
    {"skip-verify", no_argument, NULL, OPT_SKIP_VERIFY},
    {"ca", required_argument, NULL, OPT_CA},
    {"cert", required_argument, NULL, OPT_CERT},
    {"key", required_argument, NULL, OPT_KEY},
    {"server-name", required_argument, NULL, OPT_SERVER_NAME},
    {"compression", required_argument, NULL, OPT_COMPRESSION},
    {"header", required_argument, NULL, OPT_HEADER},
    {"timeout-ms", required_argument, NULL, OPT_TIMEOUT},
    {"initial-ms", required_argument, NULL, OPT_INITIAL},
    {"max-interval-ms", required_argument, NULL, OPT_MAX_INTERVAL},
    {"max-elapsed-ms", required_argument, NULL, OPT_MAX_ELAPSED},
    {"queue-size", required_argument, NULL, OPT_QUEUE_SIZE},
    {"max-bytes", required_argument, NULL, OPT_MAX_BYTES},
    {"storage", required_argument, NULL, OPT_STORAGE},
    {"storage-max-bytes", required_argument, NULL, OPT_STORAGE_MAX},
    {"generation", required_argument, NULL, OPT_GENERATION},
    {"batches", required_argument, NULL, OPT_BATCHES},
    {"samples", required_argument, NULL, OPT_SAMPLES},
    {"bloat", required_argument, NULL, OPT_BLOAT},
    {"interval-ms", required_argument, NULL, OPT_INTERVAL},
    {"flush-ms", required_argument, NULL, OPT_FLUSH},
    {"prefix", required_argument, NULL, OPT_PREFIX},
    {0},
};

static void add_header(struct exporter_config *c, char *text)
{
	char *equals = strchr(text, '=');

	if (!equals || c->headers.n == CONFIG_HEADERS_MAX)
		abort();
	*equals = 0;
	c->headers.items[c->headers.n++] = (struct config_pair){.key = text, .value = equals + 1};
}

static int parse(int argc, char **argv, struct exporter_config *c, struct run *run)
{
	int opt;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		char **text[] = {
		    [OPT_ENDPOINT - OPT_PROTOCOL] = &c->endpoint,
		    [OPT_CA - OPT_PROTOCOL] = &c->tls.ca_file,
		    [OPT_CERT - OPT_PROTOCOL] = &c->tls.cert_file,
		    [OPT_KEY - OPT_PROTOCOL] = &c->tls.key_file,
		    [OPT_SERVER_NAME - OPT_PROTOCOL] = &c->tls.server_name_override,
		    [OPT_COMPRESSION - OPT_PROTOCOL] = &c->compression,
		    [OPT_STORAGE - OPT_PROTOCOL] = &c->queue.storage,
		    [OPT_GENERATION - OPT_PROTOCOL] = &c->proto_generation,
		    [0] = &c->type, /* OPT_PROTOCOL */
		    [OPT_PREFIX - OPT_PROTOCOL] = NULL,
		};
		uint64_t *number[] = {
		    [OPT_TIMEOUT - OPT_PROTOCOL] = &c->timeout_ms,
		    [OPT_INITIAL - OPT_PROTOCOL] = &c->retry.initial_interval_ms,
		    [OPT_MAX_INTERVAL - OPT_PROTOCOL] = &c->retry.max_interval_ms,
		    [OPT_MAX_ELAPSED - OPT_PROTOCOL] = &c->retry.max_elapsed_time_ms,
		    [OPT_MAX_BYTES - OPT_PROTOCOL] = &c->queue.max_bytes,
		    [OPT_STORAGE_MAX - OPT_PROTOCOL] = &c->queue.storage_max_bytes,
		    [OPT_BATCHES - OPT_PROTOCOL] = &run->batches,
		    [OPT_SAMPLES - OPT_PROTOCOL] = &run->samples,
		    [OPT_BLOAT - OPT_PROTOCOL] = &run->bloat,
		    [OPT_INTERVAL - OPT_PROTOCOL] = &run->interval_ms,
		    [OPT_FLUSH - OPT_PROTOCOL] = &run->flush_ms,
		    [OPT_PREFIX - OPT_PROTOCOL] = NULL,
		};
		int i = opt - OPT_PROTOCOL;

		if (opt < OPT_PROTOCOL)
			return -EINVAL;
		if (opt == OPT_INSECURE)
			c->tls.insecure = true;
		else if (opt == OPT_SKIP_VERIFY)
			c->tls.insecure_skip_verify = true;
		else if (opt == OPT_HEADER)
			add_header(c, optarg);
		else if (opt == OPT_QUEUE_SIZE)
			c->queue.queue_size = (uint32_t)strtoul(optarg, NULL, 10);
		else if (opt == OPT_PREFIX)
			run->prefix = optarg;
		else if (text[i])
			*text[i] = optarg;
		else if (number[i])
			*number[i] = strtoull(optarg, NULL, 10);
	}
	return optind == argc ? 0 : -EINVAL;
}

int main(int argc, char **argv)
{
	static struct config_pair headers[CONFIG_HEADERS_MAX];
	struct exporter_config config = {
	    .type = (char *)"grpc",
	    .timeout_ms = 5000,
	    .headers = {.items = headers},
	    .retry = {.enabled = true,
		      .initial_interval_ms = 200,
		      .multiplier = 1.5,
		      .randomization_factor = 0.5,
		      .max_interval_ms = 1000,
		      .max_elapsed_time_ms = 300000},
	    .queue = {.enabled = true,
		      .queue_size = 1000,
		      .max_bytes = 64 << 20,
		      .storage_max_bytes = 1 << 30},
	};
	struct run run = {
	    .batches = 1, .samples = 10, .interval_ms = 100, .flush_ms = 10000, .prefix = "id"};
	const struct exporter_ops *ops;
	struct error err = {0};

	if (parse(argc, argv, &config, &run) < 0) {
		fprintf(stderr, "usage: see options[] in %s\n", __FILE__);
		return 2;
	}
	ops = streq(config.type, "http") ? &otlp_http_exporter_ops : &otlp_grpc_exporter_ops;
	config.id = config.type = (char *)ops->type;
	uv_loop_init(&run.loop);
	if (ops->create(&config, &run.loop, &run.exporter, &err) < 0) {
		fprintf(stderr, "%s\n", err.message);
		uv_run(&run.loop, UV_RUN_DEFAULT);
		uv_loop_close(&run.loop);
		return 2;
	}
	uv_timer_init(&run.loop, &run.tick);
	uv_timer_start(&run.tick, on_tick, 0, run.interval_ms ? run.interval_ms : 1);
	uv_run(&run.loop, UV_RUN_DEFAULT);
	if (!run.finished || uv_loop_close(&run.loop) != 0) {
		fprintf(stderr, "the loop ended early or something was left open\n");
		return 1;
	}
	return 0;
}
