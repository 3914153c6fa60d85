/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP client without a server: refused settings, nobody there, and the end at any moment. */
#include "lib/http_client.h"

#include <arpa/inet.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <cmocka.h>

#include "tests/support/failalloc.h"

static void test_settings_that_cannot_work(void **state)
{
	static const struct http_header split = {"x", "a\r\nb: c"}, unnamed = {"", "x"},
					spaced = {"a b", "x"};
	static const struct {
		struct http_client_options options;
		const char *words;
	} rows[] = {
	    {{.url = "ftp://x/"}, "endpoint: want http:// or https://"},
	    {{.url = "http://"}, "endpoint: want http:// or https://"},
	    {{.url = "file:///etc/passwd"}, "endpoint: want http:// or https://"},
	    {{.url = "http://u:secret@x:99999/"}, "endpoint: want http:// or https://"},
	    {{.url = "https://x/", .tls = {.min_version = "2"}}, "tls.min_version: want"},
	    {{.url = "https://x/", .tls = {.ca_file = "/nowhere"}}, "tls.ca_file: /nowhere"},
	    {{.url = "https://x/", .tls = {.key_file = "/dev/null"}}, "come together"},
	    {{.url = "http://x/", .headers = &split, .n_headers = 1}, "headers.x"},
	    {{.url = "http://x/", .headers = &unnamed, .n_headers = 1}, "headers."},
	    {{.url = "http://x/", .headers = &spaced, .n_headers = 1}, "headers.a b"},
	};
	struct http_client *client = NULL;
	struct error err;
	uv_loop_t loop;
	size_t i;

	assert_int_equal(uv_loop_init(&loop), 0);
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_int_equal(http_client_new(&rows[i].options, &loop, &client, &err), -EINVAL);
		assert_null(client);
		assert_non_null(strstr(err.message, rows[i].words));
		assert_null(strstr(err.message, "secret"));
	}
	assert_int_equal(uv_loop_close(&loop), 0);
}

static void never(const struct http_answer *answer, void *arg)
{
	fail_msg("a forgotten request was answered");
}

/* A port that takes connections and says nothing. */
static int silent_port(char url[64])
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&at, len), 0);
	assert_int_equal(listen(fd, 8), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
	snprintf(url, 64, "http://127.0.0.1:%d/", ntohs(at.sin_port));
	return fd;
}

/* Turns the loop until the first bytes of a client are at the port; it stays connected. */
static void until_heard(int listener, uv_loop_t *loop, int *ret_peer)
{
	uint64_t end = uv_hrtime() + UINT64_C(60000000000);
	_cleanup_close_ int peer = -1;
	char c;

	while (peer < 0 || recv(peer, &c, 1, MSG_PEEK | MSG_DONTWAIT) != 1) {
		assert_true(uv_hrtime() < end);
		uv_run(loop, UV_RUN_NOWAIT);
		if (peer < 0)
			peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	}
	*ret_peer = TAKE_FD(peer);
}

static void test_the_end_with_requests_under_way_leaves_nothing(void **state)
{
	char url[64];
	_unused_ _cleanup_close_ int fd = silent_port(url);
	struct http_client_options options = {.url = url};
	struct http_client *client;
	struct http_post *posts[3];
	struct error err;
	uv_loop_t loop;
	int turns, i, k;

	for (turns = 0; turns < 6; turns++) {
		assert_int_equal(uv_loop_init(&loop), 0);
		assert_int_equal(http_client_new(&options, &loop, &client, &err), 0);
		for (i = 0; i < 3; i++)
			assert_int_equal(http_client_post(client, "a/b", "gzip", "x", 1, 60000,
							  never, NULL, &posts[i]),
					 0);
		for (k = 0; k < turns; k++)
			uv_run(&loop, UV_RUN_NOWAIT);
		(void)http_post_cancel(posts[1]);
		assert_null(http_client_free(client));
		uv_run(&loop, UV_RUN_DEFAULT);
		assert_int_equal(uv_loop_close(&loop), 0);
	}
}

