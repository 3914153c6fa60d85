/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which connection a call uses, and what happens to calls when their connection ends, byte by byte.
 * The test can put the client's clock forward, so that its timeouts expire at once.
 */
#include "lib/grpc_client.h"

#include <nghttp2/nghttp2.h>

#include "lib/grpc_stream.h"
#include "tests/support/grpc_scene.h"

static uint64_t ahead_ms;

uint64_t __wrap_uv_now(const uv_loop_t *loop);
uint64_t __real_uv_now(const uv_loop_t *loop);

uint64_t __wrap_uv_now(const uv_loop_t *loop)
{
	return __real_uv_now(loop) + ahead_ms;
}

static void say_number(struct scene *s, size_t i, int type, uint32_t id, uint32_t n)
{
	const uint8_t bytes[4] = {(uint8_t)(n >> 24), (uint8_t)(n >> 16), (uint8_t)(n >> 8),
				  (uint8_t)n};

	h2_peer_frame(&s->p, i, type, 0, id, bytes, sizeof(bytes));
}

static void say_goaway(struct scene *s, size_t i, uint8_t last_id, uint8_t code, const char *text)
{
	uint8_t bytes[64] = {0, 0, 0, last_id, 0, 0, 0, code};

	memcpy(bytes + 8, text, strlen(text));
	h2_peer_frame(&s->p, i, H2_GOAWAY, 0, 0, bytes, 8 + strlen(text));
}

static void say_max_calls(struct scene *s, size_t i, uint8_t n)
{
	h2_peer_frame(&s->p, i, H2_SETTINGS, 0, 0, (uint8_t[]){0, 3, 0, 0, 0, n}, 6);
}

/* Waits until the client has read everything that connection I was sent. */
static void wait_until_read(struct scene *s, size_t i)
{
	unsigned int before = h2_peer_heard(&s->p, i, H2_PING, H2_ACK, NULL);

	h2_peer_frame(&s->p, i, H2_PING, 0, 0, "12345678", 8);
	UNTIL(&s->p, h2_peer_heard(&s->p, i, H2_PING, H2_ACK, NULL) > before);
}

static unsigned int requests(const struct scene *s, size_t i)
{
	return h2_peer_heard(&s->p, i, H2_DATA, H2_END_STREAM, NULL);
}

/* Makes a call that must open connection I and is answered there. */
static void call_over(struct scene *s, size_t i)
{
	unsigned int done = s->done;

	scene_call(s, "x", 1, 60000);
	UNTIL(&s->p, s->p.n == i + 1);
	h2_peer_greet(&s->p, i);
	UNTIL(&s->p, requests(s, i) == 1);
	scene_answer(s, i, 1);
	UNTIL(&s->p, s->done == done + 1);
	assert_int_equal(s->status, RPC_OK);
}

static void assert_failed(const struct scene *s, int status, bool connected, const char *words)
{
	if (s->status != status || s->connected != connected || !strstr(s->words, words))
		fail_msg("%d, connected %d: %s", s->status, s->connected, s->words);
}

/* ---- which connection --------------------------------------------------------------------------
 */

static void test_calls_share_a_connection(void **state)
{
	struct scene s;

	scene_begin_call(&s);
	for (unsigned int i = 0; i < 3; i++)
		scene_call(&s, "x", 1, 60000);
	UNTIL(&s.p, requests(&s, 0) == 4);
	for (unsigned int i = 4; i--;) {
		scene_answer(&s, 0, 1 + 2 * i);
		UNTIL(&s.p, s.done == 4 - i);
		assert_int_equal(s.status, RPC_OK);
	}
	assert_int_equal(s.p.n, 1);
	scene_end(&s);
}

static void test_a_connection_that_was_closed_while_idle_costs_no_call(void **state)
{
	struct scene s;

	scene_begin(&s, &(struct grpc_client_options){0});
	call_over(&s, 0);
	h2_peer_finish(&s.p, 0);
	call_over(&s, 1);
	/* By the loop, too. */
	h2_peer_finish(&s.p, 1);
	for (unsigned int i = 0; i < 10; i++)
		uv_run(&s.p.loop, UV_RUN_NOWAIT);
	call_over(&s, 2);
	scene_end(&s);
}

