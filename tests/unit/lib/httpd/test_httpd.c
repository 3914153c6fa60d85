/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP server over real sockets: routes, refusals, limits, and clients that are slow. */
#include "tests/unit/lib/httpd/fixture.h"

#include <sys/socket.h>

static void answers_a_known_path_with_all_headers(void **state)
{
	struct reply r;
	char value[128];

	client_get(f.port, "/hello", &r);
	assert_int_equal(r.status, 200);
	assert_string_equal(r.body, "hello world\n");
	assert_string_equal(reply_header(&r, "Content-Length", value, sizeof(value)), "12");
	assert_string_equal(reply_header(&r, "Connection", value, sizeof(value)), "close");
	assert_string_equal(reply_header(&r, "X-Content-Type-Options", value, sizeof(value)),
			    "nosniff");
	assert_string_equal(reply_header(&r, "X-Frame-Options", value, sizeof(value)), "DENY");
	assert_string_equal(reply_header(&r, "Cache-Control", value, sizeof(value)), "no-store");
	assert_string_equal(reply_header(&r, "Content-Security-Policy", value, sizeof(value)),
			    "default-src 'none'; frame-ancestors 'none'");
	assert_string_equal(reply_header(&r, "Content-Type", value, sizeof(value)),
			    "text/plain; charset=utf-8");
	reply_done(&r);
}

static void each_server_has_its_own_routes(void **state)
{
	struct reply r;

	client_get(f.second_port, "/hello", &r);
	assert_string_equal(r.body, "hello second\n");
	reply_done(&r);
	client_get(f.second_port, "/echo", &r);
	assert_int_equal(r.status, 404);
	reply_done(&r);
}

static void head_has_the_length_and_no_body(void **state)
{
	struct reply r;
	char value[64];

	client_ask(f.port, "HEAD /hello HTTP/1.1\r\nHost: localhost\r\n\r\n", &r);
	assert_int_equal(r.status, 200);
	assert_int_equal(r.body_len, 0);
	assert_string_equal(reply_header(&r, "Content-Length", value, sizeof(value)), "12");
	reply_done(&r);
}

static void an_unknown_path_is_404(void **state)
{
	expect_text("/nothing", 404, "Not Found\n");
	expect_text("/hello/", 404, "Not Found\n");
	expect_text("/hello/x", 404, "Not Found\n");
}

static void dot_segments_and_escapes_never_leave_the_routes(void **state)
{
	expect_text("/../../../../etc/passwd", 404, "Not Found\n");
	expect_text("/%2e%2e/%2e%2e/etc/passwd", 404, "Not Found\n");
	expect_text("/x/../hello", 200, "hello world\n");
	expect_text("/%68ello", 200, "hello world\n");
}

static void a_wrong_method_is_405_and_names_the_right_ones(void **state)
{
	struct reply r;
	char value[64];

	client_ask(f.port, "POST /hello HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nab",
		   &r);
	assert_int_equal(r.status, 405);
	assert_string_equal(reply_header(&r, "Allow", value, sizeof(value)), "GET, HEAD");
	reply_done(&r);
	client_get(f.port, "/post", &r);
	assert_int_equal(r.status, 405);
	assert_string_equal(reply_header(&r, "Allow", value, sizeof(value)), "POST");
	reply_done(&r);
	expect_status("DELETE /hello HTTP/1.1\r\nHost: localhost\r\n\r\n", 405);
	expect_status("PUT /hello HTTP/1.1\r\nHost: localhost\r\n\r\n", 405);
	expect_status("OPTIONS /hello HTTP/1.1\r\nHost: localhost\r\n\r\n", 405);
	expect_status("PATCH /hello HTTP/1.1\r\nHost: localhost\r\n\r\n", 405);
}

