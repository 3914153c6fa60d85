/* SPDX-License-Identifier: Apache-2.0 */
/* The extension over a real socket: streams, slow clients, what is refused and with which status.
 */
#include "agent/live/live.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>

#include "lib/metrics.h"
#include "tests/support/sample_batch.h"
#include "tests/unit/lib/httpd/harness.h"

#define TOKEN "a-token-of-some-length"

static struct {
	struct loop_thread *thread;
	struct live *live;
	struct batch *batch;
	char token_path[64];
	uint16_t port;
} f;

static void init(uv_loop_t *loop, void *user)
{
	char host[] = "127.0.0.1";
	const struct http_config config = {
	    .enabled = true, .host = host, .token_file = f.token_path[0] ? f.token_path : NULL};
	struct error err = {0};

	if (live_new(loop, &config, 1000, &f.live, &err) < 0) {
		fprintf(stderr, "%s\n", err.message);
		abort();
	}
	f.port = live_port(f.live);
}

static void stop(void *user)
{
	f.live = live_free(f.live);
}

static int setup(void **state)
{
	memset(&f, 0, sizeof(f));
	assert_int_equal(sample_batch_build(&f.batch), 0);
	f.batch->duration_ns = 1000000000;
	f.thread = loop_thread_new(init, stop, NULL);
	return 0;
}

static int setup_token(void **state)
{
	int fd;

	memset(&f, 0, sizeof(f));
	strcpy(f.token_path, "/tmp/kiln-live-XXXXXX");
	fd = mkstemp(f.token_path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, TOKEN "\n", sizeof(TOKEN)), sizeof(TOKEN));
	close(fd);
	assert_int_equal(sample_batch_build(&f.batch), 0);
	f.thread = loop_thread_new(init, stop, NULL);
	return 0;
}

static int teardown(void **state)
{
	loop_thread_free(f.thread);
	batch_unref(f.batch);
	if (f.token_path[0])
		unlink(f.token_path);
	return 0;
}

static void consume(void *arg)
{
	live_consume(f.live, arg);
}

static int ask(const char *request)
{
	const struct timeval limit = {.tv_sec = 60};
	int fd = client_connect(f.port);

	/* A missing message fails the test after a minute. */
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
	client_send(fd, request, strlen(request));
	return fd;
}

static int watch(void)
{
	return ask("GET /api/stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
}

/* Reads until the stream has had N messages; their kinds go to KINDS. */
static unsigned int read_messages(int fd, unsigned int n, unsigned char *kinds)
{
	static unsigned char data[64 << 20];
	size_t len = 0, at = 0;
	unsigned int got = 0;

	while (got < n && len < sizeof(data)) {
		ssize_t r = recv(fd, data + len, sizeof(data) - len, 0);
		unsigned char *body;

		if (r <= 0)
			return got;
		len += (size_t)r;
		body = memmem(data, len, "\r\n\r\n", 4);
		if (!body)
			continue;
		at = (size_t)(body + 4 - data);
		for (got = 0; at + 5 <= len;) {
			size_t size = data[at] | (size_t)data[at + 1] << 8 |
				      (size_t)data[at + 2] << 16 | (size_t)data[at + 3] << 24;

			if (at + 4 + size > len)
				break;
			kinds[got++] = data[at + 4];
			at += 4 + size;
		}
	}
	return got;
}

static bool wait_metric(enum metric_id id, int64_t want)
{
	for (int i = 0; i < 60000 && metric_get(id) != want; i++)
		usleep(1000);
	return metric_get(id) == want;
}

static void a_client_gets_totals_history_and_what_comes(void **state)
{
	unsigned char kinds[8];
	int fd;

	loop_thread_call(f.thread, consume, f.batch);
	loop_thread_call(f.thread, consume, f.batch);
	fd = watch();
	assert_int_equal(read_messages(fd, 4, kinds), 4);
	assert_memory_equal(kinds, "\0\1\2\2", 4); /* hello, totals, two past windows */
	close(fd);
}

static void every_client_hears_of_a_window(void **state)
{
	int fds[20];
	unsigned char kinds[8];

	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		fds[i] = watch();
	assert_true(wait_metric(M_LIVE_CLIENTS, ARRAY_SIZE(fds)));
	loop_thread_call(f.thread, consume, f.batch);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		assert_int_equal(read_messages(fds[i], 3, kinds), 3);
		assert_in_range(kinds[2], 2, 3);
		close(fds[i]);
	}
	assert_true(wait_metric(M_LIVE_CLIENTS, 0));
}

