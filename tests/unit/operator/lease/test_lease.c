/* SPDX-License-Identifier: Apache-2.0 */
/* What goes to the server and what is done with its answers. */
#include "operator/lease/lease.h"

#include <cjson/cJSON.h>

#include "tests/support/test.h"
#include "tests/unit/operator/informer/fake_kube.h"

struct world {
	uv_loop_t loop;
	struct lease *lease;
	unsigned int gained, lost, released;
	bool held_when_lost, free_when_gained;
	struct lease_options options;
};

static void on_gained(void *arg)
{
	struct world *w = arg;

	w->gained++;
	assert_true(lease_held(w->lease));
	if (w->free_when_gained)
		w->lease = lease_free(w->lease);
}

static void on_lost(void *arg)
{
	struct world *w = arg;

	w->lost++;
	w->held_when_lost |= lease_held(w->lease);
}

static void on_released(void *arg)
{
	((struct world *)arg)->released++;
}

static int set_up(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	fake_reset();
	assert_int_equal(uv_loop_init(&w->loop), 0);
	w->options = (struct lease_options){.ns = "kiln",
					    .name = "kiln-operator",
					    .identity = "pod-1_uid",
					    .gained = on_gained,
					    .lost = on_lost,
					    .arg = w};
	*state = w;
	return 0;
}

static int tear_down(void **state)
{
	struct world *w = *state;

	lease_free(w->lease);
	uv_run(&w->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&w->loop), 0);
	free(w);
	fake_reset();
	return 0;
}

static void start(struct world *w)
{
	assert_int_equal(lease_new(&w->loop, NULL, &w->options, &w->lease, NULL), 0);
	lease_start(w->lease);
}

/* Fields of a Lease as the server would answer; caller's until the next call. */
static const char *object(const char *version, const char *spec)
{
	static char text[2048];

	snprintf(text, sizeof(text),
		 "{\"apiVersion\":\"coordination.k8s.io/v1\",\"kind\":\"Lease\",\"metadata\":{"
		 "\"name\":\"kiln-operator\",\"namespace\":\"kiln\",\"resourceVersion\":\"%s\","
		 "\"labels\":{\"keep\":\"me\"}},\"spec\":{%s}}",
		 version, spec);
	return text;
}

static void expect_spec(const char *body, const char *holder, int duration, int transitions)
{
	cJSON *o = cJSON_Parse(body);
	const cJSON *spec = cJSON_GetObjectItemCaseSensitive(o, "spec");
	const char *text;

	assert_non_null(o);
	assert_string_equal(
	    cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(spec, "holderIdentity")), holder);
	assert_int_equal(cJSON_GetObjectItemCaseSensitive(spec, "leaseDurationSeconds")->valueint,
			 duration);
	assert_int_equal(cJSON_GetObjectItemCaseSensitive(spec, "leaseTransitions")->valueint,
			 transitions);
	for (int i = 0; i < 2; i++) {
		int year, month, day, hour, minute, second, n = 0;

		text = cJSON_GetStringValue(
		    cJSON_GetObjectItemCaseSensitive(spec, i ? "renewTime" : "acquireTime"));
		assert_non_null(text);
		assert_int_equal(sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d.%*6dZ%n", &year, &month,
					&day, &hour, &minute, &second, &n),
				 6);
		assert_int_equal(n, strlen("2026-01-02T15:04:05.000000Z"));
		assert_int_equal(strlen(text), n);
	}
	cJSON_Delete(o);
}

static void gain(struct world *w)
{
	start(w);
	fake_answer(fake_live(), 404, NULL);
	fake_answer(fake_live(), 201, object("7", "\"holderIdentity\":\"pod-1_uid\""));
	assert_int_equal(w->gained, 1);
	assert_true(lease_held(w->lease));
}

