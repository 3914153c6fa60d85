/* SPDX-License-Identifier: Apache-2.0 */
/* The server with a peer that speaks HTTP/2 byte by byte, as no library does. */
#include "lib/grpc_server.h"

#include <poll.h>
#include <sys/socket.h>

#include "tests/support/h2_bytes.h"
#include "tests/support/test.h"

#define METHOD "/x.Y/Z"

enum { DEADLINE_MS = 20000, MESSAGE_MAX = 100000 };

static const char *const methods[] = {"/x.Y/A", METHOD, NULL};

struct scene {
	uv_loop_t loop;
	uv_timer_t alarm;
	struct stream_server *server;
	struct server_stream *served;
	int fd; /* the peer's end */
	bool reads, timed_out, over;
	unsigned int opened, received, sent, closed, ended;
	size_t bytes, method;
	char authorization[64];
	/* What the server said. */
	uint8_t *in;
	size_t n_in;
};

static void *on_opened(void *arg, struct server_stream *stream,
		       const struct stream_request *request)
{
	struct scene *s = arg;

	s->opened++;
	s->served = stream;
	s->method = request->method;
	snprintf(s->authorization, sizeof(s->authorization), "%s", request->authorization);
	if (s->reads)
		server_stream_read(stream);
	return s;
}

static void on_received(void *arg, const uint8_t *data, size_t len)
{
	struct scene *s = arg;

	s->ended += !data;
	s->received += data != NULL;
	s->bytes += len;
	if (data && s->reads)
		server_stream_read(s->served);
}

static void on_sent(void *arg)
{
	((struct scene *)arg)->sent++;
}

static void on_closed(void *arg)
{
	((struct scene *)arg)->closed++;
}

static void on_alarm(uv_timer_t *timer)
{
	((struct scene *)timer->data)->timed_out = true;
}

/* ---- the peer -------------------------------------------------------------------------------- */

static void hear(struct scene *s)
{
	uint8_t bytes[65536];
	ssize_t n;

	while ((n = recv(s->fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0) {
		s->in = realloc(s->in, s->n_in + (size_t)n);
		memcpy(s->in + s->n_in, bytes, (size_t)n);
		s->n_in += (size_t)n;
	}
	s->over |= n == 0 || (n < 0 && errno == ECONNRESET);
}

#define UNTIL(s, condition)                                                                        \
	do {                                                                                       \
		uv_update_time(&(s)->loop);                                                        \
		uv_timer_start(&(s)->alarm, on_alarm, DEADLINE_MS, 0);                             \
		while (hear(s), !(condition) && !(s)->timed_out) {                                 \
			uv_run(&(s)->loop, UV_RUN_NOWAIT);                                         \
			usleep(200);                                                               \
		}                                                                                  \
		uv_timer_stop(&(s)->alarm);                                                        \
		assert_true(condition);                                                            \
	} while (0)

/* How many frames of TYPE with all of FLAGS the server has sent; the last one's payload. */
static unsigned int said(const struct scene *s, int type, int flags, const uint8_t **ret_payload)
{
	const uint8_t *last = NULL;
	unsigned int found = h2_count(s->in, s->n_in, type, flags, &last);

	if (ret_payload && last)
		*ret_payload = last + H2_FRAME;
	return found;
}

static void say(struct scene *s, const void *bytes, size_t len)
{
	const uint8_t *at = bytes;

	while (len && !s->over) {
		ssize_t n = send(s->fd, at, len, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n > 0) {
			at += n;
			len -= (size_t)n;
			continue;
		}
		if (n < 0 && errno != EAGAIN)
			s->over = true;
		uv_run(&s->loop, UV_RUN_NOWAIT);
	}
}

static void frame(struct scene *s, int type, int flags, uint32_t id, const void *payload,
		  size_t len)
{
	uint8_t header[H2_FRAME];

	h2_frame(header, type, flags, id, len);
	say(s, header, sizeof(header));
	say(s, payload, len);
}

static size_t request(uint8_t *out, const char *path)
{
	size_t n = h2_field(out, ":method", "POST");

	n += h2_field(out + n, ":scheme", "http");
	n += h2_field(out + n, ":path", path);
	n += h2_field(out + n, ":authority", "x");
	n += h2_field(out + n, "te", "trailers");
	n += h2_field(out + n, "content-type", "application/grpc");
	return n;
}

static void call(struct scene *s, uint32_t id)
{
	uint8_t block[512];
	size_t n = request(block, METHOD);

	n += h2_field(block + n, "authorization", "Bearer x");
	frame(s, H2_HEADERS, H2_END_HEADERS, id, block, n);
}

static void greet(struct scene *s)
{
	say(s, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
	frame(s, H2_SETTINGS, 0, 0, NULL, 0);
}

static void begin_with(struct scene *s, const struct stream_server_options *o)
{
	struct stream_server_events events = {on_opened, on_received, on_sent, on_closed, s};
	struct error err = {0};
	int pair[2], size = 4096;

	uv_loop_init(&s->loop);
	uv_timer_init(&s->loop, &s->alarm);
	s->alarm.data = s;
	if (stream_server_new(o, &events, &s->loop, &s->server, &err) < 0)
		fail_msg("%s", err.message);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair),
			 0);
	setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	s->fd = pair[1];
	stream_server_add(s->server, pair[0]);
}

static void begin(struct scene *s)
{
	begin_with(s, &(struct stream_server_options){.methods = methods,
						      .max_streams = 10,
						      .max_message = MESSAGE_MAX,
						      .idle_ms = 60000,
						      .keepalive_ms = 30000,
						      .ping_min_ms = 5000});
	greet(s);
}

static void end(struct scene *s)
{
	if (s->server)
		stream_server_free(s->server);
	uv_close((uv_handle_t *)&s->alarm, NULL);
	uv_run(&s->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&s->loop), 0);
	close(s->fd);
	free(s->in);
}

