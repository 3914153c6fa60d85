/* SPDX-License-Identifier: Apache-2.0 */
/* Endpoints in every form, and clients that are made and freed without a server. */
#include "lib/grpc_client.h"

#include "lib/grpc_target.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static void test_endpoints(void **state)
{
	static const struct {
		const char *endpoint, *host; /* neither host nor path: refused */
		uint16_t port;
		bool insecure, plaintext;
		const char *authority, *path;
	} rows[] = {
	    {"localhost:4317", "localhost", 4317, false, false, "localhost:4317", NULL},
	    {"localhost:4317", "localhost", 4317, true, true, "localhost:4317", NULL},
	    {"http://c.example:4317", "c.example", 4317, false, true, "c.example:4317", NULL},
	    {"https://c.example:4317/", "c.example", 4317, true, false, "c.example:4317", NULL},
	    {"[::1]:4317", "::1", 4317, true, true, "[::1]:4317", NULL},
	    {"dns:///c.example:1", "c.example", 1, false, false, "c.example:1", NULL},
	    {"unix:/run/c.sock", NULL, 0, true, true, "localhost", "/run/c.sock"},
	    {"unix:c.sock", NULL, 0, false, false, "localhost", "c.sock"},
	    {"unix:///run/c.sock", NULL, 0, false, false, "localhost", "/run/c.sock"},
	    {.endpoint = ""},
	    {.endpoint = "localhost"},
	    {.endpoint = ":4317"},
	    {.endpoint = "localhost:"},
	    {.endpoint = "localhost:0"},
	    {.endpoint = "localhost:65536"},
	    {.endpoint = "localhost:http"},
	    {.endpoint = "::1:4317"},
	    {.endpoint = "[::1:4317"},
	    {.endpoint = "::1]:4317"},
	    {.endpoint = "a b:4317"},
	    {.endpoint = "a/b:4317"},
	    {.endpoint = "http://c.example:4317/v1"},
	    {.endpoint = "http://c.example"},
	    {.endpoint = "http://user:password@c.example:4317"},
	    {.endpoint = "ftp://c.example:4317"},
	    {.endpoint = "dns://8.8.8.8/c.example:1"},
	    {.endpoint = "unix:"},
	    {.endpoint = "unix:///"
			 "0123456789012345678901234567890123456789012345678901234567890123456789"
			 "0123456789012345678901234567890123456789"},
	};
	struct error err;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct grpc_target t = {0};
		int r = grpc_target_parse(rows[i].endpoint, rows[i].insecure, &t, &err);

		if (!rows[i].host && !rows[i].path) {
			assert_int_equal(r, -EINVAL);
			assert_null(t.host);
			assert_true(has_prefix(err.message, "endpoint: "));
			continue;
		}
		assert_int_equal(r, 0);
		assert_int_equal(t.port, rows[i].port);
		assert_int_equal(t.plaintext, rows[i].plaintext);
		assert_string_equal(t.authority, rows[i].authority);
		if (rows[i].host)
			assert_string_equal(t.host, rows[i].host);
		else
			assert_string_equal(t.path, rows[i].path);
		grpc_target_done(&t);
	}
}

static void never(const struct grpc_answer *answer, void *arg)
{
	fail_msg("a call of a freed client was answered");
}

static void test_free_with_calls_under_way_answers_none_and_leaves_nothing(void **state)
{
	struct grpc_client_options options = {.endpoint = "127.0.0.1:1", .tls = {.insecure = true}};
	struct grpc_client *client;
	struct grpc_unary *call;
	struct error err;
	uv_loop_t loop;
	int i;

	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(grpc_client_new(&options, &loop, &client, &err), 0);
	for (i = 0; i < 5; i++)
		assert_int_equal(
		    grpc_client_call(client, "/x/Y", "abc", 3, false, 60000, never, NULL, &call),
		    0);
	assert_null(grpc_client_free(client));
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
}

struct seen {
	int calls, status;
	bool connected;
};

static void on_answer(const struct grpc_answer *answer, void *arg)
{
	struct seen *seen = arg;

	seen->calls++;
	seen->status = answer->status;
	seen->connected = answer->connected;
}

static void test_nobody_there_is_told_apart_from_silence(void **state)
{
	struct grpc_client_options options = {.endpoint = "127.0.0.1:1", .tls = {.insecure = true}};
	struct grpc_client *client;
	struct grpc_unary *call;
	struct seen seen = {0};
	struct error err;
	uv_loop_t loop;

	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(grpc_client_new(&options, &loop, &client, &err), 0);
	assert_int_equal(
	    grpc_client_call(client, "/x/Y", "abc", 3, false, 30000, on_answer, &seen, &call), 0);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(seen.calls, 1);
	assert_int_equal(seen.status, RPC_UNAVAILABLE);
	assert_false(seen.connected);
	grpc_client_free(client);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
}

static void test_settings_that_cannot_work(void **state)
{
	static const struct {
		struct grpc_client_options options;
		const char *words;
	} rows[] = {
	    {{.endpoint = "x"}, "endpoint: want host:port"},
	    {{.endpoint = "x:1", .tls = {.min_version = "3"}}, "tls.min_version: want"},
	    {{.endpoint = "x:1", .tls = {.ca_file = "/nowhere"}}, "tls.ca_file: /nowhere"},
	    {{.endpoint = "x:1", .tls = {.cert_file = "/dev/null"}}, "come together"},
	    {{.endpoint = "x:1", .tls = {.ca_file = "/dev/null"}}, "the file is empty"},
	};
	struct grpc_client *client = NULL;
	struct error err;
	uv_loop_t loop;
	size_t i;

	assert_int_equal(uv_loop_init(&loop), 0);
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_true(grpc_client_new(&rows[i].options, &loop, &client, &err) < 0);
		assert_null(client);
		assert_non_null(strstr(err.message, rows[i].words));
	}
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_endpoints),
	    cmocka_unit_test(test_free_with_calls_under_way_answers_none_and_leaves_nothing),
	    cmocka_unit_test(test_nobody_there_is_told_apart_from_silence),
	    cmocka_unit_test(test_settings_that_cannot_work),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
