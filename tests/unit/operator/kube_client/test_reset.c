/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection is reset while one of its streams gets many bytes and the others none. libuv stops
 * polling after an error, and curl is still handling earlier bytes: every stream must be told of
 * the end.
 */
#include "harness.h"

enum {
	STREAMS = 3,
	ROUNDS = 90, /* without the fix one of about thirty rounds hung */
	RESET_MS_MAX = 50,
};

struct stream {
	size_t bytes;
	bool done, reset;
	int status, ends;
};

static int on_bytes(void *arg, const char *content_type, const void *bytes, size_t len)
{
	struct stream *s = arg;

	s->bytes += len;
	return 0;
}

static void on_end(void *arg, const struct kube_answer *answer)
{
	struct stream *s = arg;

	s->done = true;
	s->ends++;
	s->status = answer->status;
	s->reset = answer->connection_reset;
}

static void begin(struct world *w, const char *path, bool bulk, struct stream *s)
{
	const struct kube_request request = {.method = "GET",
					     .path = path,
					     .data = on_bytes,
					     .done = on_end,
					     .unlimited = true,
					     .bulk = bulk,
					     .arg = s};

	assert_int_equal(kube_call(w->client, &request, NULL), 0);
}

static void reset_while_one_is_busy(size_t busy, int reset_ms, bool bulk)
{
	/* curl checks a transfer again when its connect timeout expires, connected or not. */
	const struct kube_client_options no_second_look = {.connect_ms = 10 * WAIT_MS};
	struct stream streams[STREAMS] = {0};
	struct world w;
	char path[64];
	size_t i;

	world_init(&w);
	world_connect(&w, &no_second_look);
	for (i = 0; i < STREAMS; i++) {
		if (i == busy)
			continue;
		begin(&w, "/stream?n=1&end=hang", bulk, &streams[i]);
	}
	for (i = 0; i < STREAMS; i++)
		for (int ms = 0; i != busy && streams[i].bytes == 0 && ms < WAIT_MS; ms++)
			world_run_for(&w, 1);
	snprintf(path, sizeof(path), "/stream?n=4000&pad=20000&reset=%d", reset_ms);
	begin(&w, path, bulk, &streams[busy]);
	for (i = 0; i < STREAMS; i++) {
		world_run_until(&w, &streams[i].done);
		assert_int_equal(streams[i].ends, 1);
		assert_int_equal(streams[i].status, 0);
		assert_true(streams[i].reset);
	}
	world_done(&w);
}

static void test_every_stream_of_a_connection_ends_with_it(void **state)
{
	for (int i = 0; i < ROUNDS; i++)
		reset_while_one_is_busy((size_t)i % STREAMS, 1 + i * 7 % RESET_MS_MAX, i % 4 == 3);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_every_stream_of_a_connection_ends_with_it),
	};

	return cmocka_run_group_tests(tests, fake_start, fake_stop);
}
