/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which Secrets are read and how often, which of their contents count, and that their bytes are
 * wiped.
 */
#include "operator/secrets/secrets.h"

#include "operator/kube/write.h"
#include "tests/support/test.h"

enum { CALLS_MAX = 2 * SECRETS_MAX, DEADLINE_MS = 120000, REFRESH_MS = 10 };

/* ---- the API server -------------------------------------------------------------------------- */

struct kube_call {
	char ns[64], name[64];
	kube_done_fn *done;
	void *arg;
	bool over, cancelled;
};

static struct {
	uv_loop_t loop;
	uv_timer_t alarm;
	struct secrets *secrets;
	struct kube_call calls[CALLS_MAX];
	size_t n_calls;
	bool refuses, timed_out;
	unsigned int changes;
	char changed[160];
} rig;

int kube_get_recent(struct kube_client *client, enum kube_kind kind, const char *ns,
		    const char *name, kube_done_fn *done, void *arg, struct kube_call **ret)
{
	struct kube_call *call = &rig.calls[rig.n_calls];

	assert_int_equal(kind, KUBE_SECRETS);
	if (rig.refuses)
		return -ENOMEM;
	assert_true(rig.n_calls++ < CALLS_MAX);
	*call = (struct kube_call){.done = done, .arg = arg};
	snprintf(call->ns, sizeof(call->ns), "%s", ns);
	snprintf(call->name, sizeof(call->name), "%s", name);
	*ret = call;
	return 0;
}

void kube_cancel(struct kube_call *call)
{
	assert_false(call->over);
	call->over = call->cancelled = true;
}

static void answer(struct kube_call *call, int status, const char *body)
{
	_cleanup_free_ char *copy = strdup(body);
	size_t len = strlen(body);
	const struct kube_answer a = {.status = status,
				      .message = "",
				      .reason = "",
				      .content_type = "application/json",
				      .body = (const uint8_t *)copy,
				      .len = len};

	assert_false(call->over);
	call->over = true;
	call->done(call->arg, &a);
	/* The client must have wiped the answer in its buffer. */
	for (size_t i = 0; status == 200 && i < len; i++)
		assert_int_equal(copy[i], 0);
}

static struct kube_call *newest(void)
{
	assert_true(rig.n_calls > 0);
	return &rig.calls[rig.n_calls - 1];
}

static void on_changed(void *arg, const char *ns, const char *name)
{
	rig.changes++;
	snprintf(rig.changed, sizeof(rig.changed), "%s/%s", ns, name);
}

static void on_alarm(uv_timer_t *timer)
{
	rig.timed_out = true;
}

static int setup_with(uint64_t grace_ms, uint64_t settle_ms)
{
	const struct secrets_options o = {.loop = &rig.loop,
					  .refresh_ms = REFRESH_MS,
					  .grace_ms = grace_ms,
					  .settle_ms = settle_ms,
					  .changed = on_changed};

	memset(&rig, 0, sizeof(rig));
	uv_loop_init(&rig.loop);
	uv_timer_init(&rig.loop, &rig.alarm);
	return secrets_new(&o, &rig.secrets);
}

static int setup(void **state)
{
	return setup_with(0, 0);
}

static int setup_short_grace(void **state)
{
	return setup_with(1, 0);
}

static int setup_settling(void **state)
{
	return setup_with(0, DEADLINE_MS);
}

static int teardown(void **state)
{
	secrets_free(rig.secrets);
	uv_close((uv_handle_t *)&rig.alarm, NULL);
	uv_run(&rig.loop, UV_RUN_DEFAULT);
	return uv_loop_close(&rig.loop);
}

/* Runs the loop until there were N requests. */
static void run_until_asked(size_t n)
{
	uv_update_time(&rig.loop);
	uv_timer_start(&rig.alarm, on_alarm, DEADLINE_MS, 0);
	while (rig.n_calls < n && !rig.timed_out)
		uv_run(&rig.loop, UV_RUN_ONCE);
	uv_timer_stop(&rig.alarm);
	assert_int_equal(rig.n_calls, n);
}

static struct secret *use(const char *ns, const char *name)
{
	struct secret *s;

	assert_int_equal(secrets_use(rig.secrets, ns, name, &s), 0);
	return s;
}

#define GOOD "{\"data\":{\"token\":\"aHVzaA==\",\"other\":\"eA==\"}}" /* hush, x */

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_values_come_with_the_answer(void **state)
{
	struct secret *s = use("shop", "backend");

	assert_string_equal(newest()->ns, "shop");
	assert_string_equal(newest()->name, "backend");
	assert_int_equal(secret_state(s), SECRET_PENDING);
	assert_null(secret_get(s, "token"));
	answer(newest(), 200, GOOD);
	assert_int_equal(rig.changes, 1);
	assert_string_equal(rig.changed, "shop/backend");
	assert_int_equal(secret_state(s), SECRET_FOUND);
	assert_string_equal(secret_get(s, "token"), "hush");
	assert_string_equal(secret_get(s, "other"), "x");
	assert_null(secret_get(s, "tok"));
	secrets_leave(rig.secrets, s);
}