/* ---- messages -------------------------------------------------------------------------------- */

static void test_the_method_and_the_token_are_told(void **state)
{
	struct scene s = {0};

	begin(&s);
	call(&s, 1);
	UNTIL(&s, s.opened == 1);
	assert_int_equal(s.method, 1);
	assert_string_equal(s.authorization, "Bearer x");
	end(&s);
}

static void test_a_token_that_is_there_twice_is_none(void **state)
{
	uint8_t block[512];
	struct scene s = {0};
	size_t n = request(block, METHOD);

	begin(&s);
	n += h2_field(block + n, "authorization", "Bearer x");
	n += h2_field(block + n, "authorization", "Bearer y");
	frame(&s, H2_HEADERS, H2_END_HEADERS, 1, block, n);
	UNTIL(&s, s.opened == 1);
	assert_string_equal(s.authorization, "");
	end(&s);
}

/* Thousands in one window: each is told, none from inside the telling of another. */
static void test_many_messages_come_at_once(void **state)
{
	uint8_t bytes[16000] = {0}; /* 3,200 empty messages */
	struct scene s = {0};

	begin(&s);
	call(&s, 1);
	UNTIL(&s, s.opened == 1);
	for (unsigned int i = 0; i < 4; i++)
		frame(&s, H2_DATA, i == 3 ? H2_END_STREAM : 0, 1, bytes, sizeof(bytes));
	s.reads = true;
	server_stream_read(s.served);
	UNTIL(&s, s.received == 12800);
	server_stream_read(s.served);
	UNTIL(&s, s.ended == 1);
	end(&s);
}

/*
 * Without a read request the peer gets no more window than it had; a requested message may be
 * larger.
 */
static void test_a_message_that_is_not_asked_for_holds_the_peer_back(void **state)
{
	uint8_t bytes[15000] = {0, 0, 1, 0x86, 0xa0 /* 100,000 */};
	struct scene s = {0};
	unsigned int updates;

	begin(&s);
	call(&s, 1);
	for (unsigned int i = 0; i < 4; i++)
		frame(&s, H2_DATA, 0, 1, bytes, sizeof(bytes));
	UNTIL(&s, s.opened == 1);
	for (unsigned int i = 0; i < 20; i++)
		uv_run(&s.loop, UV_RUN_NOWAIT);
	hear(&s);
	updates = said(&s, H2_WINDOW_UPDATE, 0, NULL); /* the connection's */
	assert_int_equal(s.received, 0);
	server_stream_read(s.served);
	UNTIL(&s, said(&s, H2_WINDOW_UPDATE, 0, NULL) > updates);
	memset(bytes, 0, sizeof(bytes));
	for (size_t left = MESSAGE_MAX + 5 - 60000; left;) {
		size_t n = MIN(left, sizeof(bytes));

		frame(&s, H2_DATA, 0, 1, bytes, n);
		left -= n;
	}
	UNTIL(&s, s.received == 1);
	assert_int_equal(s.bytes, MESSAGE_MAX);
	end(&s);
}

