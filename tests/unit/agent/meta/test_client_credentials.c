/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's client of the node stream: tokens, certificates, and options that cannot work. */
#include "tests/unit/agent/meta/client_fixture.h"

#include <fcntl.h>
#include <time.h>

#include "lib/log.h"

static bool refused_six_times(void *arg)
{
	return status_of(arg).refused >= 6;
}

static size_t count_lines(const char *path, const char *what)
{
	_cleanup_fclose_ FILE *f = fopen(path, "re");
	char line[1024];
	size_t n = 0;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		assert_null(strstr(line, "first-token"));
		n += strstr(line, what) != NULL;
	}
	return n;
}

static void test_unauthenticated_backs_off_and_logs_once_a_minute(void **state)
{
	char log[96];
	struct test t;
	int fd, saved;

	setup(&t, &(struct fake_options){.refuse_status = UNAUTHENTICATED});
	snprintf(log, sizeof(log), "%s/log", t.dir);
	fd = open(log, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	saved = dup(STDERR_FILENO);
	dup2(fd, STDERR_FILENO);
	begin(&t);
	assert_true(fake_pump(t.server, &t.loop, refused_six_times, &t, WAIT_S));
	dup2(saved, STDERR_FILENO);
	close(saved);
	close(fd);
	/*
	 * With a random factor of one half the waits are 10, 20, 40, then 50: half of the limit of
	 * 100.
	 */
	assert_int_equal(status_of(&t).retry_ms, 50);
	assert_string_equal(status_of(&t).error, "refused: not with this token");
	assert_int_equal(count_lines(log, "refused"), 1);
	unlink(log);
	teardown(&t);
}

static bool three_attempts(void *arg)
{
	return status_of(arg).attempts >= 3;
}

static void test_the_token_is_read_for_each_attempt(void **state)
{
	struct test t;

	setup(&t, NULL);
	unlink(t.token);
	begin(&t);
	assert_true(fake_pump(t.server, &t.loop, three_attempts, &t, WAIT_S));
	assert_int_equal(fake_server_calls(t.server), 0);
	assert_non_null(strstr(status_of(&t).error, "token"));
	write_text(t.token, "second-token");
	assert_string_equal(expect_call(&t, 0)->authorization, "Bearer second-token");
	write_text(t.token, "third-token");
	fake_finish(fake_server_call(t.server, 0), UNAVAILABLE, "");
	assert_string_equal(expect_call(&t, 1)->authorization, "Bearer third-token");
	teardown(&t);
}

static void test_a_newer_token_is_used_before_the_old_one_expires(void **state)
{
	struct fake_call *c;
	struct test t;

	setup(&t, NULL);
	write_token(&t, time(NULL) + 100, 1);
	begin(&t);
	say_all(expect_call(&t, 0), "a");
	expect_ack(&t, 10);
	t.want = uv_hrtime() + 500000000;
	fake_pump(t.server, &t.loop, is_time, &t, 2);
	assert_int_equal(fake_server_calls(t.server), 1); /* the token in the file is not newer */
	write_token(&t, time(NULL) + 3600, 2);
	c = expect_call(&t, 1);
	assert_non_null(strstr(c->authorization, ".s2"));
	assert_hello(c, 7, 10);
	assert_int_equal(status_of(&t).renewals, 1);
	say_welcome(c);
	assert_true(fake_pump(t.server, &t.loop, is_connected, &t, WAIT_S));
	/* A token that is valid for an hour is not replaced. */
	write_token(&t, time(NULL) + 7200, 3);
	t.want = uv_hrtime() + 500000000;
	fake_pump(t.server, &t.loop, is_time, &t, 2);
	assert_int_equal(fake_server_calls(t.server), 2);
	teardown(&t);
}

static void test_a_ca_that_changed_is_used_for_the_next_attempt(void **state)
{
	struct fake_pki old, new;
	struct test t;

	assert_int_equal(fake_pki_make("kiln.example", &old), 0);
	assert_int_equal(fake_pki_make("kiln.example", &new), 0);
	setup(&t, &(struct fake_options){.cert_pem = new.cert_pem, .key_pem = new.key_pem});
	write_text(t.ca, old.ca_pem);
	t.options.insecure = false;
	t.options.ca_file = t.ca;
	t.options.server_name = "kiln.example";
	begin(&t);
	assert_true(fake_pump(t.server, &t.loop, three_attempts, &t, WAIT_S));
	assert_int_equal(fake_server_calls(t.server), 0);
	write_text(t.ca, new.ca_pem);
	say_all(expect_call(&t, 0), "a");
	expect_ack(&t, 10);
	teardown(&t);
	fake_pki_done(&old);
	fake_pki_done(&new);
}

static void test_options_that_cannot_work(void **state)
{
	struct meta_events events = {0};
	struct meta_options o = {.endpoint = "nowhere"};
	struct meta_client *c;
	struct error err;
	uv_loop_t loop;

	uv_loop_init(&loop);
	assert_int_equal(meta_client_new(&o, &events, &loop, &c, &err), -EINVAL);
	o.endpoint = NULL;
	assert_int_equal(meta_client_new(&o, &events, &loop, &c, &err), -EINVAL);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_unauthenticated_backs_off_and_logs_once_a_minute),
	    cmocka_unit_test(test_the_token_is_read_for_each_attempt),
	    cmocka_unit_test(test_a_newer_token_is_used_before_the_old_one_expires),
	    cmocka_unit_test(test_a_ca_that_changed_is_used_for_the_next_attempt),
	    cmocka_unit_test(test_options_that_cannot_work),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