static void query_parameters_are_decoded_and_bounded(void **state)
{
	struct buf b;

	expect_text("/echo", 200, "-|30\n");
	expect_text("/echo?name", 200, "|30\n");
	expect_text("/echo?name=a%26b+c%3d&n=300", 200, "a&b c=|300\n");
	expect_text("/echo?n=1&n=2", 200, "-|1\n");
	expect_text("/echo?n=0", 400, "n: want a number from 1 to 300\n");
	expect_text("/echo?n=301", 400, "n: want a number from 1 to 300\n");
	expect_text("/echo?n=", 400, "n: want a number from 1 to 300\n");
	expect_text("/echo?n=-1", 400, "n: want a number from 1 to 300\n");
	expect_text("/echo?n=1x", 400, "n: want a number from 1 to 300\n");
	expect_text("/echo?n=18446744073709551617", 400, "n: want a number from 1 to 300\n");
	buf_init(&b, 1 << 16);
	buf_puts(&b, "/echo?x=1");
	for (int i = 0; i < HTTPD_PARAMS_MAX; i++)
		buf_puts(&b, "&x=1");
	expect_text(b.data, 414, "URI Too Long\n");
	buf_done(&b);
}

static void a_long_path_is_414(void **state)
{
	char target[HTTPD_PATH_MAX + 64];

	memset(target, 'a', sizeof(target));
	target[0] = '/';
	target[sizeof(target) - 1] = 0;
	expect_text(target, 414, "URI Too Long\n");
	target[HTTPD_PATH_MAX] = 0;
	expect_text(target, 414, "URI Too Long\n");
	target[HTTPD_PATH_MAX - 1] = 0;
	expect_text(target, 404, "Not Found\n");
}

static void a_long_parameter_is_414(void **state)
{
	char target[HTTPD_PARAM_MAX + 64];

	memset(target, 'a', sizeof(target));
	memcpy(target, "/echo?name=", 11);
	target[sizeof(target) - 1] = 0;
	expect_text(target, 414, "URI Too Long\n");
}

static void too_many_header_bytes_end_the_connection(void **state)
{
	struct reply r;
	struct buf b;

	buf_init(&b, 1 << 20);
	buf_puts(&b, "GET /hello HTTP/1.1\r\nHost: localhost\r\n");
	for (int i = 0; i < 1000; i++)
		buf_printf(&b, "X-Header-%d: %032d\r\n", i, i);
	buf_puts(&b, "\r\n");
	client_ask(f.port, b.data, &r);
	assert_int_equal(r.status, 0);
	reply_done(&r);
	buf_done(&b);
	expect_text("/hello", 200, "hello world\n");
}

static void bad_escapes_are_refused(void **state)
{
	struct reply r;

	expect_status("GET /%zz HTTP/1.1\r\nHost: localhost\r\n\r\n", 403);
	expect_status("GET /hello%2 HTTP/1.1\r\nHost: localhost\r\n\r\n", 403);
	client_get(f.port, "/hello%00", &r);
	assert_int_not_equal(r.status, 200);
	reply_done(&r);
	assert_int_equal(atomic_load(&f.n_handled), 0);
}

static void a_body_arrives_whole_up_to_its_cap(void **state)
{
	struct reply r;
	struct buf b;
	char *body = malloc(HTTPD_BODY_MAX);

	for (size_t i = 0; i < HTTPD_BODY_MAX; i++)
		body[i] = (char)('a' + i % 26);
	buf_init(&b, 1 << 20);
	buf_printf(&b, "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n",
		   HTTPD_BODY_MAX);
	buf_append(&b, body, HTTPD_BODY_MAX);
	client_ask(f.port, b.data, &r);
	assert_int_equal(r.status, 200);
	assert_int_equal(r.body_len, HTTPD_BODY_MAX);
	assert_memory_equal(r.body, body, HTTPD_BODY_MAX);
	reply_done(&r);
	buf_done(&b);
	free(body);
	expect_status("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 65537\r\n\r\n",
		      413);
	expect_status("POST /echo HTTP/1.1\r\nHost: localhost\r\n"
		      "Content-Length: 99999999999999999999\r\n\r\n",
		      413);
	expect_status("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", 400);
	expect_status("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1x\r\n\r\n", 400);
	expect_status("POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
		      "2\r\nab\r\n0\r\n\r\n",
		      411);
	expect_status("POST /echo HTTP/1.1\r\nHost: localhost\r\n\r\n", 200);
	expect_status("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", 200);
}

