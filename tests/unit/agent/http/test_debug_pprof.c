/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Captures over a real socket. The encoder is replaced by one that prints its arguments, so that
 * the test sees which windows and which process are in a response.
 */
#include "agent/http/debug_pprof.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <cmocka.h>

#include <time.h>

#include "agent/profile/pprof.h"
#include "lib/metrics.h"
#include "tests/unit/lib/httpd/harness.h"

enum { WINDOW_MS = 1000 };

static struct {
	struct loop_thread *thread;
	struct debug_pprof *pprof;
	uint16_t port;
	bool encoder_fails;
} f;

int pprof_encode(const struct batch *const *batches, size_t n, const struct pprof_filter *filter,
		 struct buf *out, struct error *err)
{
	if (f.encoder_fails)
		return error_set(err, -E2BIG, "too big");
	buf_printf(out, "pid=%u n=%zu", filter->pid, n);
	for (size_t i = 0; i < n; i++)
		buf_printf(out, " %llu", (unsigned long long)batches[i]->start_unix_ns);
	return buf_error(out);
}

static void init(uv_loop_t *loop, void *user)
{
	char host[] = "127.0.0.1";
	const struct http_config config = {.enabled = true, .host = host};
	struct error err = {0};

	if (debug_pprof_new(loop, &config, WINDOW_MS, &f.pprof, &err) < 0) {
		fprintf(stderr, "%s\n", err.message);
		abort();
	}
	f.port = debug_pprof_port(f.pprof);
}

static void stop(void *user)
{
	f.pprof = debug_pprof_free(f.pprof);
}

static int setup(void **state)
{
	memset(&f, 0, sizeof(f));
	f.thread = loop_thread_new(init, stop, NULL);
	return 0;
}