static void test_a_cancelled_request_tells_whether_it_was_on_its_way(void **state)
{
	char url[64], secure[72];
	_cleanup_close_ int fd = silent_port(url);
	struct http_client_options options = {.url = url};
	struct http_client *client;
	struct http_post *post;
	struct error err;
	uv_loop_t loop;
	int tls;

	snprintf(secure, sizeof(secure), "https%s", url + strlen("http"));
	for (tls = 0; tls < 2; tls++) {
		_cleanup_close_ int peer = -1;

		options.url = tls ? secure : url;
		assert_int_equal(uv_loop_init(&loop), 0);
		assert_int_equal(http_client_new(&options, &loop, &client, &err), 0);
		assert_int_equal(
		    http_client_post(client, "a/b", NULL, "x", 1, 60000, never, NULL, &post), 0);
		until_heard(fd, &loop, &peer);
		/*
		 * Without TLS the request was sent already; with TLS the handshake has not ended.
		 */
		assert_int_equal(http_post_cancel(post), !tls);
		assert_null(http_client_free(client));
		uv_run(&loop, UV_RUN_DEFAULT);
		assert_int_equal(uv_loop_close(&loop), 0);
	}
}

struct seen {
	int calls, status;
	bool connected, timed_out;
	char words[256];
	struct http_client *free_me;
};

static void on_answer(const struct http_answer *answer, void *arg)
{
	struct seen *seen = arg;

	seen->calls++;
	seen->status = answer->status;
	seen->connected = answer->connected;
	seen->timed_out = answer->timed_out;
	snprintf(seen->words, sizeof(seen->words), "%s", answer->message);
	http_client_free(seen->free_me);
}

static struct seen post_once(const char *url, uint64_t timeout_ms)
{
	struct http_client_options options = {.url = url};
	struct seen seen = {0};
	struct http_post *post;
	struct error err;
	uv_loop_t loop;

	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(http_client_new(&options, &loop, &seen.free_me, &err), 0);
	assert_int_equal(http_client_post(seen.free_me, "a/b", NULL, "x", 1, timeout_ms, on_answer,
					  &seen, &post),
			 0);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
	assert_int_equal(seen.calls, 1);
	assert_int_equal(seen.status, 0);
	assert_true(seen.words[0]);
	return seen;
}

struct answers {
	int n, status;
	bool elsewhere, connected, resent;
};

static void on_any(const struct http_answer *answer, void *arg)
{
	struct answers *a = arg;

	a->n++;
	a->status = answer->status;
	a->elsewhere = answer->elsewhere;
	a->connected = answer->connected;
	a->resent = answer->resent;
}

/*
 * Sends a request over the server's connection *PEER or a new one, which is stored in *PEER. The
 * server reads the request and closes the connection without an answer DROPS times, then answers
 * 204.
 */
static struct answers ask_dropping(struct http_client *client, uv_loop_t *loop, int listener,
				   int *peer, int drops)
{
	static const char answer[] = "HTTP/1.1 204 No Content\r\n\r\n";
	uint64_t end = uv_hrtime() + UINT64_C(60000000000);
	struct answers a = {0};
	struct http_post *post;
	char request[512];

	assert_int_equal(http_client_post(client, "a/b", NULL, "x", 1, 60000, on_any, &a, &post),
			 0);
	while (!a.n) {
		int fresh = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

		assert_true(uv_hrtime() < end);
		uv_run(loop, UV_RUN_NOWAIT);
		if (fresh >= 0) {
			if (*peer >= 0)
				close(*peer);
			*peer = fresh;
		}
		if (*peer < 0 || recv(*peer, request, sizeof(request), MSG_DONTWAIT) <= 0)
			continue;
		if (drops-- > 0)
			close(TAKE_FD(*peer));
		else
			assert_int_equal(send(*peer, answer, strlen(answer), MSG_NOSIGNAL),
					 strlen(answer));
	}
	return a;
}

static struct answers ask(struct http_client *client, uv_loop_t *loop, int listener, int *peer)
{
	return ask_dropping(client, loop, listener, peer, 0);
}

