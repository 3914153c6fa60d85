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

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_a_get_says_who_we_are_over_http_2),
	    cmocka_unit_test(test_a_stream_comes_in_pieces_while_it_goes_on),
	    cmocka_unit_test(test_bodies_and_methods_arrive_as_given),
	};

	return cmocka_run_group_tests(tests, fake_start, fake_stop);
}
