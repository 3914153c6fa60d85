/* SPDX-License-Identifier: Apache-2.0 */
/* Requests and streams as they should go: what the server sees, what comes back, on how many
 * connections. */
#include "harness.h"

static void test_a_get_says_who_we_are_over_http_2(void **state)
{
	struct got g = {0};
	struct world w;
	cJSON *echo;

	world_init(&w);
	w.credentials.token = (char *)"s3cret";
	world_connect(&w, NULL);
	get(&w, "/api/v1/pods?limit=500&continue=a%2Fb%3D", &g);
	echo = echoed(&g);
	assert_string_equal(member_text(echo, "proto"), "HTTP/2.0");
	assert_string_equal(member_text(echo, "method"), "GET");
	assert_string_equal(member_text(echo, "uri"), "/api/v1/pods?limit=500&continue=a%2Fb%3D");
	assert_string_equal(header_text(echo, "User-Agent"), "kiln-test/1");
	assert_string_equal(header_text(echo, "Accept"), "application/json");
	assert_string_equal(header_text(echo, "Authorization"), "Bearer s3cret");
	assert_string_equal(header_text(echo, "Accept-Encoding"), "");
	assert_string_equal(g.type, "application/json");
	assert_string_equal(g.message, "");
	cJSON_Delete(echo);
	got_done(&g);
	world_done(&w);
}

static void test_a_stream_comes_in_pieces_while_it_goes_on(void **state)
{
	struct got g = {0};
	struct world w;

	world_init(&w);
	world_connect(&w, NULL);
	get_stream(&w, "/stream?n=5&gap=30", 0, &g);
	assert_int_equal(g.status, 200);
	assert_null(g.body);
	assert_string_equal(g.stream, "line 0\nline 1\nline 2\nline 3\nline 4\n");
	assert_true(g.pieces >= 4);
	assert_string_equal(g.type, "application/json;stream=watch");
	got_done(&g);
	world_done(&w);
}

static void test_bodies_and_methods_arrive_as_given(void **state)
{
	static const char *const methods[] = {"POST", "PUT", "PATCH", "DELETE"};
	struct world w;
	size_t i;

	world_init(&w);
	world_connect(&w, NULL);
	for (i = 0; i < ARRAY_SIZE(methods); i++) {
		struct got g = {0};
		cJSON *echo;

		ask(&w,
		    (struct kube_request){.method = methods[i],
					  .path = "/x",
					  .content_type = "application/apply-patch+yaml",
					  .body = "{\"a\":1}",
					  .len = 7},
		    &g);
		echo = echoed(&g);
		assert_string_equal(member_text(echo, "method"), methods[i]);
		assert_string_equal(member_text(echo, "body"), "{\"a\":1}");
		assert_string_equal(header_text(echo, "Content-Type"),
				    "application/apply-patch+yaml");
		assert_string_equal(header_text(echo, "Expect"), "");
		cJSON_Delete(echo);
		got_done(&g);
	}
	world_done(&w);
}

static void test_calls_share_one_connection(void **state)
{
	long before;
	struct got g = {0}, many[30] = {{0}}, watch = {0};
	struct kube_call *stream;
	struct kube_request r = {.method = "GET", .path = "/x", .done = on_answer};
	struct world w;
	size_t i;

	world_init(&w);
	world_connect(&w, NULL);
	before = fake_tell("accepted");
	for (i = 0; i < 20; i++) {
		get(&w, "/x", &g);
		assert_int_equal(g.status, 200);
		got_done(&g);
	}
	/* A watch goes on, many others at once beside it. */
	assert_int_equal(kube_call(w.client,
				   &(struct kube_request){.method = "GET",
							  .path = "/stream?n=1&end=hang",
							  .data = on_data,
							  .done = on_answer,
							  .arg = &watch},
				   &stream),
			 0);
	for (i = 0; i < ARRAY_SIZE(many); i++) {
		r.arg = &many[i];
		assert_int_equal(kube_call(w.client, &r, NULL), 0);
	}
	for (i = 0; i < ARRAY_SIZE(many); i++) {
		world_run_until(&w, &many[i].done);
		assert_int_equal(many[i].status, 200);
		got_done(&many[i]);
	}
	assert_false(watch.done);
	assert_int_equal(fake_tell("accepted") - before, 1);
	kube_cancel(stream);
	got_done(&watch);
	world_done(&w);
}

static void test_http_1_connections_are_kept_too(void **state)
{
	struct got g = {0};
	struct world w;
	long before = fake_tell("accepted");
	cJSON *echo;
	int i;

	world_init(&w);
	snprintf(w.server, sizeof(w.server), "https://127.0.0.1:%d", fake.http1_port);
	world_connect(&w, NULL);
	for (i = 0; i < 5; i++) {
		get(&w, "/x", &g);
		echo = echoed(&g);
		assert_string_equal(member_text(echo, "proto"), "HTTP/1.1");
		cJSON_Delete(echo);
		got_done(&g);
	}
	assert_int_equal(fake_tell("accepted") - before, 1);
	world_done(&w);
}