static void test_a_request_that_is_to_stay_goes_over_no_new_connection(void **state)
{
	char url[64];
	_cleanup_close_ int fd = silent_port(url), peer = -1;
	struct http_client_options options = {.url = url};
	struct http_client *client;
	struct answers a;
	struct error err;
	uv_loop_t loop;

	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(http_client_new(&options, &loop, &client, &err), 0);
	http_client_stay(client, true);
	a = ask(client, &loop, fd, &peer);
	assert_true(a.elsewhere && !a.connected && a.status == 0);
	http_client_stay(client, false);
	assert_int_equal(ask(client, &loop, fd, &peer).status, 204);
	http_client_stay(client, true);
	assert_int_equal(ask(client, &loop, fd, &peer).status, 204);
	/* As a server does that ends. */
	close(TAKE_FD(peer));
	a = ask(client, &loop, fd, &peer);
	assert_true(a.elsewhere && !a.connected && a.status == 0);
	http_client_stay(client, false);
	assert_int_equal(ask(client, &loop, fd, &peer).status, 204);
	assert_null(http_client_free(client));
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
}

/* A server closes a kept connection after it has read a request: curl sends the request again. */
static void test_a_request_that_curl_sends_again_is_told(void **state)
{
	char url[64];
	_cleanup_close_ int fd = silent_port(url), peer = -1;
	struct http_client_options options = {.url = url};
	struct http_client *client;
	struct answers a;
	struct error err;
	uv_loop_t loop;

	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(http_client_new(&options, &loop, &client, &err), 0);
	a = ask(client, &loop, fd, &peer);
	assert_true(a.status == 204 && a.connected && !a.resent);
	a = ask(client, &loop, fd, &peer);
	assert_true(a.status == 204 && a.connected && !a.resent);
	a = ask_dropping(client, &loop, fd, &peer, 1);
	assert_true(a.status == 204 && a.connected && a.resent);
	/* Not sent again over a new connection, but the server has read it. */
	http_client_stay(client, true);
	a = ask_dropping(client, &loop, fd, &peer, 1);
	assert_true(a.elsewhere && a.connected && !a.resent);
	http_client_stay(client, false);
	assert_int_equal(ask(client, &loop, fd, &peer).status, 204);
	/* There is no new connection: the server has read it all the same. */
	close(TAKE_FD(fd));
	a = ask_dropping(client, &loop, fd, &peer, 1);
	assert_true(a.status == 0 && a.connected && !a.resent);
	assert_null(http_client_free(client));
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
}

static void test_nobody_there_is_told_apart_from_silence(void **state)
{
	char url[64];
	_unused_ _cleanup_close_ int fd = silent_port(url);
	struct seen seen = {0};
	uint64_t ms;

	/* A machine may be too busy to connect within the first. */
	for (ms = 50; ms <= 50000 && !seen.connected; ms *= 10) {
		seen = post_once(url, ms);
		assert_true(seen.timed_out);
	}
	assert_true(seen.connected);
	seen = post_once("http://127.0.0.1:1/", 60000);
	assert_false(seen.connected);
	assert_false(seen.timed_out);
}

/* A port that sends BYTES to whoever connects to it and closes the connection. */
struct peer {
	uv_thread_t thread;
	int listener;
	const char *bytes;
	size_t len;
	bool reset; /* it resets the connection instead */
};

static void peer_answer(void *arg)
{
	static const struct linger at_once = {.l_onoff = 1};
	struct peer *p = arg;
	struct pollfd waits = {.fd = p->listener, .events = POLLIN};
	_cleanup_close_ int fd = -1;
	char request[4096];

	if (poll(&waits, 1, 60000) != 1)
		return;
	fd = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC);
	if (recv(fd, request, sizeof(request), 0) <= 0)
		return;
	if (p->reset)
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
	else
		(void)!send(fd, p->bytes, p->len, MSG_NOSIGNAL);
}