static void test_a_connection_that_ends_ends_its_calls(void **state)
{
	struct scene s;

	scene_begin_call(&s);
	h2_peer_close(&s.p, 0);
	UNTIL(&s.p, s.done == 1);
	assert_failed(&s, RPC_UNAVAILABLE, true, "127.0.0.1:");
	call_over(&s, 1);
	scene_end(&s);
}

static void test_after_goaway_calls_go_on_and_new_ones_go_elsewhere(void **state)
{
	struct scene s;

	scene_begin_call(&s);
	say_goaway(&s, 0, 1, NGHTTP2_NO_ERROR, "");
	wait_until_read(&s, 0);
	call_over(&s, 1);
	assert_int_equal(s.done, 1);
	assert_false(s.p.c[0].over);
	scene_answer(&s, 0, 1);
	UNTIL(&s.p, s.done == 2 && s.p.c[0].over);
	assert_int_equal(s.status, RPC_OK);
	scene_end(&s);
}

static void test_a_call_that_goaway_leaves_out_has_not_reached_the_server(void **state)
{
	struct scene s;

	scene_begin_call(&s);
	say_goaway(&s, 0, 0, NGHTTP2_NO_ERROR, "");
	UNTIL(&s.p, s.done == 1);
	assert_failed(&s, RPC_UNAVAILABLE, false, "");
	call_over(&s, 1);
	scene_end(&s);
}

static void test_the_words_of_goaway_are_told(void **state)
{
	struct scene s;

	scene_begin_call(&s);
	say_goaway(&s, 0, 1, NGHTTP2_ENHANCE_YOUR_CALM, "slow\ndown");
	h2_peer_close(&s.p, 0);
	UNTIL(&s.p, s.done == 1);
	assert_failed(&s, RPC_UNAVAILABLE, true, "ENHANCE_YOUR_CALM, slow");
	assert_null(strchr(s.words, '\n'));
	scene_end(&s);
}

static void test_codes_of_a_reset(void **state)
{
	static const struct {
		uint32_t code;
		int status;
		bool connected;
	} rows[] = {{NGHTTP2_REFUSED_STREAM, RPC_UNAVAILABLE, false},
		    {NGHTTP2_CANCEL, RPC_CANCELLED, true},
		    {NGHTTP2_ENHANCE_YOUR_CALM, RPC_RESOURCE_EXHAUSTED, true},
		    {NGHTTP2_INADEQUATE_SECURITY, RPC_PERMISSION_DENIED, true},
		    {NGHTTP2_INTERNAL_ERROR, RPC_INTERNAL, true},
		    {NGHTTP2_NO_ERROR, RPC_INTERNAL, true},
		    {77, RPC_INTERNAL, true}};
	struct scene s;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		scene_begin_call(&s);
		say_number(&s, 0, H2_RST_STREAM, 1, rows[i].code);
		UNTIL(&s.p, s.done == 1);
		assert_failed(&s, rows[i].status, rows[i].connected, "the peer ended the stream");
		scene_end(&s);
	}
}

static void test_calls_beyond_the_peers_limit_wait(void **state)
{
	struct scene s;

	scene_begin(&s, &(struct grpc_client_options){0});
	scene_call(&s, "a", 1, 60000);
	UNTIL(&s.p, s.p.n == 1);
	say_max_calls(&s, 0, 1);
	UNTIL(&s.p, requests(&s, 0) == 1);
	/* Three calls wait for a free stream: one is cancelled, one times out. */
	scene_call(&s, "b", 1, 60000);
	assert_false(grpc_unary_cancel(s.call));
	UNTIL(&s.p, s.done == 1);
	assert_failed(&s, RPC_CANCELLED, false, "");
	scene_call(&s, "c", 1, 1);
	scene_call(&s, "d", 1, 60000);
	UNTIL(&s.p, s.done == 2);
	assert_failed(&s, RPC_DEADLINE_EXCEEDED, false, "");
	assert_int_equal(h2_peer_heard(&s.p, 0, H2_HEADERS, 0, NULL), 1);
	scene_answer(&s, 0, 1);
	UNTIL(&s.p, s.done == 3 && requests(&s, 0) == 2);
	assert_int_equal(h2_peer_heard(&s.p, 0, H2_RST_STREAM, 0, NULL), 0);
	assert_int_equal(s.p.n, 1);
	scene_end(&s);
}

