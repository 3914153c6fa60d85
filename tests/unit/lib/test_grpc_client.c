/* SPDX-License-Identifier: Apache-2.0 */
/* Endpoints in every form, and clients that are made and freed without a server. */
#include "lib/grpc_client.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static void test_endpoints(void **state)
{
	static const struct {
		const char *endpoint, *target; /* NULL: refused */
		bool insecure, plaintext;
	} rows[] = {
	    {"localhost:4317", "dns:///localhost:4317", false, false},
	    {"localhost:4317", "dns:///localhost:4317", true, true},
	    {"http://c.example:4317", "dns:///c.example:4317", false, true},
	    {"https://c.example:4317/", "dns:///c.example:4317", true, false},
	    {"[::1]:4317", "dns:///[::1]:4317", true, true},
	    {"dns:///c.example:1", "dns:///c.example:1", false, false},
	    {"dns://8.8.8.8/c.example:1", "dns://8.8.8.8/c.example:1", false, false},
	    {"unix:/run/c.sock", "unix:/run/c.sock", true, true},
	    {"unix:///run/c.sock", "unix:///run/c.sock", false, false},
	    {"", NULL, false, false},
	    {"localhost", NULL, false, false},
	    {":4317", NULL, false, false},
	    {"localhost:", NULL, false, false},
	    {"localhost:0", NULL, false, false},
	    {"localhost:65536", NULL, false, false},
	    {"localhost:http", NULL, false, false},
	    {"::1:4317", NULL, false, false},
	    {"[::1:4317", NULL, false, false},
	    {"::1]:4317", NULL, false, false},
	    {"a b:4317", NULL, false, false},
	    {"http://c.example:4317/v1", NULL, false, false},
	    {"http://c.example", NULL, false, false},
	    {"ftp://c.example:4317", NULL, false, false},
	};
	struct error err;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		_cleanup_free_ char *target = NULL;
		bool plaintext = !rows[i].plaintext;
		int r = grpc_endpoint_parse(rows[i].endpoint, rows[i].insecure, &target, &plaintext,
					    &err);

		if (!rows[i].target) {
			assert_int_equal(r, -EINVAL);
			assert_null(target);
			assert_non_null(strstr(err.message, "endpoint: want host:port"));
			continue;
		}
		assert_int_equal(r, 0);
		assert_string_equal(target, rows[i].target);
		assert_int_equal(plaintext, rows[i].plaintext);
	}
}

static void test_status_names(void **state)
{
	assert_string_equal(rpc_status_name(RPC_OK), "OK");
	assert_string_equal(rpc_status_name(RPC_RESOURCE_EXHAUSTED), "RESOURCE_EXHAUSTED");
	assert_string_equal(rpc_status_name(RPC_UNAUTHENTICATED), "UNAUTHENTICATED");
	assert_string_equal(rpc_status_name(17), "UNKNOWN");
	assert_string_equal(rpc_status_name(-1), "UNKNOWN");
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
	    {{.endpoint = "x:1", .tls = {.min_version = "1.3"}}, "tls.min_version"},
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
	    cmocka_unit_test(test_status_names),
	    cmocka_unit_test(test_free_with_calls_under_way_answers_none_and_leaves_nothing),
	    cmocka_unit_test(test_nobody_there_is_told_apart_from_silence),
	    cmocka_unit_test(test_settings_that_cannot_work),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
