/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP server: answers that come later than the handler returns, and its end while some are
 * due. */
#include "tests/unit/lib/httpd/fixture.h"

#include <sys/socket.h>

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

int main(void)
{
	const struct CMUnitTest tests[] = {
	    IMPATIENT(a_kept_request_is_answered_later),
	    WITH_SERVER(waiting_lets_the_loop_sleep_whatever_the_client_sends),
	    WITH_SERVER(unread_input_lets_the_loop_sleep_while_an_answer_is_stuck),
	    WITH_SERVER(a_client_that_leaves_is_reported_once),
	    WITH_SERVER(a_client_that_resets_is_reported_once),
	    WITH_SERVER(a_kept_request_ends_with_504),
	    WITH_SERVER(a_handler_that_forgets_is_500),
	    WITH_SERVER(kept_requests_are_told_when_the_server_closes),
	    WITH_SERVER(the_server_closes_in_the_middle_of_everything),
	    cmocka_unit_test(nothing_was_closed_twice),
	};

	return run_httpd_tests(tests);
}