/* ---- late --------------------------------------------------------------------------------------
 */

static void test_a_deadline_ends_the_call_and_the_server_is_told(void **state)
{
	const uint8_t *frame;
	struct scene s;

	scene_begin_call(&s);
	scene_call(&s, "x", 1, 50);
	UNTIL(&s.p, s.done == 1 && h2_peer_heard(&s.p, 0, H2_RST_STREAM, 0, &frame) == 1);
	assert_failed(&s, RPC_DEADLINE_EXCEEDED, true, "no answer within the timeout");
	assert_int_equal(h2_stream(frame), 3);
	assert_memory_equal(frame + H2_FRAME, "\0\0\0\x8", 4);
	scene_end(&s);
}

/* A call on the connection timed out, so the peer may be gone: the next call opens another one. */
static void test_a_silent_connection_gets_no_more_calls(void **state)
{
	struct scene s;

	scene_begin_call(&s);
	scene_call(&s, "x", 1, 50);
	UNTIL(&s.p, s.done == 1);
	call_over(&s, 1);
	/* The other call stays on the old connection. */
	assert_int_equal(s.done, 2);
	scene_answer(&s, 0, 1);
	UNTIL(&s.p, s.done == 3 && s.p.c[0].over);
	assert_int_equal(s.status, RPC_OK);
	scene_end(&s);
}

static void test_a_peer_that_says_nothing(void **state)
{
	struct scene s;

	scene_begin(&s, &(struct grpc_client_options){0});
	scene_call(&s, "x", 1, 50);
	UNTIL(&s.p, s.done == 1);
	assert_failed(&s, RPC_DEADLINE_EXCEEDED, false, "no connection within the timeout");
	scene_call(&s, "x", 1, 600000);
	for (unsigned int i = 0; i < 10; i++)
		uv_run(&s.p.loop, UV_RUN_NOWAIT);
	ahead_ms += 20000;
	scene_call(&s, "x", 1, 600000);
	UNTIL(&s.p, s.done == 3);
	assert_failed(&s, RPC_UNAVAILABLE, false, "no HTTP/2 within 20 s");
	UNTIL(&s.p, s.p.n == 1 && s.p.c[0].over);
	scene_end(&s);
}

/* ---- pings -------------------------------------------------------------------------------------
 */

static void test_pings_are_answered(void **state)
{
	const uint8_t *frame;
	struct scene s;

	scene_begin_call(&s);
	h2_peer_frame(&s.p, 0, H2_PING, 0, 0, "12345678", 8);
	UNTIL(&s.p, h2_peer_heard(&s.p, 0, H2_PING, H2_ACK, &frame) == 1);
	assert_memory_equal(frame + H2_FRAME, "12345678", 8);
	scene_end(&s);
}

static void test_a_flood_of_pings_whose_answers_are_not_read(void **state)
{
	enum { N = 1000, PING = H2_FRAME + 8 };
	uint8_t *pings = malloc((size_t)N * PING);
	struct scene s;

	for (size_t i = 0; i < N; i++) {
		h2_frame(pings + i * PING, H2_PING, 0, 0, 8);
		memset(pings + i * PING + H2_FRAME, 'p', 8);
	}
	scene_begin_call(&s);
	s.p.deaf = true;
	for (unsigned int i = 0; i < 5000 && !s.done; i++)
		h2_peer_say(&s.p, 0, pings, (size_t)N * PING);
	assert_int_equal(s.done, 1);
	assert_failed(&s, RPC_UNAVAILABLE, true, "");
	scene_end(&s);
	free(pings);
}

struct stream {
	struct h2_peer p;
	struct grpc_stream *stream;
	unsigned int closed;
	int status;
	char words[256];
};

static void on_writable(void *arg)
{
}

static void on_message(const uint8_t *data, size_t len, void *arg)
{
}

static void on_closed(int status, const char *message, void *arg)
{
	struct stream *s = arg;

	s->closed++;
	s->status = status;
	snprintf(s->words, sizeof(s->words), "%s", message);
}