static void too_many_clients_are_told_so(void **state)
{
	int64_t before = metric_get(M_LIVE_CLIENTS_REFUSED);
	int fds[LIVE_CLIENTS_MAX];
	struct reply r;

	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		fds[i] = watch();
	assert_true(wait_metric(M_LIVE_CLIENTS, LIVE_CLIENTS_MAX));
	client_get(f.port, "/api/stream", &r);
	assert_int_equal(r.status, 503);
	reply_done(&r);
	assert_int_equal(metric_get(M_LIVE_CLIENTS_REFUSED), before + 1);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		close(fds[i]);
	assert_true(wait_metric(M_LIVE_CLIENTS, 0));
}

/* Connects a client that reads nothing, with the smallest receive buffer. */
static int watch_without_reading(void)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_port = htons(f.port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0), small = 1024;

	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	client_send(fd, "GET /api/stream HTTP/1.1\r\nHost: localhost\r\n\r\n", 45);
	return fd;
}

static void a_client_that_never_reads_skips_and_is_dropped(void **state)
{
	int64_t stalled = metric_get(M_LIVE_CLIENTS_STALLED);
	int64_t bytes = metric_get(M_LIVE_BYTES);
	struct batch *large = NULL;
	int fd;

	assert_int_equal(sample_batch_large(40000, &large), 0);
	loop_thread_call(f.thread, consume, large);
	fd = watch_without_reading();
	for (int i = 0; i < 50; i++)
		loop_thread_call(f.thread, consume, f.batch);
	/* LIVE_STALL_S is ten seconds: the one test here that waits. */
	assert_true(wait_metric(M_LIVE_CLIENTS_STALLED, stalled + 1));
	assert_true(wait_metric(M_LIVE_CLIENTS, 0));
	/* Only the first piece was sent, however many windows came. */
	assert_true(metric_get(M_LIVE_BYTES) - bytes < 8 << 20);
	close(fd);
	batch_unref(large);
}

static void a_client_that_was_behind_gets_the_totals_again(void **state)
{
	int64_t skipped = metric_get(M_LIVE_WINDOWS_SKIPPED);
	struct batch *large = NULL;
	int fd;

	assert_int_equal(sample_batch_large(40000, &large), 0);
	loop_thread_call(f.thread, consume, large);
	fd = watch_without_reading();
	assert_true(wait_metric(M_LIVE_CLIENTS, 1));
	usleep(100000);
	for (int i = 0; i < 20; i++)
		loop_thread_call(f.thread, consume, f.batch);
	/* Now the client reads; with each further window it is less behind. */
	fcntl(fd, F_SETFL, O_NONBLOCK);
	for (int i = 0; i < 20000 && metric_get(M_LIVE_WINDOWS_SKIPPED) == skipped; i++) {
		char sink[65536];

		while (recv(fd, sink, sizeof(sink), 0) > 0)
			;
		usleep(1000);
		if (i % 100 == 0)
			loop_thread_call(f.thread, consume, f.batch);
	}
	assert_true(metric_get(M_LIVE_WINDOWS_SKIPPED) > skipped);
	close(fd);
	batch_unref(large);
}

/* The numbers of entries change while a client is connected: it gets a new greeting. */
static void a_client_is_greeted_again_when_old_entries_went(void **state)
{
	int64_t sent = metric_get(M_LIVE_BYTES);
	unsigned char kinds[16] = {0};
	struct batch *large = NULL, *more = NULL;
	int fd = watch();

	assert_int_equal(sample_batch_flat(100000, 0, 1000, &large), 0);
	assert_int_equal(sample_batch_flat(20000, 100000, 2000, &more), 0);
	for (int i = 0; i < 60000 && metric_get(M_LIVE_BYTES) == sent; i++)
		usleep(1000);
	loop_thread_call(f.thread, consume, f.batch);
	loop_thread_call(f.thread, consume, large);
	loop_thread_call(f.thread, consume, more); /* tables are nearly full: LARGE goes */
	/* MORE may not have been sent yet: then the greeting is sent instead. */
	for (int i = 0; i < 3; i++)
		loop_thread_call(f.thread, consume, f.batch);
	assert_in_range(read_messages(fd, 9, kinds), 9, ARRAY_SIZE(kinds));
	assert_memory_equal(kinds, "\0\1", 2);
	assert_non_null(memmem(kinds + 2, sizeof(kinds) - 2, "\0\1\2", 3));
	close(fd);
	batch_unref(large);
	batch_unref(more);
}

static int status_of(const char *request)
{
	struct reply r;
	int status;

	client_ask(f.port, request, &r);
	status = r.status;
	reply_done(&r);
	return status;
}