static void test_creates_what_is_not_there(void **state)
{
	struct world *w = *state;
	struct kube_call *call;

	start(w);
	call = fake_live();
	assert_string_equal(call->method, "GET");
	assert_string_equal(call->path, "/apis/coordination.k8s.io/v1/namespaces/kiln/leases/"
					"kiln-operator");
	assert_int_equal(call->request.timeout_ms, 4000);
	assert_true(call->request.unlimited && call->request.no_retry);
	fake_answer(call, 404, NULL);
	call = fake_live();
	assert_string_equal(call->method, "POST");
	assert_string_equal(call->path, "/apis/coordination.k8s.io/v1/namespaces/kiln/leases");
	expect_spec(call->body, "pod-1_uid", 12, 0);
	assert_int_equal(w->gained, 0);
	fake_answer(call, 201, object("1", "\"holderIdentity\":\"pod-1_uid\""));
	assert_int_equal(w->gained, 1);
	assert_string_equal(lease_holder(w->lease), "pod-1_uid");
}

static void test_takes_an_empty_lease_over_what_was_read(void **state)
{
	struct world *w = *state;
	struct kube_call *call;

	start(w);
	fake_answer(fake_live(), 200,
		    object("41", "\"holderIdentity\":\"\",\"leaseTransitions\":6,"
				 "\"leaseDurationSeconds\":1,\"strategy\":\"x\""));
	call = fake_live();
	assert_string_equal(call->method, "PUT");
	expect_spec(call->body, "pod-1_uid", 12, 7);
	assert_non_null(strstr(call->body, "\"resourceVersion\":\"41\""));
	assert_non_null(strstr(call->body, "\"keep\":\"me\"")); /* what is not ours stays */
	assert_non_null(strstr(call->body, "\"strategy\":\"x\""));
	fake_answer(call, 409, NULL);
	call = fake_live();
	assert_string_equal(call->method, "GET");
	assert_int_equal(w->gained, 0);
}

static void test_a_renewal_keeps_the_time_and_count_of_the_acquisition(void **state)
{
	struct world *w = *state;
	struct kube_call *call;

	w->options.retry_ms = 10;
	start(w);
	fake_answer(fake_live(), 200,
		    object("8", "\"holderIdentity\":\"pod-1_uid\",\"leaseTransitions\":3,"
				"\"acquireTime\":\"2001-02-03T04:05:06.000007Z\""));
	call = fake_live();
	expect_spec(call->body, "pod-1_uid", 12, 3);
	assert_non_null(strstr(call->body, "\"acquireTime\":\"2001-02-03T04:05:06.000007Z\""));
	fake_answer(call, 200, call->body);
	/* cJSON keeps the version as we sent it; the server would have made a new one */
	assert_int_equal(w->gained, 1);
	while (fake_idle())
		uv_run(&w->loop, UV_RUN_ONCE);
	call = fake_live();
	assert_string_equal(call->method, "PUT");
	assert_non_null(strstr(call->body, "2001-02-03T04:05:06.000007Z"));
}

static void test_garbage_is_no_answer(void **state)
{
	static const char *const bodies[] = {"",
					     "{",
					     "[]",
					     "null",
					     "{\"metadata\":{}}",
					     "{\"metadata\":{\"resourceVersion\":7}}",
					     "{\"metadata\":{\"resourceVersion\":\"\"}}"};
	struct world *w = *state;

	w->options.retry_ms = 1;
	start(w);
	for (size_t i = 0; i < ARRAY_SIZE(bodies); i++) {
		assert_string_equal(fake_live()->method, "GET");
		fake_answer(fake_live(), 200, bodies[i]);
		while (fake_idle())
			uv_run(&w->loop, UV_RUN_ONCE);
	}
	/* Absurd values of a real Lease are survived, too. */
	fake_answer(fake_live(), 200,
		    object("9", "\"holderIdentity\":null,\"leaseTransitions\":1e300,"
				"\"leaseDurationSeconds\":-7,\"renewTime\":[]"));
	expect_spec(fake_live()->body, "pod-1_uid", 12, 1);
	fake_answer(fake_live(), 500, "x");
	assert_int_equal(w->gained, 0);
}