/* Each frame ends within a message: messages that were received must not fill the buffer. */
static void test_messages_without_an_end_between_frames(void **state)
{
	enum { MESSAGES = 1000, LEN = 1000 };
	uint8_t message[5 + LEN] = {0, 0, 0, LEN >> 8, LEN & 255};
	struct scene s = {.reads = true};

	begin(&s);
	call(&s, 1);
	UNTIL(&s, s.opened == 1);
	frame(&s, H2_DATA, 0, 1, message, 7);
	for (unsigned int i = 1; i < MESSAGES; i++) {
		uint8_t turned[sizeof(message)];

		memcpy(turned, message + 7, sizeof(message) - 7);
		memcpy(turned + sizeof(message) - 7, message, 7);
		frame(&s, H2_DATA, 0, 1, turned, sizeof(turned));
		UNTIL(&s, s.received == i || s.closed);
	}
	assert_int_equal(s.closed, 0);
	end(&s);
}

static void refused_message(const uint8_t *prefix)
{
	struct scene s = {.reads = true};

	begin(&s);
	call(&s, 1);
	frame(&s, H2_DATA, 0, 1, prefix, 5);
	UNTIL(&s, s.closed == 1 && said(&s, H2_RST_STREAM, 0, NULL) == 1);
	assert_int_equal(s.received, 0);
	end(&s);
}

static void test_a_message_that_is_too_large_ends_the_stream(void **state)
{
	refused_message((const uint8_t[]){0, 0, 1, 0x86, 0xa1});
	refused_message((const uint8_t[]){0, 0xff, 0xff, 0xff, 0xff});
}

static void test_a_compressed_message_ends_the_stream(void **state)
{
	refused_message((const uint8_t[]){1, 0, 0, 0, 1});
}

static void test_an_end_within_a_message_is_an_end(void **state)
{
	struct scene s = {.reads = true};

	begin(&s);
	call(&s, 1);
	frame(&s, H2_DATA, H2_END_STREAM, 1, "\0\0\0\0\7abc", 8);
	UNTIL(&s, s.ended == 1);
	assert_int_equal(s.received, 0);
	end(&s);
}

/* ---- ends ------------------------------------------------------------------------------------ */

static void test_a_peer_that_takes_nothing_is_cut_off(void **state)
{
	struct stream_server_counts counts;
	uint8_t *large = calloc(1, 4 << 20);
	struct scene s = {0};

	begin(&s);
	call(&s, 1);
	UNTIL(&s, s.opened == 1);
	frame(&s, H2_WINDOW_UPDATE, 0, 0, "\0\x7f\0\0", 4);
	frame(&s, H2_WINDOW_UPDATE, 0, 1, "\0\x7f\0\0", 4);
	assert_int_equal(server_stream_send(s.served, large, 4 << 20), 0);
	server_stream_finish(s.served, RPC_OK, "");
	uv_timer_start(&s.alarm, on_alarm, DEADLINE_MS, 0);
	while (!s.closed && !s.timed_out)
		uv_run(&s.loop, UV_RUN_ONCE); /* and never reads */
	assert_int_equal(s.closed, 1);
	assert_int_equal(s.sent, 0);
	stream_server_read(s.server, &counts);
	assert_int_equal(counts.cut, 1);
	UNTIL(&s, s.over);
	free(large);
	end(&s);
}

/* The peer's window is 0: HTTP/2 holds the message back, and the trailers behind it. */
static void test_a_peer_without_a_window_is_cut_off(void **state)
{
	uint8_t large[100000] = {0};
	struct scene s = {0};

	begin(&s);
	call(&s, 1);
	UNTIL(&s, s.opened == 1);
	assert_int_equal(server_stream_send(s.served, large, sizeof(large)), 0);
	server_stream_finish(s.served, RPC_OK, "");
	UNTIL(&s, s.closed == 1 && said(&s, H2_RST_STREAM, 0, NULL) == 1);
	assert_int_equal(said(&s, H2_HEADERS, H2_END_STREAM, NULL), 0);
	end(&s);
}