static int teardown(void **state)
{
	loop_thread_free(f.thread);
	return 0;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

static void get_pending(void *arg)
{
	*(unsigned int *)arg = debug_pprof_pending(f.pprof);
}

static bool wait_pending(unsigned int want)
{
	unsigned int n = ~want;

	for (int i = 0; i < 60000 && n != want; i++) {
		loop_thread_call(f.thread, get_pending, &n);
		usleep(1000);
	}
	return n == want;
}

struct window {
	uint64_t start, duration;
};

static void consume(void *arg)
{
	const struct window *w = arg;
	struct batch_builder *builder = NULL;
	_cleanup_(batch_unrefp) struct batch *b = NULL;

	if (batch_builder_new(w->start, &builder) < 0 ||
	    batch_builder_finish(builder, w->duration, &b) < 0)
		abort();
	debug_pprof_consume(f.pprof, b);
}

static void give(uint64_t start, uint64_t duration)
{
	struct window w = {start, duration};

	loop_thread_call(f.thread, consume, &w);
}

static int ask(const char *target)
{
	int fd = client_connect(f.port);
	char request[256];

	snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", target);
	client_send(fd, request, strlen(request));
	return fd;
}

static void answer(int fd, struct reply *r)
{
	*r = (struct reply){0};
	buf_init(&r->raw, 1 << 20);
	client_read(fd, &r->raw);
	reply_parse(r);
	close(fd);
}

#define SECOND 1000000000ULL

static void a_profile_holds_the_windows_that_overlap_it(void **state)
{
	uint64_t start = now_ns(), end;
	struct reply r;
	char want[256], value[128];
	int fd;

	give(start - 10 * SECOND, SECOND); /* before the request */
	/* The capture begins at most 60 s after START and ends at most 60 s before END. */
	fd = ask("/debug/pprof/profile?seconds=300");
	assert_true(wait_pending(1));
	end = now_ns() + 300 * SECOND;
	give(start - 5 * SECOND, 4 * SECOND);  /* ends before the capture begins */
	give(start - SECOND, 61 * SECOND);     /* overlaps its start */
	give(start + 80 * SECOND, 4 * SECOND); /* inside */
	assert_true(wait_pending(1));
	give(end - 60 * SECOND, 61 * SECOND); /* reaches its end: ends the capture */
	answer(fd, &r);
	assert_int_equal(r.status, 200);
	snprintf(want, sizeof(want), "pid=%d n=3 %llu %llu %llu", getpid(),
		 (unsigned long long)(start - SECOND), (unsigned long long)(start + 80 * SECOND),
		 (unsigned long long)(end - 60 * SECOND));
	assert_string_equal(r.body, want);
	assert_string_equal(reply_header(&r, "Content-Type", value, sizeof(value)),
			    "application/octet-stream");
	assert_string_equal(reply_header(&r, "Content-Disposition", value, sizeof(value)),
			    "attachment; filename=\"profile.pb.gz\"");
	assert_true(wait_pending(0));
	reply_done(&r);
}

static void a_window_after_the_end_answers_without_being_in_it(void **state)
{
	uint64_t start = now_ns();
	struct reply r;
	char want[64];
	int fd = ask("/debug/pprof/profile?seconds=300&pid=77");

	assert_true(wait_pending(1));
	give(start, 60 * SECOND);
	give(start + 400 * SECOND, SECOND);
	answer(fd, &r);
	snprintf(want, sizeof(want), "pid=77 n=1 %llu", (unsigned long long)start);
	assert_string_equal(r.body, want);
	reply_done(&r);
}

static void an_idle_node_answers_with_an_empty_profile(void **state)
{
	struct reply r;

	answer(ask("/debug/pprof/profile?seconds=1&pid=0"), &r);
	assert_int_equal(r.status, 200);
	assert_string_equal(r.body, "pid=0 n=0");
	reply_done(&r);
}

static void bad_parameters_are_400_with_the_reason(void **state)
{
	static const struct {
		const char *target, *text;
	} cases[] = {
	    {"/debug/pprof/profile?seconds=0", "seconds: want a number from 1 to 300\n"},
	    {"/debug/pprof/profile?seconds=301", "seconds: want a number from 1 to 300\n"},
	    {"/debug/pprof/profile?seconds=ten", "seconds: want a number from 1 to 300\n"},
	    {"/debug/pprof/profile?seconds=", "seconds: want a number from 1 to 300\n"},
	    {"/debug/pprof/profile?seconds=1&pid=-1", "pid: want a number from 0 to 2147483647\n"},
	    {"/debug/pprof/profile?seconds=1&pid=4294967296",
	     "pid: want a number from 0 to 2147483647\n"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct reply r;

		answer(ask(cases[i].target), &r);
		assert_int_equal(r.status, 400);
		assert_string_equal(r.body, cases[i].text);
		reply_done(&r);
	}
	assert_true(wait_pending(0));
}

static void a_fifth_capture_is_refused_until_one_is_free(void **state)
{
	int64_t refused = metric_get(M_HTTP_CAPTURES_REFUSED);
	int64_t gone = metric_get(M_HTTP_CAPTURES_GONE);
	int fds[DEBUG_PPROF_CAPTURES_MAX];
	struct reply r;

	for (int i = 0; i < DEBUG_PPROF_CAPTURES_MAX; i++)
		fds[i] = ask("/debug/pprof/profile?seconds=300");
	assert_true(wait_pending(DEBUG_PPROF_CAPTURES_MAX));
	answer(ask("/debug/pprof/profile?seconds=1"), &r);
	assert_int_equal(r.status, 503);
	assert_string_equal(r.body, "4 profiles are being taken, try again later\n");
	reply_done(&r);
	assert_int_equal(metric_get(M_HTTP_CAPTURES_REFUSED), refused + 1);
	give(now_ns(), SECOND); /* all four hold the batch */
	close(fds[1]);		/* a client that disconnects frees its capture */
	assert_true(wait_pending(DEBUG_PPROF_CAPTURES_MAX - 1));
	assert_int_equal(metric_get(M_HTTP_CAPTURES_GONE), gone + 1);
	fds[1] = ask("/debug/pprof/profile?seconds=60");
	assert_true(wait_pending(DEBUG_PPROF_CAPTURES_MAX));
	give(now_ns() + 400 * SECOND, SECOND);
	for (int i = 0; i < DEBUG_PPROF_CAPTURES_MAX; i++) {
		answer(fds[i], &r);
		assert_int_equal(r.status, 200);
		reply_done(&r);
	}
}

static void kept_windows_are_bounded_and_the_rest_counted(void **state)
{
	int64_t dropped = metric_get(M_HTTP_CAPTURE_BATCHES_DROPPED);
	uint64_t start = now_ns();
	struct reply r;
	char want[64];
	int fd = ask("/debug/pprof/profile?seconds=300&pid=1");

	assert_true(wait_pending(1));
	for (int i = 0; i < DEBUG_PPROF_BATCHES_MAX + 5; i++)
		give(start, 60 * SECOND);
	give(start + 400 * SECOND, SECOND);
	answer(fd, &r);
	snprintf(want, sizeof(want), "pid=1 n=%d ", DEBUG_PPROF_BATCHES_MAX);
	assert_true(has_prefix(r.body, want));
	assert_int_equal(metric_get(M_HTTP_CAPTURE_BATCHES_DROPPED), dropped + 5);
	reply_done(&r);
}

static void set_encoder_fails(void *arg)
{
	f.encoder_fails = true;
}

static void an_encoder_that_fails_is_told(void **state)
{
	int64_t failed = metric_get(M_HTTP_CAPTURES_FAILED);
	struct reply r;
	int fd = ask("/debug/pprof/profile?seconds=60");

	assert_true(wait_pending(1));
	loop_thread_call(f.thread, set_encoder_fails, NULL);
	give(now_ns() + 120 * SECOND, SECOND);
	answer(fd, &r);
	assert_int_equal(r.status, 500);
	assert_string_equal(r.body, "profile: too big\n");
	assert_int_equal(metric_get(M_HTTP_CAPTURES_FAILED), failed + 1);
	reply_done(&r);
}

static void pending_captures_end_with_the_extension(void **state)
{
	int fds[2];

	for (int i = 0; i < 2; i++)
		fds[i] = ask("/debug/pprof/profile?seconds=300");
	assert_true(wait_pending(2));
	give(now_ns(), SECOND);
	teardown(NULL); /* the leak checker sees a batch that stays */
	for (int i = 0; i < 2; i++) {
		struct reply r;

		answer(fds[i], &r);
		assert_int_equal(r.status, 0);
		reply_done(&r);
	}
	setup(NULL);
}

static void the_index_leads_to_the_profile(void **state)
{
	static const char *const targets[] = {"/debug/pprof/", "/debug/pprof", "/"};

	for (size_t i = 0; i < ARRAY_SIZE(targets); i++) {
		struct reply r;

		answer(ask(targets[i]), &r);
		assert_int_equal(r.status, 200);
		assert_non_null(strstr(r.body, "href=\"/debug/pprof/profile?seconds=10\""));
		reply_done(&r);
	}
}

static void head_takes_no_capture(void **state)
{
	struct reply r;

	client_ask(f.port, "HEAD /debug/pprof/profile HTTP/1.1\r\nHost: localhost\r\n\r\n", &r);
	assert_int_equal(r.status, 200);
	assert_int_equal(r.body_len, 0);
	reply_done(&r);
	assert_true(wait_pending(0));
	client_ask(f.port, "DELETE /debug/pprof/profile HTTP/1.1\r\nHost: localhost\r\n\r\n", &r);
	assert_int_equal(r.status, 405);
	reply_done(&r);
}

static void a_taken_port_names_the_setting(void **state)
{
	char host[] = "127.0.0.1";
	struct http_config config = {.enabled = true, .host = host, .port = f.port};
	struct debug_pprof *second = NULL;
	struct error err = {0};
	char want[160];
	uv_loop_t loop;

	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(debug_pprof_new(&loop, &config, WINDOW_MS, &second, &err), -EADDRINUSE);
	assert_null(second);
	snprintf(want, sizeof(want),
		 "extensions.pprof.endpoint: cannot listen on 127.0.0.1:%u: Address already in use",
		 f.port);
	assert_string_equal(err.message, want);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void)
{
#define WITH_SERVER(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
	const struct CMUnitTest tests[] = {
	    WITH_SERVER(a_profile_holds_the_windows_that_overlap_it),
	    WITH_SERVER(a_window_after_the_end_answers_without_being_in_it),
	    WITH_SERVER(an_idle_node_answers_with_an_empty_profile),
	    WITH_SERVER(bad_parameters_are_400_with_the_reason),
	    WITH_SERVER(a_fifth_capture_is_refused_until_one_is_free),
	    WITH_SERVER(kept_windows_are_bounded_and_the_rest_counted),
	    WITH_SERVER(an_encoder_that_fails_is_told),
	    WITH_SERVER(pending_captures_end_with_the_extension),
	    WITH_SERVER(the_index_leads_to_the_profile),
	    WITH_SERVER(head_takes_no_capture),
	    WITH_SERVER(a_taken_port_names_the_setting),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