static void test_the_wrong_scheme_is_told(void **state)
{
	static const struct {
		const char *scheme, *bytes;
		size_t len;
		bool reset;
		const char *words;
	} rows[] = {
	    {"https", "HTTP/1.1 400 Bad Request\r\n\r\n", 28, false,
	     "the port speaks plain text, not TLS (use http://)"},
	    {"https", "", 0, false, "it may speak plain text (use http://)"},
	    {"https", "", 0, true, "it may speak plain text (use http://)"},
	    /* The scheme is right: the server sent the alert handshake_failure. */
	    {"https", "\x15\x03\x03\x00\x02\x02\x28", 7, false, "handshake failure"},
	    {"http", "\x15\x03\x03\x00\x02\x02\x46", 7, false, "may speak TLS (use https://)"},
	    {"http", "", 0, false, "it may want TLS (use https://)"},
	    {"http", "", 0, true, "it may want TLS (use https://)"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char url[64], asked[80];
		_cleanup_close_ int fd = silent_port(url);
		struct peer peer = {.listener = fd,
				    .bytes = rows[i].bytes,
				    .len = rows[i].len,
				    .reset = rows[i].reset};
		struct seen seen;

		snprintf(asked, sizeof(asked), "%s%s", rows[i].scheme, url + strlen("http"));
		assert_int_equal(uv_thread_create(&peer.thread, peer_answer, &peer), 0);
		seen = post_once(asked, 60000);
		uv_thread_join(&peer.thread);
		if (!strstr(seen.words, rows[i].words))
			fail_msg("row %zu: %s", i, seen.words);
	}
}

/*
 * A server that answered before speaks the URL's protocol: it may be a proxy whose receiver is
 * away.
 */
static void test_the_scheme_is_not_blamed_after_an_answer(void **state)
{
	char url[64];
	_cleanup_close_ int fd = silent_port(url), peer = -1;
	struct http_client_options options = {.url = url};
	struct peer closes = {.listener = fd, .bytes = ""};
	struct seen seen = {0};
	struct http_post *post;
	struct error err;
	uv_loop_t loop;

	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(http_client_new(&options, &loop, &seen.free_me, &err), 0);
	assert_int_equal(ask(seen.free_me, &loop, fd, &peer).status, 204);
	close(TAKE_FD(peer));
	assert_int_equal(uv_thread_create(&closes.thread, peer_answer, &closes), 0);
	assert_int_equal(
	    http_client_post(seen.free_me, "a/b", NULL, "x", 1, 60000, on_answer, &seen, &post), 0);
	uv_run(&loop, UV_RUN_DEFAULT);
	uv_thread_join(&closes.thread);
	assert_int_equal(uv_loop_close(&loop), 0);
	assert_int_equal(seen.calls, 1);
	assert_true(seen.words[0]);
	assert_null(strstr(seen.words, "https://"));
}

static void test_out_of_memory_at_any_allocation(void **state)
{
	static const struct http_header header = {"x", "y"};
	struct http_client_options options = {.url = "https://x/",
					      .headers = &header,
					      .n_headers = 1,
					      .user_agent = "t",
					      .tls = {.server_name = "z"}};
	struct http_client *client;
	bool failed = true;
	struct error err;
	uv_loop_t loop;
	long n;
	int r;

	assert_int_equal(uv_loop_init(&loop), 0);
	for (n = 0; failed; n++) {
		client = NULL;
		failalloc_at(n);
		r = http_client_new(&options, &loop, &client, &err);
		failed = failalloc_stop();
		assert_int_equal(r, failed ? -ENOMEM : 0);
		http_client_free(client);
		uv_run(&loop, UV_RUN_DEFAULT);
	}
	assert_in_range(n, 2, 100);
	assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_settings_that_cannot_work),
	    cmocka_unit_test(test_the_end_with_requests_under_way_leaves_nothing),
	    cmocka_unit_test(test_a_cancelled_request_tells_whether_it_was_on_its_way),
	    cmocka_unit_test(test_a_request_that_is_to_stay_goes_over_no_new_connection),
	    cmocka_unit_test(test_a_request_that_curl_sends_again_is_told),
	    cmocka_unit_test(test_nobody_there_is_told_apart_from_silence),
	    cmocka_unit_test(test_the_wrong_scheme_is_told),
	    cmocka_unit_test(test_the_scheme_is_not_blamed_after_an_answer),
	    cmocka_unit_test(test_out_of_memory_at_any_allocation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