/* Two full frames of the message go out at a time: the trailers, ready too, come after them. */
static void test_the_end_behind_two_full_frames(void **state)
{
	enum { WINDOW = 65535, FRAME = 16384 };
	static uint8_t large[WINDOW + 2 * FRAME - 5];
	uint8_t more[2 * (H2_FRAME + 4)] = {0};
	struct scene s = {0};

	begin(&s);
	call(&s, 1);
	UNTIL(&s, s.opened == 1);
	assert_int_equal(server_stream_send(s.served, large, sizeof(large)), 0);
	UNTIL(&s, s.n_in >= WINDOW);
	server_stream_finish(s.served, RPC_OK, "");
	/* For the connection and the stream; with a window of 0 the trailers would have to wait. */
	for (size_t i = 0; i < 2; i++) {
		uint8_t *at = more + i * (H2_FRAME + 4);

		h2_frame(at, H2_WINDOW_UPDATE, 0, (uint32_t)i, 4);
		at[H2_FRAME + 2] = 3 * FRAME >> 8;
	}
	say(&s, more, sizeof(more));
	UNTIL(&s, s.closed == 1 && said(&s, H2_HEADERS, H2_END_STREAM, NULL) == 1);
	assert_false(s.over);
	assert_in_range(s.n_in, WINDOW + 2 * FRAME, WINDOW + 2 * FRAME + 1000);
	end(&s);
}

static void test_a_message_is_sent_once_the_socket_has_it(void **state)
{
	uint8_t large[60000] = {0};
	struct scene s = {0};

	begin(&s);
	call(&s, 1);
	UNTIL(&s, s.opened == 1);
	assert_int_equal(server_stream_send(s.served, large, sizeof(large)), 0);
	for (unsigned int i = 0; i < 50; i++)
		uv_run(&s.loop, UV_RUN_NOWAIT); /* without reading */
	assert_int_equal(s.sent, 0);
	UNTIL(&s, s.sent == 1);
	end(&s);
}

/* ---- abuse ----------------------------------------------------------------------------------- */

static void test_what_is_no_grpc_is_no_method(void **state)
{
	struct stream_server_counts counts;
	struct scene s = {0};
	uint8_t block[512];
	size_t n;

	begin(&s);
	n = request(block, "/other");
	frame(&s, H2_HEADERS, H2_END_HEADERS, 1, block, n);
	n = h2_field(block, ":method", "GET");
	n += h2_field(block + n, ":scheme", "http");
	n += h2_field(block + n, ":path", METHOD);
	n += h2_field(block + n, ":authority", "x");
	frame(&s, H2_HEADERS, H2_END_HEADERS | H2_END_STREAM, 3, block, n);
	UNTIL(&s, said(&s, H2_HEADERS, H2_END_STREAM, NULL) == 2);
	stream_server_read(s.server, &counts);
	assert_int_equal(counts.unknown_method, 2);
	assert_int_equal(s.opened, 0);
	end(&s);
}

/* One field in the dynamic table, and thousands of references of a byte each to it. */
static void test_a_header_bomb_ends_the_stream(void **state)
{
	uint8_t block[16000];
	struct scene s = {0};
	size_t n;

	begin(&s);
	n = request(block, METHOD);
	block[n++] = 0x40; /* with incremental indexing */
	block[n++] = 1;
	block[n++] = 'a';
	block[n++] = 100;
	memset(block + n, 'v', 100);
	n += 100;
	memset(block + n, 0x80 | 62, sizeof(block) - n);
	frame(&s, H2_HEADERS, H2_END_HEADERS, 1, block, sizeof(block));
	UNTIL(&s, said(&s, H2_RST_STREAM, 0, NULL) == 1 || said(&s, H2_GOAWAY, 0, NULL) == 1);
	assert_int_equal(s.opened, 0);
	end(&s);
}

static void test_a_header_without_end_ends_the_connection(void **state)
{
	uint8_t block[16000] = {0};
	struct scene s = {0};

	begin(&s);
	frame(&s, H2_HEADERS, 0, 1, block, request(block, METHOD));
	for (size_t i = 0; i < sizeof(block); i += 4)
		memcpy(block + i, "\0\1b\0", 4);
	for (unsigned int i = 0; i < 1000 && !s.over; i++)
		frame(&s, H2_CONTINUATION, 0, 1, block, sizeof(block));
	UNTIL(&s, s.over);
	assert_int_equal(s.opened, 0);
	end(&s);
}

