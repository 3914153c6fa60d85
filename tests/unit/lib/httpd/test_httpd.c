/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP server over real sockets: routes and refusals, limits, clients that are slow, rude or
 * gone, answers that come later, several servers on one loop, and taking it all down.
 */
#include "tests/unit/lib/httpd/harness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <cmocka.h>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <arpa/inet.h>
#include <netinet/in.h>

enum { BIG = 8 << 20 };

/* Every close() of this program and its libraries: one of a number that is not open is a double
 * close. */
static atomic_int n_bad_closes;
int close(int fd);

int close(int fd)
{
	if (fd >= 0 && fcntl(fd, F_GETFD) < 0)
		atomic_fetch_add(&n_bad_closes, 1);
	return (int)syscall(SYS_close, fd);
}

struct fixture {
	struct loop_thread *thread;
	struct httpd *server, *second;
	uint16_t port, second_port;
	struct httpd_request *kept[8]; /* loop's thread */
	atomic_int n_kept, n_gone, n_handled;
	uv_check_t turns;
	atomic_int n_turns; /* of the loop */
	struct httpd_options options;
};

static struct fixture f;
static char *big;

static void handle_hello(struct httpd_request *req, void *user)
{
	atomic_fetch_add(&f.n_handled, 1);
	httpd_reply_text(req, 200, "hello %s", (const char *)user);
}

static void handle_echo(struct httpd_request *req, void *user)
{
	const char *name = httpd_request_param(req, "name");
	struct error err = {0};
	uint64_t n;
	size_t len;
	const void *body = httpd_request_body(req, &len);

	if (len) {
		httpd_reply(req, 200, "application/octet-stream", NULL, 0, body, len);
		return;
	}
	if (httpd_request_param_u64(req, "n", 1, 300, 30, &n, &err) < 0)
		httpd_reply_text(req, 400, "%s", err.message);
	else
		httpd_reply_text(req, 200, "%s|%llu", name ? name : "-", (unsigned long long)n);
}

static void handle_big(struct httpd_request *req, void *user)
{
	const struct httpd_header headers[] = {
	    {"Content-Disposition", "attachment; filename=\"big\""},
	    {"X-Evil", "a\r\nSet-Cookie: b"},
	    {"Content-Security-Policy", "default-src 'self'"},
	};

	atomic_fetch_add(&f.n_handled, 1);
	httpd_reply(req, 200, "application/octet-stream", headers, 3, big, BIG);
}

static void on_gone(struct httpd_request *req, void *user)
{
	assert_ptr_equal(user, &f);
	for (size_t i = 0; i < ARRAY_SIZE(f.kept); i++)
		if (f.kept[i] == req)
			f.kept[i] = NULL;
	atomic_fetch_add(&f.n_gone, 1);
}

static void keep(struct httpd_request *req, unsigned int seconds)
{
	for (size_t i = 0; i < ARRAY_SIZE(f.kept); i++) {
		if (f.kept[i])
			continue;
		f.kept[i] = req;
		httpd_keep(req, seconds, on_gone, &f);
		atomic_fetch_add(&f.n_kept, 1);
		return;
	}
	httpd_reply_text(req, 503, "full");
}

static void handle_later(struct httpd_request *req, void *user)
{
	keep(req, 60);
}

static void handle_never(struct httpd_request *req, void *user)
{
	keep(req, 1);
}

static void handle_forgets(struct httpd_request *req, void *user)
{
}

static const struct httpd_route routes[] = {
    {"/", HTTPD_GET, handle_hello, (void *)"root"},
    {"/hello", HTTPD_GET, handle_hello, (void *)"world"},
    {"/echo", HTTPD_GET | HTTPD_POST, handle_echo, NULL},
    {"/post", HTTPD_POST, handle_echo, NULL},
    {"/big", HTTPD_GET, handle_big, NULL},
    {"/later", HTTPD_GET, handle_later, NULL},
    {"/never", HTTPD_GET, handle_never, NULL},
    {"/forgets", HTTPD_GET, handle_forgets, NULL},
};
static const struct httpd_route second_routes[] = {
    {"/hello", HTTPD_GET, handle_hello, (void *)"second"},
};

static void on_turn(uv_check_t *check)
{
	atomic_fetch_add(&f.n_turns, 1);
}

static void init(uv_loop_t *loop, void *user)
{
	struct error err = {0};

	if (httpd_new(loop, &f.options, routes, ARRAY_SIZE(routes), &f.server, &err) < 0 ||
	    httpd_new(loop, &f.options, second_routes, 1, &f.second, &err) < 0) {
		fprintf(stderr, "%s\n", err.message);
		abort();
	}
	uv_check_init(loop, &f.turns);
	uv_check_start(&f.turns, on_turn);
	f.port = httpd_port(f.server);
	f.second_port = httpd_port(f.second);
}

