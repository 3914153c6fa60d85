/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/lib/httpd/fixture.h"

#include <fcntl.h>
#include <sys/syscall.h>

struct fixture f;
char *big;

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

const struct httpd_route routes[N_ROUTES] = {
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

	if (httpd_new(loop, &f.options, routes, N_ROUTES, &f.server, &err) < 0 ||
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

int setup(void **state)
{
	memset(&f, 0, sizeof(f));
	f.options = (struct httpd_options){.request_timeout_s = 60, .send_timeout_s = 60};
	f.thread = loop_thread_new(init, stop, NULL);
	return 0;
}

int setup_impatient(void **state)
{
	memset(&f, 0, sizeof(f));
	f.options =
	    (struct httpd_options){.request_timeout_s = IMPATIENT_S, .send_timeout_s = IMPATIENT_S};
	f.thread = loop_thread_new(init, stop, NULL);
	return 0;
}

int teardown(void **state)
{
	loop_thread_free(f.thread);
	return 0;
}

bool wait_for(atomic_int *value, int want)
{
	for (int i = 0; i < 60000 && atomic_load(value) < want; i++)
		usleep(1000);
	return atomic_load(value) >= want;
}

void get_connections(void *arg)
{
	*(unsigned int *)arg = httpd_connections(f.server);
}

bool wait_for_connections(unsigned int want)
{
	unsigned int n = ~want;

	for (int i = 0; i < 60000 && n != want; i++) {
		loop_thread_call(f.thread, get_connections, &n);
		usleep(1000);
	}
	return n == want;
}

void expect_status(const char *request, int status)
{
	struct reply r;

	client_ask(f.port, request, &r);
	if (r.status != status)
		print_error("for %.60s: %d, raw %s\n", request, r.status, r.raw.data);
	assert_int_equal(r.status, status);
	reply_done(&r);
}

void expect_text(const char *target, int status, const char *text)
{
	struct reply r;

	client_get(f.port, target, &r);
	assert_int_equal(r.status, status);
	assert_string_equal(r.body, text);
	reply_done(&r);
}

void nothing_was_closed_twice(void **state)
{
	assert_int_equal(atomic_load(&n_bad_closes), 0);
}

int run_with_answer(const struct CMUnitTest *tests, size_t n)
{
	int r;

	/* One test by name pattern, for whoever looks into it. */
	if (getenv("TEST_FILTER"))
		cmocka_set_test_filter(getenv("TEST_FILTER"));
	big = malloc(BIG);
	for (size_t i = 0; i < BIG; i++)
		big[i] = (char)(i * 2654435761U >> 13);
	r = _cmocka_run_group_tests("httpd", tests, n, NULL, NULL);
	free(big);
	return r;
}