static void test_what_is_no_text_is_not_there(void **state)
{
	static const struct {
		const char *base64, *text; /* NULL: not there */
	} rows[] = {
	    {"", ""},
	    {"aHVzaA==", "hush"},
	    {"aHVzaDE=", "hush1"},
	    {"aHVzaDEy", "hush12"},
	    {"aHVzaA", NULL},
	    {"!!!!", NULL},
	    {"YQBi", NULL} /* a NUL b */,
	    {"====", NULL},
	    {"aHV zaA=", NULL},
	};
	struct secret *s = use("shop", "backend");
	char body[128];

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		snprintf(body, sizeof(body), "{\"data\":{\"k\":\"%s\",\"n\":7}}", rows[i].base64);
		if (i)
			run_until_asked(i + 1);
		answer(newest(), 200, body);
		if (!rows[i].text && secret_get(s, "k"))
			fail_msg("%s is taken", rows[i].base64);
		if (rows[i].text)
			assert_string_equal(secret_get(s, "k"), rows[i].text);
		assert_null(secret_get(s, "n"));
		assert_int_equal(secret_state(s), SECRET_FOUND);
	}
	secrets_leave(rig.secrets, s);
}

static void test_a_value_that_is_too_long_is_not_there(void **state)
{
	size_t n = SECRET_VALUE_MAX / 3 * 4;
	struct secret *s = use("shop", "backend");
	_cleanup_free_ char *body = NULL, *value = malloc(n + 5);

	memset(value, 'Y', n + 4);
	value[n + 4] = 0;
	assert_true(asprintf(&body, "{\"data\":{\"a\":\"%s\",\"b\":\"%s\"}}", value, value + 4) >
		    0);
	answer(newest(), 200, body);
	assert_null(secret_get(s, "a"));
	assert_int_equal(strlen(secret_get(s, "b")), SECRET_VALUE_MAX / 3 * 3);
	secrets_leave(rig.secrets, s);
}

static void test_it_is_read_again_and_only_news_are_told(void **state)
{
	struct secret *s = use("shop", "backend");

	answer(newest(), 200, GOOD);
	run_until_asked(2);
	answer(newest(), 200, GOOD);
	assert_int_equal(rig.changes, 1);
	run_until_asked(3);
	answer(newest(), 200, "{\"data\":{\"token\":\"aHVzaDE=\",\"other\":\"eA==\"}}");
	assert_int_equal(rig.changes, 2);
	assert_string_equal(secret_get(s, "token"), "hush1");
	run_until_asked(4);
	answer(newest(), 200, "{\"data\":{\"token\":\"aHVzaDE=\"}}");
	assert_int_equal(rig.changes, 3);
	assert_null(secret_get(s, "other"));
	secrets_leave(rig.secrets, s);
}

static void test_without_an_answer_the_last_one_counts(void **state)
{
	static const struct {
		int status;
		const char *body;
	} bad[] = {{200, "{\"data\":"}, {0, ""}};
	struct secret *s = use("shop", "backend");

	answer(newest(), 200, GOOD);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		run_until_asked(rig.n_calls + 1);
		answer(newest(), bad[i].status, bad[i].body);
		assert_string_equal(secret_get(s, "token"), "hush");
		assert_int_equal(secret_state(s), SECRET_FOUND);
	}
	assert_int_equal(rig.changes, 1);
	run_until_asked(rig.n_calls + 1);
	secrets_leave(rig.secrets, s);
}

static void test_one_that_goes_loses_its_values_at_once(void **state)
{
	static const struct {
		int status;
		enum secret_state state;
	} rows[] = {{404, SECRET_MISSING}};
	struct secret *s = use("shop", "backend");

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		rig.changes = 0;
		answer(newest(), 200, GOOD);
		assert_int_equal(rig.changes, 1);
		run_until_asked(rig.n_calls + 1);
		answer(newest(), rows[i].status, "{}");
		assert_int_equal(rig.changes, 2);
		assert_int_equal(secret_state(s), rows[i].state);
		assert_null(secret_get(s, "token"));
		run_until_asked(rig.n_calls + 1);
	}
	secrets_leave(rig.secrets, s);
}