static void begin_stream(struct stream *s, uint64_t keepalive_ms)
{
	const struct grpc_stream_events events = {on_writable, on_message, on_closed, s};
	struct error err = {0};

	*s = (struct stream){0};
	h2_peer_start(&s->p);
	assert_int_equal(grpc_stream_new(&events, &s->p.loop, &s->stream, &err), 0);
	assert_int_equal(
	    grpc_stream_connect(s->stream,
				&(struct grpc_stream_options){.client = {.endpoint = s->p.endpoint,
									 .tls = {.insecure = true}},
							      .method = SCENE_METHOD,
							      .message_max = 1000,
							      .keepalive_ms = keepalive_ms},
				&err),
	    0);
	UNTIL(&s->p, s->p.n == 1);
	h2_peer_greet(&s->p, 0);
	UNTIL(&s->p, h2_peer_heard(&s->p, 0, H2_HEADERS, 0, NULL) == 1);
}

static void end_stream(struct stream *s)
{
	s->stream = grpc_stream_free(s->stream);
	h2_peer_stop(&s->p);
}

static void test_keepalive(void **state)
{
	const uint8_t *frame;
	struct stream s;

	begin_stream(&s, 20);
	for (unsigned int i = 1; i <= 3; i++) {
		UNTIL(&s.p, h2_peer_heard(&s.p, 0, H2_PING, 0, &frame) == i);
		h2_peer_frame(&s.p, 0, H2_PING, H2_ACK, 0, frame + H2_FRAME, 8);
	}
	assert_int_equal(s.closed, 0);
	UNTIL(&s.p, h2_peer_heard(&s.p, 0, H2_PING, 0, NULL) == 4);
	ahead_ms += 20000;
	/* Whatever comes, it is no answer. */
	h2_peer_frame(&s.p, 0, H2_WINDOW_UPDATE, 0, 0, "\0\0\0\1", 4);
	UNTIL(&s.p, s.closed == 1 && s.p.c[0].over);
	assert_int_equal(s.status, RPC_UNAVAILABLE);
	assert_non_null(strstr(s.words, "no answer to a ping"));
	end_stream(&s);
}

static void test_no_pings_without_keepalive_or_a_call(void **state)
{
	struct stream s;
	struct scene other;

	begin_stream(&s, 0);
	ahead_ms += 100000000;
	for (unsigned int i = 0; i < 3; i++) {
		h2_peer_frame(&s.p, 0, H2_PING, 0, 0, "12345678", 8);
		UNTIL(&s.p, h2_peer_heard(&s.p, 0, H2_PING, H2_ACK, NULL) == i + 1);
	}
	assert_int_equal(h2_peer_heard(&s.p, 0, H2_PING, 0, NULL), 3);
	end_stream(&s);
	scene_begin(&other, &(struct grpc_client_options){0});
	call_over(&other, 0);
	ahead_ms += 100000000;
	h2_peer_frame(&other.p, 0, H2_PING, 0, 0, "12345678", 8);
	UNTIL(&other.p, h2_peer_heard(&other.p, 0, H2_PING, H2_ACK, NULL) == 1);
	assert_int_equal(h2_peer_heard(&other.p, 0, H2_PING, 0, NULL), 1);
	scene_end(&other);
}

/* ---- peers that speak something else -----------------------------------------------------------
 */

static void test_other_protocols(void **state)
{
	static const struct {
		const char *bytes, *words;
	} rows[] = {{"HTTP/1.1 400 Bad Request\r\n\r\n", "the port speaks HTTP/1, not gRPC"},
		    {"\x15\x03\x01", "the port speaks TLS"},
		    {"SSH-2.0-OpenSSH_9.2\r\n", "127.0.0.1:"},
		    {"", "it may want TLS"}};
	struct scene s;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		scene_begin(&s, &(struct grpc_client_options){0});
		scene_call(&s, "x", 1, 60000);
		UNTIL(&s.p, s.p.n == 1);
		h2_peer_say(&s.p, 0, rows[i].bytes, strlen(rows[i].bytes));
		h2_peer_close(&s.p, 0);
		UNTIL(&s.p, s.done == 1);
		assert_failed(&s, RPC_UNAVAILABLE, false, rows[i].words);
		/* Each call tries again. */
		call_over(&s, 1);
		scene_end(&s);
	}
}