static void test_release_says_lost_first_and_empties_the_lease(void **state)
{
	struct world *w = *state;
	struct kube_call *call;

	gain(w);
	lease_release(w->lease, on_released, w);
	assert_int_equal(w->lost, 1);
	assert_false(w->held_when_lost);
	assert_int_equal(w->released, 0);
	call = fake_live();
	assert_string_equal(call->method, "PUT");
	expect_spec(call->body, "", 1, 0);
	fake_answer(call, 200, object("9", "\"holderIdentity\":\"\""));
	assert_int_equal(w->released, 1);
	assert_true(fake_idle());
}

static void test_release_of_a_candidate_is_at_once_and_cancels_its_read(void **state)
{
	struct world *w = *state;

	start(w);
	lease_release(w->lease, on_released, w);
	assert_true(fake_calls->cancelled);
	assert_int_equal(w->released, 1);
	assert_int_equal(w->lost, 0);
	assert_int_equal(fake_count(), 1);
}

static void test_release_has_an_end_when_no_answer_comes(void **state)
{
	struct world *w = *state;

	w->options.duration_ms = 200;
	w->options.renew_deadline_ms = 100;
	w->options.retry_ms = 50;
	gain(w);
	lease_release(w->lease, on_released, w);
	uv_run(&w->loop, UV_RUN_DEFAULT); /* 1 s: the shortest request timeout */
	assert_int_equal(w->released, 1);
	assert_true(fake_idle());
}

static void test_a_deadline_that_passes_without_answer_is_told(void **state)
{
	struct world *w = *state;

	w->options.duration_ms = 200;
	w->options.renew_deadline_ms = 100;
	w->options.retry_ms = 20;
	gain(w);
	while (w->lost == 0)
		uv_run(&w->loop, UV_RUN_ONCE);
	assert_false(w->held_when_lost);
	assert_false(lease_held(w->lease));
}

static void test_a_client_that_takes_no_calls_is_tried_again(void **state)
{
	struct world *w = *state;

	w->options.retry_ms = 5;
	fake_refuse = -EBUSY;
	start(w);
	assert_int_equal(fake_count(), 0);
	fake_refuse = 0;
	while (fake_count() == 0)
		uv_run(&w->loop, UV_RUN_ONCE);
	assert_string_equal(fake_live()->method, "GET");
}

static void test_freed_in_its_own_callback(void **state)
{
	struct world *w = *state;

	w->free_when_gained = true;
	start(w);
	fake_answer(fake_live(), 404, NULL);
	fake_answer(fake_live(), 201, object("7", "\"holderIdentity\":\"pod-1_uid\""));
	assert_null(w->lease);
	assert_int_equal(w->gained, 1);
}

static void test_options_that_cannot_work_are_refused(void **state)
{
	struct world *w = *state;
	struct error err = {0};
	char identity[300];

	memset(identity, 'i', sizeof(identity));
	identity[256] = '\0';
	w->options.identity = identity;
	assert_int_equal(lease_new(&w->loop, NULL, &w->options, &w->lease, &err), -EINVAL);
	assert_string_equal(err.message, "lease identity: want 1..255 characters, got 256");
	w->options.identity = "me";
	w->options.duration_ms = 8000;
	assert_int_equal(lease_new(&w->loop, NULL, &w->options, &w->lease, &err), -EINVAL);
	assert_string_equal(err.message, "lease times: want duration > renew deadline > 1.2 * "
					 "retry, got 8000, 8000 and 2000 ms");
	w->options.duration_ms = 12000;
	w->options.retry_ms = 7000;
	assert_int_equal(lease_new(&w->loop, NULL, &w->options, &w->lease, &err), -EINVAL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(test_creates_what_is_not_there),
	    TEST(test_takes_an_empty_lease_over_what_was_read),
	    TEST(test_a_renewal_keeps_the_time_and_count_of_the_acquisition),
	    TEST(test_garbage_is_no_answer),
	    TEST(test_release_says_lost_first_and_empties_the_lease),
	    TEST(test_release_of_a_candidate_is_at_once_and_cancels_its_read),
	    TEST(test_release_has_an_end_when_no_answer_comes),
	    TEST(test_a_deadline_that_passes_without_answer_is_told),
	    TEST(test_a_client_that_takes_no_calls_is_tried_again),
	    TEST(test_freed_in_its_own_callback),
	    TEST(test_options_that_cannot_work_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
