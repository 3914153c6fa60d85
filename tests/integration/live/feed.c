/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Feeds the live page like a large machine: with tens of thousands of distinct stacks. Each window
 * has all of them, except that every fifth window has NEW new stacks only. The large window is made
 * once, so that the event loop has time for the server.
 *
 *   kiln-live-feed STACKS NEW SECONDS
 *
 * Prints the address, then feeds a window of one second every second for SECONDS, and prints a line
 * when the server drops a client. The server is the agent's; only the samples are made up. Random
 * numbers have a fixed seed.
 */
#include <time.h>
#include <uv.h>

#include "agent/live/live.h"
#include "lib/metrics.h"

enum { FUNCTIONS = 5000, DEPTH_MAX = 24, PERIOD_NS = 10000000, PROCESSES = 8 };

struct feed {
	struct live *live;
	struct batch *all;
	uint32_t stacks, added, windows;
	uint64_t seed, until_ms;
	int64_t dropped;
};

static uint32_t draw(uint64_t *seed, uint32_t n)
{
	*seed = *seed * 6364136223846793005ULL + 1442695040888963407ULL;
	return (uint32_t)(*seed >> 33) % n;
}

/* Adds stack number I, the same stack each time: random frames from a seed of I, then frames
 * that the hexadecimal digits of I choose. */
static uint32_t add_stack(struct batch_builder *b, const uint32_t *locations, uint32_t i)
{
	uint32_t stack[DEPTH_MAX], len = 0;
	uint64_t seed = i * 977ULL + 13;

	for (uint32_t depth = 2 + draw(&seed, 7); len < depth; len++)
		stack[len] = locations[draw(&seed, FUNCTIONS)];
	for (uint32_t half = i / 16; half && len < DEPTH_MAX; half /= 16)
		stack[len++] = locations[half % FUNCTIONS];
	return batch_add_stack(b, stack, len);
}

static void add_locations(struct batch_builder *b, uint32_t *locations)
{
	static const enum frame_type types[] = {FRAME_NATIVE, FRAME_GO, FRAME_CPYTHON, FRAME_V8JS};
	char name[64];

	for (uint32_t i = 0; i < FUNCTIONS; i++) {
		struct batch_line line = {0};

		snprintf(name, sizeof(name), "module_%u.function_%u", i % 40, i);
		line.function = batch_add_function(b, name, name, "", 0);
		locations[i] = batch_add_location(b, BATCH_NO_MAPPING, i + 1,
						  types[i % ARRAY_SIZE(types)], &line, 1);
	}
}

static struct batch *make_window(struct feed *f, uint32_t first, uint32_t n)
{
	static uint32_t locations[FUNCTIONS];
	struct batch_builder *b = NULL;
	struct batch *batch = NULL;
	char name[32];

	if (batch_builder_new(0, &b) < 0)
		return NULL;
	add_locations(b, locations);
	for (uint32_t i = first; i < first + n; i++) {
		uint32_t process = i % PROCESSES;
		struct batch_sample s = {.value = 1 + draw(&f->seed, 9), .tid = 100 + process};
		struct attr attr = {.key = "process.executable.name", .str = name};

		snprintf(name, sizeof(name), "service-%u", process);
		s.stack = add_stack(b, locations, i);
		s.process = batch_add_process(b, 100 + process, name, "");
		s.thread_name = batch_string(b, name);
		batch_add_sample(b, batch_add_resource(b, &attr, 1, ""), PROFILE_CPU, PERIOD_NS,
				 &s);
	}
	return batch_builder_finish(b, 1000000000, &batch) < 0 ? NULL : batch;
}

static void feed_window(struct feed *f)
{
	_cleanup_(batch_unrefp) struct batch *fresh = NULL;
	struct batch *b = f->all;

	if (f->added && ++f->windows % 5 == 0) {
		fresh = make_window(f, f->stacks + f->windows / 5 * f->added, f->added);
		b = fresh;
	}
	if (!b)
		return;
	b->start_unix_ns = (uint64_t)time(NULL) * 1000000000ULL;
	live_consume(f->live, b);
}

static void on_second(uv_timer_t *timer)
{
	struct feed *f = timer->data;

	if (uv_now(timer->loop) > f->until_ms) {
		uv_stop(timer->loop);
		return;
	}
	feed_window(f);
	if (metric_get(M_LIVE_CLIENTS_STALLED) != f->dropped) {
		f->dropped = metric_get(M_LIVE_CLIENTS_STALLED);
		printf("dropped %lld\n", (long long)f->dropped);
		fflush(stdout);
	}
	/* A second for the clients, however long the window took. */
	uv_update_time(timer->loop);
	uv_timer_start(timer, on_second, 1000, 0);
}

int main(int argc, char **argv)
{
	char host[] = "127.0.0.1";
	const struct http_config config = {.enabled = true, .host = host};
	struct feed f = {.seed = 7};
	struct error err = {0};
	uv_timer_t timer;
	uv_loop_t loop;

	if (argc != 4) {
		fprintf(stderr, "usage: %s STACKS NEW SECONDS\n", argv[0]);
		return 2;
	}
	f.stacks = (uint32_t)strtoul(argv[1], NULL, 10);
	f.added = (uint32_t)strtoul(argv[2], NULL, 10);
	f.all = make_window(&f, 0, f.stacks);
	if (!f.all || f.all->n_samples != f.stacks) {
		fprintf(stderr, "no %u distinct stacks\n", f.stacks);
		return 1;
	}
	uv_loop_init(&loop);
	if (live_new(&loop, &config, 1000, &f.live, &err) < 0) {
		fprintf(stderr, "%s\n", err.message);
		return 1;
	}
	f.until_ms = uv_now(&loop) + strtoul(argv[3], NULL, 10) * 1000;
	printf("http://%s\n", live_address(f.live));
	fflush(stdout);
	uv_timer_init(&loop, &timer);
	timer.data = &f;
	uv_timer_start(&timer, on_second, 0, 0);
	uv_run(&loop, UV_RUN_DEFAULT);
	live_free(f.live);
	batch_unref(f.all);
	uv_close((uv_handle_t *)&timer, NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	return 0;
}