/* An API server that restarts refuses for a while, in turns with worse. */
static void test_a_storm_of_refusals_changes_nothing(void **state)
{
	static const int storm[] = {401, 403, 500, 401, 403};
	struct secret *s = use("shop", "backend");

	answer(newest(), 200, GOOD);
	for (size_t i = 0; i < ARRAY_SIZE(storm); i++) {
		run_until_asked(rig.n_calls + 1);
		answer(newest(), storm[i], "{}");
		assert_string_equal(secret_get(s, "token"), "hush");
		assert_int_equal(secret_state(s), SECRET_FOUND);
	}
	run_until_asked(rig.n_calls + 1);
	answer(newest(), 200, GOOD);
	assert_int_equal(rig.changes, 1);
	run_until_asked(rig.n_calls + 1);
	secrets_leave(rig.secrets, s);
}

static void test_one_that_is_refused_for_long_loses_its_values(void **state)
{
	struct secret *s = use("shop", "backend");

	answer(newest(), 200, GOOD);
	run_until_asked(2);
	answer(newest(), 403, "{}");
	assert_string_equal(secret_get(s, "token"), "hush");
	run_until_asked(3);
	answer(newest(), 401, "{}");
	assert_int_equal(secret_state(s), SECRET_FORBIDDEN);
	assert_null(secret_get(s, "token"));
	assert_int_equal(rig.changes, 2);
	run_until_asked(4);
	answer(newest(), 200, GOOD);
	assert_string_equal(secret_get(s, "token"), "hush");
	secrets_leave(rig.secrets, s);
}

static void test_a_right_to_read_may_come_a_moment_later(void **state)
{
	struct secret *s = use("kiln", "backend");

	answer(newest(), 403, "{}");
	assert_int_equal(secret_state(s), SECRET_PENDING);
	assert_int_equal(rig.changes, 0);
	run_until_asked(2);
	answer(newest(), 200, GOOD);
	assert_string_equal(secret_get(s, "token"), "hush");
	secrets_leave(rig.secrets, s);
}

static void test_users_share_one_and_the_last_ends_it(void **state)
{
	struct secret *a = use("shop", "backend"), *b = use("shop", "backend"),
		      *c = use("team", "backend");

	assert_ptr_equal(a, b);
	assert_ptr_not_equal(a, c);
	assert_int_equal(rig.n_calls, 2);
	assert_int_equal(secrets_count(rig.secrets), 2);
	secrets_leave(rig.secrets, a);
	assert_false(rig.calls[0].cancelled);
	secrets_leave(rig.secrets, b);
	assert_true(rig.calls[0].cancelled);
	assert_int_equal(secrets_count(rig.secrets), 1);
	secrets_leave(rig.secrets, c);
	secrets_leave(rig.secrets, NULL);
	assert_int_equal(secrets_count(rig.secrets), 0);
}

static void test_no_more_than_the_cap(void **state)
{
	static struct secret *all[SECRETS_MAX];
	struct secret *one = NULL;
	char name[400];

	for (size_t i = 0; i < SECRETS_MAX; i++) {
		snprintf(name, sizeof(name), "s%zu", i);
		all[i] = use("shop", name);
	}
	assert_int_equal(secrets_use(rig.secrets, "shop", "more", &one), -ENOSPC);
	assert_ptr_equal(use("shop", "s0"), all[0]);
	secrets_leave(rig.secrets, all[0]);
	for (size_t i = 0; i < SECRETS_MAX; i++)
		secrets_leave(rig.secrets, all[i]);
	memset(name, 'x', sizeof(name));
	name[sizeof(name) - 1] = 0;
	assert_int_equal(secrets_use(rig.secrets, "shop", name, &one), -ENOSPC);
	assert_null(one);
}

static void test_a_client_that_refuses_is_asked_again(void **state)
{
	struct secret *s;

	rig.refuses = true;
	s = use("shop", "backend");
	assert_int_equal(secret_state(s), SECRET_PENDING);
	rig.refuses = false;
	run_until_asked(1);
	answer(newest(), 200, GOOD);
	assert_string_equal(secret_get(s, "token"), "hush");
	secrets_leave(rig.secrets, s);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    T(test_values_come_with_the_answer),
	    T(test_what_is_no_text_is_not_there),
	    T(test_a_value_that_is_too_long_is_not_there),
	    T(test_it_is_read_again_and_only_news_are_told),
	    T(test_without_an_answer_the_last_one_counts),
	    T(test_one_that_goes_loses_its_values_at_once),
	    T(test_a_storm_of_refusals_changes_nothing),
	    cmocka_unit_test_setup_teardown(test_one_that_is_refused_for_long_loses_its_values,
					    setup_short_grace, teardown),
	    cmocka_unit_test_setup_teardown(test_a_right_to_read_may_come_a_moment_later,
					    setup_settling, teardown),
	    T(test_users_share_one_and_the_last_ends_it),
	    T(test_no_more_than_the_cap),
	    T(test_a_client_that_refuses_is_asked_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
