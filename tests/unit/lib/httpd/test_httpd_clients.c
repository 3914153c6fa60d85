/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP server: many clients at once, malformed requests, several servers on one loop. */
#include "tests/unit/lib/httpd/fixture.h"

#include <sys/socket.h>

static void two_hundred_clients_at_once_are_all_answered(void **state)
{
	enum { CLIENTS = 200 };
	const char *ask = "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n";
	int fds[CLIENTS], answered = 0;

	for (int i = 0; i < CLIENTS; i++)
		fds[i] = client_connect(f.port);
	for (int i = 0; i < CLIENTS; i++)
		client_send(fds[i], ask, strlen(ask));
	for (int i = 0; i < CLIENTS; i++) {
		struct reply r = {0};

		buf_init(&r.raw, 1 << 16);
		client_read(fds[i], &r.raw);
		reply_parse(&r);
		answered += r.status == 200;
		reply_done(&r);
		close(fds[i]);
	}
	assert_int_equal(answered, CLIENTS);
}

static void connections_are_capped_and_the_slots_come_back(void **state)
{
	enum { CLIENTS = 100 };
	unsigned int n = 0;
	int fds[CLIENTS];

	for (int i = 0; i < CLIENTS; i++)
		fds[i] = client_connect(f.port);
	assert_true(wait_for_connections(64));
	usleep(100000); /* time to accept more than the limit */
	loop_thread_call(f.thread, get_connections, &n);
	assert_in_range(n, 63, 64); /* one may be closed before the next is accepted */
	for (int i = 0; i < CLIENTS; i++)
		close(fds[i]);
	expect_text("/hello", 200, "hello world\n");
	assert_true(wait_for_connections(0));
}

static void a_request_need_not_wait_for_idle_connections(void **state)
{
	enum { IDLE = 64 };
	unsigned int n = 0;
	int fds[IDLE];

	for (int i = 0; i < IDLE; i++)
		fds[i] = client_connect(f.port);
	assert_true(wait_for_connections(IDLE));
	expect_text("/hello", 200, "hello world\n");
	/* One idle connection was closed for the request; the others stay until their timeout. */
	loop_thread_call(f.thread, get_connections, &n);
	assert_in_range(n, IDLE - 2, IDLE);
	for (int i = 0; i < IDLE; i++)
		close(fds[i]);
	assert_true(wait_for_connections(0));
}

static uint32_t next_random(uint32_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 17;
	*x ^= *x << 5;
	return *x;
}

static void damage(struct buf *b, uint32_t *seed)
{
	for (unsigned int i = next_random(seed) % 6; i; i--) {
		size_t at = next_random(seed) % b->len;
		static const char *const pieces[] = {"\r\n", "%",   "\n\n",	"/../",
						     " ",    "?&=", "\r\n\r\n", "Upgrade: h2c\r\n",
						     ":",    "GET "};

		switch (next_random(seed) % 4) {
		case 0:
			b->data[at] = (char)next_random(seed);
			break;
		case 1:
			b->len = at + 1;
			break;
		case 2:
			buf_puts(b, pieces[next_random(seed) % ARRAY_SIZE(pieces)]);
			break;
		default: {
			const char *piece = pieces[next_random(seed) % ARRAY_SIZE(pieces)];

			memcpy(b->data + at, piece, MIN(strlen(piece), b->len - at));
		}
		}
	}
}