static void test_frames_that_http2_forbids_end_the_connection(void **state)
{
	static const struct {
		int type, flags;
		uint32_t id;
		const char *payload;
		size_t len;
	} rows[] = {{H2_PUSH_PROMISE, H2_END_HEADERS, 1, "\0\0\0\2\x82", 5},
		    {H2_DATA, 0, 0, "x", 1},
		    {H2_DATA, 0, 5, "x", 1},
		    {H2_HEADERS, H2_END_HEADERS, 2, "\x88", 1},
		    {H2_HEADERS, H2_END_HEADERS, 1, "\xff\xff\xff\xff\xff\xff\xff", 7},
		    {H2_CONTINUATION, H2_END_HEADERS, 1, "\x88", 1},
		    {H2_SETTINGS, 0, 0, "\0\5\0\0\0\1", 6},
		    {H2_SETTINGS, 0, 0, "x", 1},
		    {H2_PING, 0, 0, "x", 1},
		    {H2_WINDOW_UPDATE, 0, 0, "\0\0\0\0", 4},
		    {H2_WINDOW_UPDATE, 0, 0, "\x7f\xff\xff\xff", 4},
		    {H2_GOAWAY, 0, 0, "x", 1}};
	struct scene s;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		scene_begin_call(&s);
		h2_peer_frame(&s.p, 0, H2_SETTINGS, H2_ACK, 0, NULL, 0);
		h2_peer_frame(&s.p, 0, rows[i].type, rows[i].flags, rows[i].id, rows[i].payload,
			      rows[i].len);
		h2_peer_begin_waiting(&s.p);
		while (h2_peer_hear(&s.p), !s.done && !s.p.timed_out)
			uv_run(&s.p.loop, UV_RUN_NOWAIT);
		if (!s.done || s.status != RPC_UNAVAILABLE || !s.connected)
			fail_msg("row %zu: %d %s", i, s.status, s.words);
		assert_int_equal(h2_peer_heard(&s.p, 0, H2_GOAWAY, 0, NULL), 1);
		scene_end(&s);
	}
}

/* ---- the end -----------------------------------------------------------------------------------
 */

static void free_and_count(const struct grpc_answer *answer, void *arg)
{
	struct scene *s = arg;

	s->done++;
	s->client = grpc_client_free(s->client);
}

static void test_freed_from_an_answer(void **state)
{
	struct scene s;

	scene_begin(&s, &(struct grpc_client_options){0});
	for (unsigned int i = 0; i < 5; i++)
		assert_int_equal(grpc_client_call(s.client, SCENE_METHOD, "x", 1, false, 60000,
						  free_and_count, &s, &s.call),
				 0);
	UNTIL(&s.p, s.p.n == 1);
	h2_peer_greet(&s.p, 0);
	UNTIL(&s.p, requests(&s, 0) == 5);
	for (unsigned int i = 0; i < 5; i++)
		scene_answer(&s, 0, 1 + 2 * i);
	UNTIL(&s.p, s.p.c[0].over);
	assert_int_equal(s.done, 1);
	assert_int_equal(h2_peer_heard(&s.p, 0, H2_GOAWAY, 0, NULL), 1);
	scene_end(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_calls_share_a_connection),
	    cmocka_unit_test(test_a_connection_that_was_closed_while_idle_costs_no_call),
	    cmocka_unit_test(test_a_connection_that_ends_ends_its_calls),
	    cmocka_unit_test(test_after_goaway_calls_go_on_and_new_ones_go_elsewhere),
	    cmocka_unit_test(test_a_call_that_goaway_leaves_out_has_not_reached_the_server),
	    cmocka_unit_test(test_the_words_of_goaway_are_told),
	    cmocka_unit_test(test_codes_of_a_reset),
	    cmocka_unit_test(test_calls_beyond_the_peers_limit_wait),
	    cmocka_unit_test(test_a_deadline_ends_the_call_and_the_server_is_told),
	    cmocka_unit_test(test_a_silent_connection_gets_no_more_calls),
	    cmocka_unit_test(test_a_peer_that_says_nothing),
	    cmocka_unit_test(test_pings_are_answered),
	    cmocka_unit_test(test_a_flood_of_pings_whose_answers_are_not_read),
	    cmocka_unit_test(test_keepalive),
	    cmocka_unit_test(test_no_pings_without_keepalive_or_a_call),
	    cmocka_unit_test(test_other_protocols),
	    cmocka_unit_test(test_frames_that_http2_forbids_end_the_connection),
	    cmocka_unit_test(test_freed_from_an_answer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