static void stop(void *user)
{
	f.server = httpd_free(f.server);
	f.second = httpd_free(f.second);
	uv_close((uv_handle_t *)&f.turns, NULL);
}

/* Timeouts so long that no client is cut off, however busy the machine is. */
static int setup(void **state)
{
	memset(&f, 0, sizeof(f));
	f.options = (struct httpd_options){.request_timeout_s = 60, .send_timeout_s = 60};
	f.thread = loop_thread_new(init, stop, NULL);
	return 0;
}

enum { IMPATIENT_S = 2 };

/* For tests of timeouts. */
static int setup_impatient(void **state)
{
	memset(&f, 0, sizeof(f));
	f.options =
	    (struct httpd_options){.request_timeout_s = IMPATIENT_S, .send_timeout_s = IMPATIENT_S};
	f.thread = loop_thread_new(init, stop, NULL);
	return 0;
}

static int teardown(void **state)
{
	loop_thread_free(f.thread);
	return 0;
}

/* Waits until an atomic has at least this value; gives up after a minute. */
static bool wait_for(atomic_int *value, int want)
{
	for (int i = 0; i < 60000 && atomic_load(value) < want; i++)
		usleep(1000);
	return atomic_load(value) >= want;
}

static void get_connections(void *arg)
{
	*(unsigned int *)arg = httpd_connections(f.server);
}

static bool wait_for_connections(unsigned int want)
{
	unsigned int n = ~want;

	for (int i = 0; i < 60000 && n != want; i++) {
		loop_thread_call(f.thread, get_connections, &n);
		usleep(1000);
	}
	return n == want;
}

static void expect_status(const char *request, int status)
{
	struct reply r;

	client_ask(f.port, request, &r);
	if (r.status != status)
		print_error("for %.60s: %d, raw %s\n", request, r.status, r.raw.data);
	assert_int_equal(r.status, status);
	reply_done(&r);
}

static void expect_text(const char *target, int status, const char *text)
{
	struct reply r;

	client_get(f.port, target, &r);
	assert_int_equal(r.status, status);
	assert_string_equal(r.body, text);
	reply_done(&r);
}

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

/* ---- answers that come later ----------------------------------------------------------------- */

static void reply_to_kept(void *arg)
{
	for (size_t i = 0; i < ARRAY_SIZE(f.kept); i++) {
		if (!f.kept[i])
			continue;
		httpd_reply_text(f.kept[i], 200, "late");
		f.kept[i] = NULL;
	}
}

static void a_kept_request_is_answered_later(void **state)
{
	_cleanup_close_ int fd = client_connect(f.port);
	const char *ask = "GET /later HTTP/1.1\r\nHost: localhost\r\n\r\n";
	struct reply r = {0};

	client_send(fd, ask, strlen(ask));
	assert_true(wait_for(&f.n_kept, 1));
	sleep(IMPATIENT_S + 1); /* longer than a request that is still coming may take */
	loop_thread_call(f.thread, reply_to_kept, NULL);
	buf_init(&r.raw, 1 << 20);
	assert_true(client_read(fd, &r.raw));
	reply_parse(&r);
	assert_int_equal(r.status, 200);
	assert_string_equal(r.body, "late\n");
	assert_int_equal(atomic_load(&f.n_gone), 0);
	reply_done(&r);
}

/* The watch turns the loop four times a second; a loop that spins turns tens of thousands of times.
 */
enum { TURNS_OF_AN_IDLE_LOOP = 200 };

static void waiting_lets_the_loop_sleep_whatever_the_client_sends(void **state)
{
	_cleanup_close_ int fd = client_connect(f.port);
	const char *ask = "GET /later HTTP/1.1\r\nHost: localhost\r\n\r\n"
			  "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\nrubbish";
	int before;

	client_send(fd, ask, strlen(ask));
	assert_true(wait_for(&f.n_kept, 1));
	client_send(fd, ask, strlen(ask));
	before = atomic_load(&f.n_turns);
	sleep(2);
	assert_in_range(atomic_load(&f.n_turns) - before, 1, TURNS_OF_AN_IDLE_LOOP);
	assert_int_equal(atomic_load(&f.n_handled), 0);
}

static void unread_input_lets_the_loop_sleep_while_an_answer_is_stuck(void **state)
{
	_cleanup_close_ int fd = client_connect(f.port);
	const char *ask = "GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n";
	int before;

	client_send(fd, ask, strlen(ask));
	assert_true(wait_for(&f.n_handled, 1));
	usleep(200000);
	client_send(fd, ask, strlen(ask));
	usleep(600000); /* two turns of the watch */
	before = atomic_load(&f.n_turns);
	usleep(500000);
	assert_in_range(atomic_load(&f.n_turns) - before, 0, TURNS_OF_AN_IDLE_LOOP);
}