static void test_more_streams_than_allowed_are_refused(void **state)
{
	struct scene s = {0};

	begin(&s);
	for (uint32_t id = 1; id <= 9; id += 2)
		call(&s, id);
	UNTIL(&s, s.opened == 4 && said(&s, H2_RST_STREAM, 0, NULL) == 1);
	end(&s);
}

static void test_streams_that_are_reset_at_once_end_the_connection(void **state)
{
	struct scene s = {0};

	begin(&s);
	for (uint32_t id = 1; id < 4000 && !s.over; id += 2) {
		call(&s, id);
		frame(&s, H2_RST_STREAM, 0, id, "\0\0\0\x8", 4);
	}
	UNTIL(&s, s.over);
	assert_true(said(&s, H2_GOAWAY, 0, NULL) == 1 || s.n_in == 0);
	assert_int_equal(s.opened, s.closed);
	assert_true(s.opened < 300);
	end(&s);
}

static void test_too_many_pings_end_the_connection(void **state)
{
	struct scene s = {0};

	begin(&s);
	for (unsigned int i = 0; i < 10 && !s.over; i++)
		frame(&s, H2_PING, 0, 0, "12345678", 8);
	UNTIL(&s, s.over);
	assert_int_equal(said(&s, H2_GOAWAY, 0, NULL), 1);
	end(&s);
}

static void test_what_is_no_http2_ends_the_connection(void **state)
{
	struct stream_server_options o = {.methods = methods, .max_streams = 1, .idle_ms = 60000};
	struct scene s = {0};

	begin_with(&s, &o);
	say(&s, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27);
	UNTIL(&s, s.over);
	end(&s);
}

/* ---- time ------------------------------------------------------------------------------------ */

static void test_a_connection_without_a_stream_is_closed(void **state)
{
	struct stream_server_options o = {
	    .methods = methods, .max_streams = 1, .idle_ms = 500, .keepalive_ms = 60000};
	struct scene s = {0};

	begin_with(&s, &o);
	greet(&s);
	UNTIL(&s, s.over);
	assert_int_equal(said(&s, H2_GOAWAY, 0, NULL), 1);
	end(&s);
}

static void test_a_silent_peer_is_asked_whether_it_is_there(void **state)
{
	struct stream_server_options o = {
	    .methods = methods, .max_streams = 1, .idle_ms = 60000, .keepalive_ms = 200};
	const uint8_t *payload;
	struct scene s = {0};
	uint8_t copy[8];

	begin_with(&s, &o);
	greet(&s);
	call(&s, 1);
	UNTIL(&s, said(&s, H2_PING, 0, &payload) == 1);
	memcpy(copy, payload, 8);
	frame(&s, H2_PING, H2_ACK, 0, copy, 8);
	UNTIL(&s, said(&s, H2_PING, 0, NULL) == 2); /* and asked again */
	assert_int_equal(s.closed, 0);
	end(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_the_method_and_the_token_are_told),
	    cmocka_unit_test(test_a_token_that_is_there_twice_is_none),
	    cmocka_unit_test(test_many_messages_come_at_once),
	    cmocka_unit_test(test_a_message_that_is_not_asked_for_holds_the_peer_back),
	    cmocka_unit_test(test_messages_without_an_end_between_frames),
	    cmocka_unit_test(test_a_message_that_is_too_large_ends_the_stream),
	    cmocka_unit_test(test_a_compressed_message_ends_the_stream),
	    cmocka_unit_test(test_an_end_within_a_message_is_an_end),
	    cmocka_unit_test(test_a_peer_that_takes_nothing_is_cut_off),
	    cmocka_unit_test(test_a_peer_without_a_window_is_cut_off),
	    cmocka_unit_test(test_the_end_behind_two_full_frames),
	    cmocka_unit_test(test_a_message_is_sent_once_the_socket_has_it),
	    cmocka_unit_test(test_what_is_no_grpc_is_no_method),
	    cmocka_unit_test(test_a_header_bomb_ends_the_stream),
	    cmocka_unit_test(test_a_header_without_end_ends_the_connection),
	    cmocka_unit_test(test_more_streams_than_allowed_are_refused),
	    cmocka_unit_test(test_streams_that_are_reset_at_once_end_the_connection),
	    cmocka_unit_test(test_too_many_pings_end_the_connection),
	    cmocka_unit_test(test_what_is_no_http2_ends_the_connection),
	    cmocka_unit_test(test_a_connection_without_a_stream_is_closed),
	    cmocka_unit_test(test_a_silent_peer_is_asked_whether_it_is_there),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
