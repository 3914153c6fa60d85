/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's client of the node stream: an operator that talks nonsense, says nothing or is slow.
 */
#include "tests/unit/agent/meta/client_fixture.h"

static void say_garbage(struct fake_call *c)
{
	fake_send(c, "\xff\xff\xff\xff\xff\xff", 6);
}

static void say_early(struct fake_call *c)
{
	say_begin(c, 7);
}

static void say_update_without_state(struct fake_call *c)
{
	say_welcome(c);
	say_pod(c, 3, "x");
}

static void say_lonely_end(struct fake_call *c)
{
	say_welcome(c);
	say_end(c, 7, 1);
}

static void say_welcome_twice(struct fake_call *c)
{
	say_welcome(c);
	say_welcome(c);
}

static void say_backwards(struct fake_call *c)
{
	say_all(c, "x");
	say_pod(c, 9, "y");
}

/* 500,000 empty pods: 1 MB on the wire, 60 MB decoded. */
static void say_bomb(struct fake_call *c)
{
	enum { PODS = 500000, LEN = 2 * PODS };
	static uint8_t bytes[LEN + 16];
	size_t n = 0, i;

	say_welcome(c);
	say_begin(c, 7);
	bytes[n++] = 3 << 3 | 2; /* update */
	bytes[n++] = (LEN & 0x7f) | 0x80;
	bytes[n++] = (LEN >> 7 & 0x7f) | 0x80;
	bytes[n++] = LEN >> 14;
	for (i = 0; i < PODS; i++) {
		bytes[n++] = 4 << 3 | 2;
		bytes[n++] = 0;
	}
	fake_send(c, bytes, n);
}

static void test_nonsense_ends_the_connection_and_starts_over(void **state)
{
	static void (*const says[])(struct fake_call *) = {
	    say_garbage, say_early,    say_update_without_state, say_lonely_end, say_welcome_twice,
	    say_bomb,	 say_backwards};
	struct test t;
	size_t i;

	setup(&t, NULL);
	begin(&t);
	for (i = 0; i < ARRAY_SIZE(says); i++) {
		says[i](expect_call(&t, i));
		assert_hello(expect_call(&t, i + 1), 0, 0);
		assert_int_equal(status_of(&t).malformed, i + 1);
		assert_non_null(strstr(status_of(&t).error, "makes no sense"));
	}
	assert_non_null(pod(&t, "x"));
	say_all(fake_server_call(t.server, i), "a");
	expect_ack(&t, 10);
	assert_string_equal(status_of(&t).error, "");
	teardown(&t);
}

static void test_a_message_above_1_mib_is_not_taken(void **state)
{
	static char huge[(1 << 20) + 1];
	struct fake_call *c;
	struct test t;

	setup(&t, NULL);
	begin(&t);
	c = expect_call(&t, 0);
	say_all(c, "a");
	expect_ack(&t, 10);
	fake_send(c, huge, sizeof(huge));
	assert_hello(expect_call(&t, 1), 7, 10);
	assert_non_null(pod(&t, "a"));
	teardown(&t);
}

static void test_what_a_newer_operator_adds_is_skipped(void **state)
{
	/* Field 99 alone; and a welcome with a field 99 in it. */
	static const uint8_t other[] = {0x9a, 0x06, 0x01, 'x'};
	static const uint8_t welcome[] = {0x0a, 0x06, 0x08, 0x01, 0x9a, 0x06, 0x01, 'x'};
	struct fake_call *c;
	struct test t;

	setup(&t, NULL);
	begin(&t);
	c = expect_call(&t, 0);
	fake_send(c, welcome, sizeof(welcome));
	fake_send(c, other, sizeof(other));
	say_begin(c, 7);
	say_pod(c, 0, "a");
	fake_send(c, other, sizeof(other));
	say_end(c, 7, 10);
	expect_ack(&t, 10);
	assert_int_equal(status_of(&t).malformed, 0);
	teardown(&t);
}

static void say_nothing(struct fake_call *c)
{
}

static void say_welcome_and_begin(struct fake_call *c)
{
	say_welcome(c);
	say_begin(c, 7);
}

static bool newest_said_hello(void *arg)
{
	struct test *t = arg;
	size_t n = fake_server_calls(t->server);

	return n > t->want && fake_server_call(t->server, n - 1)->n_messages > 0;
}

/* Waits until there are more than N calls and the newest has sent its Hello. Returns that call. */
static struct fake_call *expect_newest(struct test *t, size_t n)
{
	t->want = n;
	assert_true(fake_pump(t->server, &t->loop, newest_said_hello, t, WAIT_S));
	return fake_server_call(t->server, fake_server_calls(t->server) - 1);
}

/*
 * Waits until a call was left with ERROR. On a busy machine the client may leave a call for another
 * reason, before its hello or the answer to it was read: then it tries again.
 */
static void expect_left(struct test *t, void (*say_first)(struct fake_call *), const char *error)
{
	int i;

	for (i = 0; i < 8; i++) {
		say_first(expect_newest(t, 0));
		(void)expect_newest(t, fake_server_calls(t->server));
		if (strstr(status_of(t).error, error))
			return;
	}
	fail_msg("%s instead of: %s", status_of(t).error, error);
}

static void test_an_operator_that_says_nothing_is_left(void **state)
{
	struct test t;

	setup(&t, NULL);
	t.options.answer_ms = 200;
	begin(&t);
	expect_left(&t, say_nothing, "no answer");
	/* The same after the beginning of a snapshot, and before it. */
	expect_left(&t, say_welcome_and_begin, "does not go on");
	expect_left(&t, say_welcome, "does not go on");
	teardown(&t);
}

static void test_a_slow_operator_is_waited_for(void **state)
{
	struct fake_call *c;
	char name[16];
	struct test t;
	int i;

	setup(&t, NULL);
	t.options.answer_ms = 2000;
	begin(&t);
	c = expect_call(&t, 0);
	say_welcome(c);
	say_begin(c, 7);
	for (i = 0; i < 20; i++) { /* longer than answer_ms */
		snprintf(name, sizeof(name), "p%d", i);
		say_pod(c, 0, name);
		t.want = uv_hrtime() + 110000000;
		fake_pump(t.server, &t.loop, is_time, &t, 1);
	}
	assert_int_equal(pod_table_count(meta_client_table(t.client)), 0);
	say_end(c, 7, 10);
	expect_ack(&t, 10);
	assert_int_equal(pod_table_count(meta_client_table(t.client)), 20);
	assert_int_equal(fake_server_calls(t.server), 1);
	teardown(&t);
}

static void test_an_operator_that_reads_nothing_holds_nothing_up(void **state)
{
	struct test t;

	setup(&t, &(struct fake_options){.read_nothing = true});
	begin(&t);
	t.want = 0;
	while (!fake_server_call(t.server, 0)) {
		t.want = uv_hrtime() + 20000000;
		fake_pump(t.server, &t.loop, is_time, &t, 1);
	}
	say_all(fake_server_call(t.server, 0), "a");
	assert_true(fake_pump(t.server, &t.loop, is_connected, &t, WAIT_S));
	assert_non_null(pod(&t, "a"));
	teardown(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_nonsense_ends_the_connection_and_starts_over),
	    cmocka_unit_test(test_a_message_above_1_mib_is_not_taken),
	    cmocka_unit_test(test_what_a_newer_operator_adds_is_skipped),
	    cmocka_unit_test(test_an_operator_that_says_nothing_is_left),
	    cmocka_unit_test(test_a_slow_operator_is_waited_for),
	    cmocka_unit_test(test_an_operator_that_reads_nothing_holds_nothing_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