static void a_client_that_leaves_is_reported_once(void **state)
{
	int fd = client_connect(f.port);
	const char *ask = "GET /later HTTP/1.1\r\nHost: localhost\r\n\r\n";

	client_send(fd, ask, strlen(ask));
	assert_true(wait_for(&f.n_kept, 1));
	close(fd);
	assert_true(wait_for(&f.n_gone, 1));
	loop_thread_call(f.thread, reply_to_kept, NULL);
	expect_text("/hello", 200, "hello world\n");
	assert_int_equal(atomic_load(&f.n_gone), 1);
}

static void a_client_that_resets_is_reported_once(void **state)
{
	int fd = client_connect(f.port);
	const char *ask = "GET /later HTTP/1.1\r\nHost: localhost\r\n\r\nmore";
	struct linger linger = {.l_onoff = 1};

	client_send(fd, ask, strlen(ask));
	assert_true(wait_for(&f.n_kept, 1));
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	close(fd);
	assert_true(wait_for(&f.n_gone, 1));
	assert_int_equal(atomic_load(&f.n_gone), 1);
}

static void a_kept_request_ends_with_504(void **state)
{
	expect_text("/never", 504, "Gateway Timeout\n");
	assert_int_equal(atomic_load(&f.n_gone), 1);
}

static void a_handler_that_forgets_is_500(void **state)
{
	expect_text("/forgets", 500, "Internal Server Error\n");
}

static void kept_requests_are_told_when_the_server_closes(void **state)
{
	const char *ask = "GET /later HTTP/1.1\r\nHost: localhost\r\n\r\n";
	int fds[3];

	for (int i = 0; i < 3; i++) {
		fds[i] = client_connect(f.port);
		client_send(fds[i], ask, strlen(ask));
	}
	assert_true(wait_for(&f.n_kept, 3));
	teardown(NULL);
	assert_int_equal(atomic_load(&f.n_gone), 3);
	for (int i = 0; i < 3; i++)
		close(fds[i]);
	setup(NULL);
}

static void the_server_closes_in_the_middle_of_everything(void **state)
{
	const char *texts[] = {
	    "", "GET /hel", "GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n",
	    "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nab",
	    "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n"};

	for (int round = 0; round < 8; round++) {
		int fds[ARRAY_SIZE(texts)];

		for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
			fds[i] = client_connect(f.port);
			client_send(fds[i], texts[i], strlen(texts[i]));
		}
		usleep((unsigned int)round * 500);
		teardown(NULL); /* checks that the loop is empty */
		for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
			close(fds[i]);
		setup(NULL);
	}
}

/* ---- many clients, and rude ones ------------------------------------------------------------- */

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

static void nothing_was_closed_twice(void **state)
{
	assert_int_equal(atomic_load(&n_bad_closes), 0);
}

int main(void)
{
#define WITH_SERVER(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
#define IMPATIENT(test)	  cmocka_unit_test_setup_teardown(test, setup_impatient, teardown)
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
	    IMPATIENT(a_kept_request_is_answered_later),
	    WITH_SERVER(waiting_lets_the_loop_sleep_whatever_the_client_sends),
	    WITH_SERVER(unread_input_lets_the_loop_sleep_while_an_answer_is_stuck),
	    WITH_SERVER(unread_input_does_not_reset_the_answer_away),
	    WITH_SERVER(a_client_that_leaves_is_reported_once),
	    WITH_SERVER(a_client_that_resets_is_reported_once),
	    WITH_SERVER(a_kept_request_ends_with_504),
	    WITH_SERVER(a_handler_that_forgets_is_500),
	    WITH_SERVER(kept_requests_are_told_when_the_server_closes),
	    WITH_SERVER(the_server_closes_in_the_middle_of_everything),
	    WITH_SERVER(two_hundred_clients_at_once_are_all_answered),
	    WITH_SERVER(connections_are_capped_and_the_slots_come_back),
	    WITH_SERVER(a_request_need_not_wait_for_idle_connections),
	    WITH_SERVER(malformed_requests_never_stop_the_server),
	    cmocka_unit_test(a_taken_port_is_named_with_its_cause),
	    cmocka_unit_test(an_address_of_nobody_is_named_with_its_cause),
	    cmocka_unit_test(servers_come_and_go_on_one_loop),
	    cmocka_unit_test(nothing_was_closed_twice), /* in all tests before */
	};
	int r;

	/* One test by name pattern, for whoever looks into it. */
	if (getenv("TEST_FILTER"))
		cmocka_set_test_filter(getenv("TEST_FILTER"));
	big = malloc(BIG);
	for (size_t i = 0; i < BIG; i++)
		big[i] = (char)(i * 2654435761U >> 13);
	r = cmocka_run_group_tests(tests, NULL, NULL);
	free(big);
	return r;
}