static void what_is_not_for_them_is_refused(void **state)
{
#define HOST "Host: localhost\r\n"
#define UPGRADE                                                                                    \
	"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"               \
	"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
	static const struct {
		const char *request;
		int status;
	} cases[] = {
	    {"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403},
	    {"GET /api/stream HTTP/1.1\r\n" HOST "Origin: http://evil.example\r\n\r\n", 403},
	    {"GET /api/profile HTTP/1.1\r\n" HOST "Origin: null\r\n\r\n", 403},
	    {"GET /debug/pprof/profile?seconds=1 HTTP/1.1\r\n" HOST "Origin: http://x\r\n\r\n",
	     403},
	    {"GET /../../etc/passwd HTTP/1.1\r\n" HOST "\r\n", 404},
	    {"GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\n" HOST "\r\n", 404},
	    {"GET //etc/passwd HTTP/1.1\r\n" HOST "\r\n", 404},
	    {"POST /api/stream HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n", 405},
	    {"GET /api/profile?format=exe HTTP/1.1\r\n" HOST "\r\n", 400},
	    {"GET /api/profile?window=-1 HTTP/1.1\r\n" HOST "\r\n", 400},
	    {"GET /api/profile?pid=x HTTP/1.1\r\n" HOST "\r\n", 400},
	    {"GET /debug/pprof/profile?container=short HTTP/1.1\r\n" HOST "\r\n", 400},
	    /* There is no WebSocket here: an upgrade is no way around the checks above. */
	    {"GET /api/stream HTTP/1.1\r\n" HOST UPGRADE "\r\n", 501},
	    {"GET /api/stream HTTP/1.1\r\n" HOST "Connection: Upgrade\r\nUpgrade: x\r\n\r\n", 403},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		if (status_of(cases[i].request) != cases[i].status)
			fail_msg("%d instead of %d for %s", status_of(cases[i].request),
				 cases[i].status, cases[i].request);
	assert_int_equal(metric_get(M_LIVE_CLIENTS), 0);
}

static void the_token_guards_data_and_not_the_page(void **state)
{
	static const char *const paths[] = {"/api/stream", "/api/profile",
					    "/debug/pprof/profile?seconds=1"};
	int64_t before = metric_get(M_LIVE_REFUSED_TOKEN);
	char request[512];
	struct reply r;

	assert_int_equal(status_of("GET / HTTP/1.1\r\n" HOST "\r\n"), 200);
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\n" HOST "\r\n", paths[i]);
		assert_int_equal(status_of(request), 401);
		snprintf(request, sizeof(request),
			 "GET %s HTTP/1.1\r\n" HOST "Authorization: Bearer wrong-" TOKEN "\r\n\r\n",
			 paths[i]);
		assert_int_equal(status_of(request), 401);
	}
	assert_int_equal(metric_get(M_LIVE_REFUSED_TOKEN), before + 6);
	client_ask(f.port,
		   "GET /api/profile HTTP/1.1\r\n" HOST "Authorization: Bearer " TOKEN "\r\n\r\n",
		   &r);
	assert_int_equal(r.status, 200);
	reply_done(&r);
}

static void the_page_may_load_nothing_from_elsewhere(void **state)
{
	static const char *const paths[] = {
	    "/",	 "/style.css",	 "/app.js",	"/model.js",  "/tree.js",
	    "/table.js", "/stream.js",	 "/flame.js",	"/export.js", "/menu.js",
	    "/keep.js",	 "/timeline.js", "/filters.js", "/address.js"};
	char value[512];
	struct reply r;

	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		client_get(f.port, paths[i], &r);
		assert_int_equal(r.status, 200);
		assert_true(r.body_len > 500);
		reply_header(&r, "Content-Security-Policy", value, sizeof(value));
		assert_true(has_prefix(value, "default-src 'none'; script-src 'self';"));
		assert_null(strstr(value, "unsafe"));
		assert_string_equal(reply_header(&r, "X-Frame-Options", value, sizeof(value)),
				    "DENY");
		assert_null(memmem(r.body, r.body_len, "src=\"http", 9));
		reply_done(&r);
	}
}

int main(void)
{
#define WITH_SERVER(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
	const struct CMUnitTest tests[] = {
	    WITH_SERVER(a_client_gets_totals_history_and_what_comes),
	    WITH_SERVER(every_client_hears_of_a_window),
	    WITH_SERVER(too_many_clients_are_told_so),
	    WITH_SERVER(a_client_that_never_reads_skips_and_is_dropped),
	    WITH_SERVER(a_client_that_was_behind_gets_the_totals_again),
	    WITH_SERVER(a_client_is_greeted_again_when_old_entries_went),
	    WITH_SERVER(what_is_not_for_them_is_refused),
	    WITH_SERVER(the_page_may_load_nothing_from_elsewhere),
	    cmocka_unit_test_setup_teardown(the_token_guards_data_and_not_the_page, setup_token,
					    teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