static void unread_input_does_not_reset_the_answer_away(void **state)
{
	enum { EXTRA = 12000 }; /* more than libwebsockets reads at once, one segment on loopback */
	struct buf b;
	struct reply r;

	buf_init(&b, 1 << 20);
	buf_puts(&b, "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n");
	for (int i = 0; i < EXTRA; i++)
		buf_puts(&b, "x");
	client_ask(f.port, b.data, &r);
	assert_int_equal(r.status, 200); /* 0 after a reset */
	reply_done(&r);
	buf_done(&b);
}

static void a_foreign_host_header_is_refused_on_loopback(void **state)
{
	expect_status("GET /hello HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403);
	expect_status("GET /hello HTTP/1.1\r\nHost: evil.example:80\r\n\r\n", 403);
	/* Names that a foreign DNS server may let point to this machine. */
	expect_status("GET /hello HTTP/1.1\r\nHost: 127.evil.test\r\n\r\n", 403);
	expect_status("GET /hello HTTP/1.1\r\nHost: 127.0.0.1.evil.test:7070\r\n\r\n", 403);
	expect_status("GET /hello HTTP/1.1\r\nHost: 127.1\r\n\r\n", 403);
	expect_status("GET /hello HTTP/1.1\r\nHost: 10.0.0.1\r\n\r\n", 403);
	expect_status("GET /hello HTTP/1.1\r\nHost: [::1\r\n\r\n", 403);
	expect_status("GET /hello HTTP/1.1\r\nHost: 127.0.0.1:1777\r\n\r\n", 200);
	expect_status("GET /hello HTTP/1.1\r\nHost: 127.9.8.7\r\n\r\n", 200);
	expect_status("GET /hello HTTP/1.1\r\nHost: [::1]:1777\r\n\r\n", 200);
	expect_status("GET /hello HTTP/1.0\r\n\r\n", 200);
}

static void upgrades_and_connect_are_refused(void **state)
{
	struct reply r;

	expect_status("GET /hello HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
		      "Upgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
		      "Sec-WebSocket-Version: 13\r\n\r\n",
		      501);
	expect_status(
	    "GET /hello HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\n"
	    "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
	    501);
	client_ask(f.port, "CONNECT example.org:443 HTTP/1.1\r\nHost: localhost\r\n\r\n", &r);
	assert_int_not_equal(r.status, 200);
	reply_done(&r);
	client_ask(f.port, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &r);
	assert_int_not_equal(r.status, 200);
	reply_done(&r);
	expect_text("/hello", 200, "hello world\n");
}

static void a_big_answer_arrives_whole_at_a_slow_reader(void **state)
{
	_cleanup_close_ int fd = client_connect(f.port);
	const char *ask = "GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n";
	struct reply r = {0};
	char value[128];

	client_send(fd, ask, strlen(ask));
	assert_true(wait_for(&f.n_handled, 1));
	usleep(300000); /* both socket buffers fill meanwhile */
	buf_init(&r.raw, BIG * 2);
	assert_true(client_read(fd, &r.raw));
	reply_parse(&r);
	assert_int_equal(r.status, 200);
	assert_int_equal(r.body_len, BIG);
	assert_memory_equal(r.body, big, BIG);
	assert_string_equal(reply_header(&r, "Content-Disposition", value, sizeof(value)),
			    "attachment; filename=\"big\"");
	assert_string_equal(reply_header(&r, "Content-Security-Policy", value, sizeof(value)),
			    "default-src 'self'");
	assert_string_equal(reply_header(&r, "Set-Cookie", value, sizeof(value)), "");
	reply_done(&r);
}

static void a_reader_that_stops_is_dropped(void **state)
{
	_cleanup_close_ int fd = client_connect(f.port);
	const char *ask = "GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n";
	struct buf b;

	client_send(fd, ask, strlen(ask));
	assert_true(wait_for(&f.n_handled, 1));
	assert_true(wait_for_connections(0));
	buf_init(&b, BIG * 2);
	client_read(fd, &b);
	assert_true(b.len < BIG);
	buf_done(&b);
}

static void a_request_that_drips_is_dropped(void **state)
{
	_cleanup_close_ int fd = client_connect(f.port);
	struct buf b;
	bool closed = false;

	for (int i = 0; i < 600 && !closed; i++) { /* a minute; the server allows IMPATIENT_S */
		closed = send(fd, i ? "x" : "GET /", i ? 1 : 5, MSG_NOSIGNAL) < 0;
		usleep(100000);
	}
	assert_true(closed);
	buf_init(&b, 4096);
	client_read(fd, &b);
	assert_int_equal(b.len, 0);
	buf_done(&b);
}

static void a_silent_client_is_dropped(void **state)
{
	_cleanup_close_ int fd = client_connect(f.port);
	struct buf b;

	buf_init(&b, 4096);
	assert_true(client_read(fd, &b));
	assert_int_equal(b.len, 0);
	buf_done(&b);
}

static void a_request_in_single_bytes_is_answered(void **state)
{
	_cleanup_close_ int fd = client_connect(f.port);
	const char *ask = "GET /echo?name=b%20b HTTP/1.1\r\nHost: localhost\r\n\r\n";
	struct reply r = {0};
	int one = 1;

	setsockopt(fd, IPPROTO_TCP, 1 /* TCP_NODELAY */, &one, sizeof(one));
	for (const char *p = ask; *p; p++) {
		client_send(fd, p, 1);
		usleep(500);
	}
	buf_init(&r.raw, 1 << 20);
	assert_true(client_read(fd, &r.raw));
	reply_parse(&r);
	assert_string_equal(r.body, "b b|30\n");
	reply_done(&r);
}

static void a_half_closed_client_gets_its_answer(void **state)
{
	_cleanup_close_ int fd = client_connect(f.port);
	const char *ask = "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n";
	struct reply r = {0};

	client_send(fd, ask, strlen(ask));
	shutdown(fd, SHUT_WR);
	buf_init(&r.raw, 1 << 20);
	client_read(fd, &r.raw);
	reply_parse(&r);
	assert_int_equal(r.status, 200);
	reply_done(&r);
}

static void pipelined_requests_get_one_answer_and_the_end(void **state)
{
	struct reply r;

	client_ask(f.port,
		   "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n"
		   "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n",
		   &r);
	assert_int_equal(r.status, 200);
	assert_string_equal(r.body, "hello world\n");
	reply_done(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    WITH_SERVER(answers_a_known_path_with_all_headers),
	    WITH_SERVER(each_server_has_its_own_routes),
	    WITH_SERVER(head_has_the_length_and_no_body),
	    WITH_SERVER(an_unknown_path_is_404),
	    WITH_SERVER(dot_segments_and_escapes_never_leave_the_routes),
	    WITH_SERVER(a_wrong_method_is_405_and_names_the_right_ones),
	    WITH_SERVER(query_parameters_are_decoded_and_bounded),
	    WITH_SERVER(a_long_path_is_414),
	    WITH_SERVER(a_long_parameter_is_414),
	    WITH_SERVER(too_many_header_bytes_end_the_connection),
	    WITH_SERVER(bad_escapes_are_refused),
	    WITH_SERVER(a_body_arrives_whole_up_to_its_cap),
	    WITH_SERVER(a_foreign_host_header_is_refused_on_loopback),
	    WITH_SERVER(upgrades_and_connect_are_refused),
	    WITH_SERVER(a_big_answer_arrives_whole_at_a_slow_reader),
	    IMPATIENT(a_reader_that_stops_is_dropped),
	    IMPATIENT(a_request_that_drips_is_dropped),
	    IMPATIENT(a_silent_client_is_dropped),
	    WITH_SERVER(a_request_in_single_bytes_is_answered),
	    WITH_SERVER(a_half_closed_client_gets_its_answer),
	    WITH_SERVER(pipelined_requests_get_one_answer_and_the_end),
	    WITH_SERVER(unread_input_does_not_reset_the_answer_away),
	    cmocka_unit_test(nothing_was_closed_twice),
	};

	return run_httpd_tests(tests);
}