static void malformed_requests_never_stop_the_server(void **state)
{
	static const char *const seeds[] = {
	    "GET /hello HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n",
	    "GET /echo?name=%41&n=3;x=y HTTP/1.1\r\nHost: localhost\r\n\r\n",
	    "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nabcde",
	    "GET /hello HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: "
	    "websocket\r\n"
	    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
	    "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
	    "CONNECT a:1 HTTP/1.1\r\n\r\n",
	    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	    "HEAD /later HTTP/1.0\r\n\r\n",
	    "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
	    "OPTIONS * HTTP/1.1\r\n\r\n",
	};
	uint32_t seed = 0x9e3779b9;

	for (int i = 0; i < 3000; i++) {
		_cleanup_close_ int fd = client_connect(f.port);
		struct buf b;

		buf_init(&b, 1 << 16);
		buf_puts(&b, seeds[next_random(&seed) % ARRAY_SIZE(seeds)]);
		if (next_random(&seed) % 4 == 0)
			buf_puts(&b, seeds[next_random(&seed) % ARRAY_SIZE(seeds)]);
		damage(&b, &seed);
		client_send(fd, b.data, b.len / 2);
		if (next_random(&seed) % 2)
			usleep(200);
		client_send(fd, b.data + b.len / 2, b.len - b.len / 2);
		if (next_random(&seed) % 2)
			shutdown(fd, SHUT_WR);
		buf_done(&b);
	}
	expect_text("/hello", 200, "hello world\n");
}

/* ---- without the fixture --------------------------------------------------------------------- */

static void a_taken_port_is_named_with_its_cause(void **state)
{
	struct httpd *second = NULL;
	struct httpd_options options = {.host = "127.0.0.1"};
	struct error err = {0};
	char want[128];
	uv_loop_t loop;
	struct httpd *first = NULL;

	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(httpd_new(&loop, &options, routes, ARRAY_SIZE(routes), &first, &err), 0);
	options.port = httpd_port(first);
	assert_int_equal(httpd_new(&loop, &options, routes, 1, &second, &err), -EADDRINUSE);
	assert_null(second);
	snprintf(want, sizeof(want), "cannot listen on 127.0.0.1:%u: Address already in use",
		 options.port);
	assert_string_equal(err.message, want);
	httpd_free(first);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
}

static void an_address_of_nobody_is_named_with_its_cause(void **state)
{
	struct httpd_options options = {.host = "192.0.2.1", .port = 1777};
	struct httpd *server = NULL;
	struct error err = {0};
	uv_loop_t loop;

	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(httpd_new(&loop, &options, routes, 1, &server, &err), -EADDRNOTAVAIL);
	assert_string_equal(err.message,
			    "cannot listen on 192.0.2.1:1777: Cannot assign requested address");
	options.host = "no such host";
	assert_true(httpd_new(&loop, &options, routes, 1, &server, &err) < 0);
	assert_true(has_prefix(err.message, "cannot listen on no such host:1777: "));
	assert_null(server);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
}

static void servers_come_and_go_on_one_loop(void **state)
{
	struct httpd_options options = {0};
	uv_loop_t loop;

	assert_int_equal(uv_loop_init(&loop), 0);
	for (int i = 0; i < 20; i++) {
		struct httpd *a = NULL, *b = NULL;

		options.host = i % 2 ? "" : "localhost";
		assert_int_equal(httpd_new(&loop, &options, routes, 1, &a, NULL), 0);
		assert_int_equal(httpd_new(&loop, &options, routes, 1, &b, NULL), 0);
		assert_int_not_equal(httpd_port(a), httpd_port(b));
		if (i % 3)
			uv_run(&loop, UV_RUN_NOWAIT);
		httpd_free(a);
		if (i % 5)
			uv_run(&loop, UV_RUN_NOWAIT);
		httpd_free(b);
		uv_run(&loop, UV_RUN_DEFAULT);
	}
	assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    WITH_SERVER(two_hundred_clients_at_once_are_all_answered),
	    WITH_SERVER(connections_are_capped_and_the_slots_come_back),
	    WITH_SERVER(a_request_need_not_wait_for_idle_connections),
	    WITH_SERVER(malformed_requests_never_stop_the_server),
	    cmocka_unit_test(a_taken_port_is_named_with_its_cause),
	    cmocka_unit_test(an_address_of_nobody_is_named_with_its_cause),
	    cmocka_unit_test(servers_come_and_go_on_one_loop),
	    cmocka_unit_test(nothing_was_closed_twice),
	};

	return run_httpd_tests(tests);
}