static void test_compression_only_when_asked_for(void **state)
{
	static const struct {
		bool gzip, never;
		const char *start;
	} rows[] = {{false, false, "plain "}, {true, false, "packed "}, {true, true, "plain "}};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct got g = {0};
		struct world w;

		world_init(&w);
		w.credentials.no_compression = rows[i].never;
		world_connect(&w, &(struct kube_client_options){.gzip = rows[i].gzip});
		get(&w, "/gzip", &g);
		assert_int_equal(g.status, 200);
		assert_true(has_prefix(g.body, rows[i].start));
		got_done(&g);
		world_done(&w);
	}
}

static void test_addresses_of_version_6_and_plain_http(void **state)
{
	struct got g = {0};
	struct world w;
	cJSON *echo;
	char host[64];

	world_init(&w);
	snprintf(w.server, sizeof(w.server), "https://[::1]:%d", fake.port);
	world_connect(&w, NULL);
	get(&w, "/x", &g);
	if (g.status == 0 && strstr(g.message, "connect")) {
		world_done(&w);
		skip(); /* this machine has no ::1 */
	}
	echo = echoed(&g);
	snprintf(host, sizeof(host), "[::1]:%d", fake.port);
	assert_string_equal(member_text(echo, "host"), host);
	cJSON_Delete(echo);
	got_done(&g);
	world_done(&w);

	world_init(&w);
	snprintf(w.server, sizeof(w.server), "http://127.0.0.1:%d/behind/rancher", fake.plain_port);
	world_connect(&w, NULL);
	get(&w, "/x", &g);
	echo = echoed(&g);
	assert_string_equal(member_text(echo, "uri"), "/behind/rancher/x");
	cJSON_Delete(echo);
	got_done(&g);
	world_done(&w);
}

static void test_proxies_of_the_kubeconfig_and_of_the_environment(void **state)
{
	char proxy[64];
	struct got g = {0};
	struct world w;
	long before = fake_tell("tunnels");
	int i;

	snprintf(proxy, sizeof(proxy), "http://127.0.0.1:%d", fake.proxy_port);
	for (i = 0; i < 3; i++) {
		world_init(&w);
		if (i == 0)
			w.credentials.proxy_url = proxy;
		else
			setenv("HTTPS_PROXY", proxy, 1);
		if (i != 1) /* counts for the environment's proxy only */
			setenv("NO_PROXY", "127.0.0.0/8", 1);
		world_connect(&w, NULL);
		get(&w, "/x", &g);
		assert_int_equal(g.status, 200);
		got_done(&g);
		world_done(&w);
		unsetenv("HTTPS_PROXY");
		unsetenv("NO_PROXY");
	}
	assert_int_equal(fake_tell("tunnels") - before, 2);
}

/* Which hosts go without the proxy is said of the host, and not of its certificate's name. */
static void test_no_proxy_is_for_the_host_that_is_connected_to(void **state)
{
	static const struct {
		const char *list;
		long tunnels;
	} cases[] = {{"127.0.0.1", 0}, {"localhost", 1}, {"LOCALHOST, 127.0.0.0/8", 0}};
	char proxy[64];
	struct got g = {0};

	snprintf(proxy, sizeof(proxy), "http://127.0.0.1:%d", fake.proxy_port);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		long before = fake_tell("tunnels");
		struct world w;

		world_init(&w);
		w.credentials.server_name = (char *)"localhost";
		setenv("HTTPS_PROXY", proxy, 1);
		setenv(i ? "NO_PROXY" : "no_proxy", cases[i].list, 1);
		world_connect(&w, NULL);
		get(&w, "/x", &g);
		assert_int_equal(g.status, 200);
		got_done(&g);
		world_done(&w);
		unsetenv("HTTPS_PROXY");
		unsetenv("NO_PROXY");
		unsetenv("no_proxy");
		assert_int_equal(fake_tell("tunnels") - before, cases[i].tunnels);
	}
}

struct results {
	int calls, last;
	char method[16];
};

static void on_result(void *arg, const char *method, int status)
{
	struct results *r = arg;

	r->calls++;
	r->last = status;
	snprintf(r->method, sizeof(r->method), "%s", method);
}

static void test_results_are_counted_by_method_and_status(void **state)
{
	struct results results = {0};
	struct got g = {0};
	struct world w;

	world_init(&w);
	world_connect(&w, NULL);
	kube_client_on_result(w.client, on_result, &results);
	ask(&w, (struct kube_request){.method = "DELETE", .path = "/status?code=404"}, &g);
	assert_int_equal(results.calls, 1);
	assert_int_equal(results.last, 404);
	assert_string_equal(results.method, "DELETE");
	got_done(&g);
	get(&w, "/half", &g);
	assert_int_equal(results.calls, 2);
	assert_int_equal(results.last, 0);
	got_done(&g);
	world_done(&w);
}

static void test_the_bucket_holds_back_but_not_what_is_unlimited(void **state)
{
	struct got first = {0}, held = {0}, free_one = {0};
	struct kube_request r = {.method = "GET", .path = "/x", .done = on_answer};
	struct kube_call *call;
	struct world w;

	world_init(&w);
	world_connect(&w, &(struct kube_client_options){.qps = 0.001, .burst = 1});
	get(&w, "/x", &first);
	r.arg = &held;
	assert_int_equal(kube_call(w.client, &r, &call), 0);
	r.arg = &free_one;
	r.unlimited = true;
	assert_int_equal(kube_call(w.client, &r, NULL), 0);
	world_run_until(&w, &free_one.done);
	world_run_for(&w, 50);
	assert_false(held.done);
	kube_cancel(call);
	got_done(&first);
	got_done(&free_one);
	world_done(&w);
	assert_false(held.done);

	/* 20 calls of a bucket that fills with 200 a second: all pass, and not at once. */
	world_init(&w);
	world_connect(&w, &(struct kube_client_options){.qps = 200, .burst = 1});
	for (int i = 0; i < 20; i++) {
		get(&w, "/x", &first);
		assert_int_equal(first.status, 200);
		got_done(&first);
	}
	world_done(&w);
}

static void test_no_more_calls_than_the_cap(void **state)
{
	struct kube_request r = {.method = "GET", .path = "/x"};
	struct world w;
	int i;

	world_init(&w);
	world_connect(&w, NULL);
	for (i = 0; i < KUBE_CALLS_MAX; i++)
		assert_int_equal(kube_call(w.client, &r, NULL), 0);
	assert_int_equal(kube_call(w.client, &r, NULL), -EBUSY);
	world_done(&w);
}

static void test_errors_are_words_in_both_encodings(void **state)
{
	static const struct {
		const char *path, *accept;
		int status;
		const char *message, *reason;
	} rows[] = {
	    {"/status?code=404&reason=NotFound&message=pods+%22a%22+not+found", NULL, 404,
	     "pods \"a\" not found", "NotFound"},
	    {"/status?code=409&reason=Conflict&message=stale", KUBE_PROTOBUF_OR_JSON, 409, "stale",
	     "Conflict"},
	    {"/status?code=410&reason=Expired&message=two%0Alines", KUBE_PROTOBUF_OR_JSON, 410,
	     "two?lines", "Expired"},
	    {"/status?code=503&text=no+backend%0Amore", NULL, 503, "no backend", ""},
	    {"/status?code=502&text=%3Chtml%3E", NULL, 502, "the API server answered HTTP 502", ""},
	    {"/status?code=301&reason=&message=", NULL, 301, "the API server answered HTTP 301",
	     ""},
	};
	struct world w;
	size_t i;

	world_init(&w);
	world_connect(&w, NULL);
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct got g = {0};

		/* Streams give errors as others do. */
		ask(&w,
		    (struct kube_request){.method = "GET",
					  .path = rows[i].path,
					  .accept = rows[i].accept,
					  .data = i % 2 ? on_data : NULL},
		    &g);
		assert_int_equal(g.status, rows[i].status);
		assert_string_equal(g.message, rows[i].message);
		assert_string_equal(g.reason, rows[i].reason);
		assert_null(g.stream);
		got_done(&g);
	}
	world_done(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_a_get_says_who_we_are_over_http_2),
	    cmocka_unit_test(test_a_stream_comes_in_pieces_while_it_goes_on),
	    cmocka_unit_test(test_bodies_and_methods_arrive_as_given),
	    cmocka_unit_test(test_calls_share_one_connection),
	    cmocka_unit_test(test_http_1_connections_are_kept_too),
	    cmocka_unit_test(test_compression_only_when_asked_for),
	    cmocka_unit_test(test_addresses_of_version_6_and_plain_http),
	    cmocka_unit_test(test_proxies_of_the_kubeconfig_and_of_the_environment),
	    cmocka_unit_test(test_no_proxy_is_for_the_host_that_is_connected_to),
	    cmocka_unit_test(test_results_are_counted_by_method_and_status),
	    cmocka_unit_test(test_the_bucket_holds_back_but_not_what_is_unlimited),
	    cmocka_unit_test(test_no_more_calls_than_the_cap),
	    cmocka_unit_test(test_errors_are_words_in_both_encodings),
	};

	return cmocka_run_group_tests(tests, fake_start, fake_stop);
}
