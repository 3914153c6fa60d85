/* SPDX-License-Identifier: Apache-2.0 */
/* Which samples leave the node, window by window, as pods and policies become known. */
#include "agent/window/identify.h"

#include "lib/metrics.h"
#include "tests/support/test.h"
#include "tests/unit/agent/policy/fake_pods.h"

#define UID "8f4e6a52-3b1c-4d7e-9a60-1f2e3d4c5b6a"

static struct pod_table pods;
static struct policies *p;
static struct window windows[2];
static struct stack stack;
static struct process in_pod, outside;
static uint32_t number, fallback;

static int set_policy(void *arg, uint32_t index, const struct kiln_policy *policy)
{
	return 0;
}

static int set_default(void *arg, uint32_t index)
{
	fallback = index;
	return 0;
}

static int ignore_cgroup(void *arg, uint64_t id, uint32_t index)
{
	return 0;
}

static int ignore_deletion(void *arg, uint64_t id)
{
	return 0;
}

static int ignore_rate(void *arg, uint32_t hz)
{
	return 0;
}

static const struct tracer no_tracers[] = {{}};

static int setup(void **state)
{
	static const struct policy_kernel kernel = {
	    .set_policy = set_policy,
	    .set_default = set_default,
	    .set_cgroup = ignore_cgroup,
	    .delete_cgroup = ignore_deletion,
	    .set_rate = ignore_rate,
	};

	memset(&pods, 0, sizeof(pods));
	memset(&in_pod, 0, sizeof(in_pod));
	memset(&outside, 0, sizeof(outside));
	snprintf(in_pod.info.container.pod_uid, sizeof(in_pod.info.container.pod_uid), UID);
	number = 10;
	fallback = POLICY_OWN;
	for (size_t i = 0; i < 2; i++)
		window_init(&windows[i]);
	window_reset(&windows[0], number, 0);
	return policies_new(&kernel, 20, ~0U, no_tracers, &pods, &p);
}

static int teardown(void **state)
{
	p = policies_free(p);
	for (size_t i = 0; i < 2; i++)
		window_done(&windows[i]);
	return 0;
}

static struct window *current(void)
{
	return &windows[number % 2];
}

static void sample(struct process *process, uint32_t policy)
{
	assert_int_equal(window_add(current(), &(struct window_sample){.stack = &stack,
								       .process = process,
								       .tid = 7,
								       .comm = "main",
								       .policy = policy,
								       .value = 1}),
			 0);
}

/* Closes the window; returns how many of its samples leave the node. */
static int64_t exported(bool last)
{
	struct window *w = current(), *next = &windows[(number + 1) % 2];
	int64_t sum = 0;

	window_reset(next, ++number, 0);
	window_identify(w, next, p, last);
	for (const struct count *c = w->list; c; c = c->next)
		sum += c->samples;
	return sum;
}

static void tell_default(bool enabled)
{
	static struct pod_policy policy;

	policy = (struct pod_policy){.id = 9, .enabled = enabled, .hz = 20};
	pods.fallback = &policy;
	policies_changed(p);
}

static void tell_pod(bool enabled)
{
	pods.policies[0] = (struct pod_policy){.id = 1, .enabled = enabled, .hz = 20};
	pods.n_policies = 1;
	if (!pods.n_pods)
		pods.pods[0].refs = 1; /* the reference of the table */
	pods.pods[0].pod =
	    (struct pod_entry){.uid = UID, .config_hash = "", .ns = "n", .name = "p", .policy = 1};
	pods.n_pods = 1;
	policies_changed(p);
}

static void held_until_the_policy_comes(void **state)
{
	int64_t held = metric_get(M_SAMPLES_WAITED);

	tell_default(true);
	sample(&in_pod, fallback);
	sample(&in_pod, fallback);
	assert_int_equal(exported(false), 0);
	assert_int_equal(exported(false), 0);
	tell_pod(true);
	assert_int_equal(exported(false), 2);
	assert_int_equal(metric_get(M_SAMPLES_WAITED) - held, 4);
}

static void dropped_when_the_policy_is_off(void **state)
{
	int64_t taken_back = metric_get(M_SAMPLES_TAKEN_BACK);

	tell_default(true);
	sample(&in_pod, fallback);
	assert_int_equal(exported(false), 0);
	tell_pod(false);
	assert_int_equal(exported(false), 0);
	assert_int_equal(metric_get(M_SAMPLES_TAKEN_BACK) - taken_back, 1);
}

static void dropped_and_counted_when_no_policy_comes(void **state)
{
	int64_t dropped = metric_get(M_SAMPLES_WITHOUT_POLICY);

	tell_default(true);
	sample(&in_pod, fallback);
	for (int i = 0; i < POLICY_HOLD_WINDOWS; i++) {
		assert_int_equal(exported(false), 0);
		assert_int_equal(metric_get(M_SAMPLES_WITHOUT_POLICY), dropped);
	}
	assert_int_equal(exported(false), 0);
	assert_int_equal(metric_get(M_SAMPLES_WITHOUT_POLICY) - dropped, 1);
	tell_pod(true);
	assert_int_equal(exported(false), 0);
}

static void dropped_at_the_end(void **state)
{
	tell_default(true);
	sample(&in_pod, fallback);
	assert_int_equal(exported(true), 0);
}

/* The table of policies has no room for the pod's policy, or it was refused. */
static void a_pod_without_its_policy_is_not_exported(void **state)
{
	tell_default(true);
	tell_pod(true);
	pods.n_policies = 0;
	policies_changed(p);
	sample(&in_pod, fallback);
	for (int i = 0; i < POLICY_HOLD_WINDOWS + 2; i++)
		assert_int_equal(exported(false), 0);
}

/* A fresh node: no snapshot on disk, and no message from the operator yet. */
static void the_node_itself_waits_for_the_default(void **state)
{
	sample(&outside, POLICY_OWN);
	assert_int_equal(exported(false), 0);
	tell_default(true);
	assert_int_equal(exported(false), 1);
	sample(&outside, fallback);
	assert_int_equal(exported(false), 1);
}

static void the_default_may_be_off(void **state)
{
	sample(&outside, POLICY_OWN);
	assert_int_equal(exported(false), 0);
	tell_default(true);
	sample(&outside, fallback);
	tell_default(false);
	/*
	 * One sample was taken before the default was known, the other under a default that allowed
	 * it.
	 */
	assert_int_equal(exported(false), 1);
}

static void the_default_is_never_told(void **state)
{
	int64_t dropped = metric_get(M_SAMPLES_WITHOUT_POLICY);

	sample(&outside, POLICY_OWN);
	sample(&in_pod, POLICY_OWN);
	for (int i = 0; i <= POLICY_HOLD_WINDOWS; i++)
		assert_int_equal(exported(false), 0);
	assert_int_equal(metric_get(M_SAMPLES_WITHOUT_POLICY) - dropped, 2);
}

static void when_unknown_default_exports_everything(void **state)
{
	policies_export_untold(p);
	sample(&outside, POLICY_OWN);
	sample(&in_pod, POLICY_OWN);
	/* The pod's sample waits one window for the pod's name, as always. */
	assert_int_equal(exported(false), 1);
	assert_int_equal(exported(false), 1);
}

static void without_an_operator_everything_is_exported(void **state)
{
	static const struct policy_kernel kernel = {
	    .set_policy = set_policy,
	    .set_default = set_default,
	    .set_cgroup = ignore_cgroup,
	    .delete_cgroup = ignore_deletion,
	    .set_rate = ignore_rate,
	};

	policies_free(p);
	assert_int_equal(policies_new(&kernel, 20, ~0U, no_tracers, NULL, &p), 0);
	sample(&outside, POLICY_OWN);
	sample(&in_pod, POLICY_OWN);
	assert_int_equal(exported(false), 2);
}

/* The process is gone and its cgroup is unknown: it may have been in a pod that is not profiled. */
static void who_is_gone_is_nowhere_until_its_cgroup_is_told(void **state)
{
	struct process gone = {.key = {.cgroup = 77}, .unplaced = true};

	tell_default(true);
	policies_changed(p);
	sample(&gone, fallback);
	assert_int_equal(exported(false), 0);
	assert_int_equal(exported(false), 0);
	policies_cgroup_made(p, 77, "/system.slice/cron.service");
	assert_int_equal(exported(false), 1);
	/* A cgroup that stays unknown. */
	gone = (struct process){.key = {.cgroup = 78}, .unplaced = true};
	sample(&gone, fallback);
	for (int i = 0; i < 6; i++)
		assert_int_equal(exported(false), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(held_until_the_policy_comes),
	    TEST(dropped_when_the_policy_is_off),
	    TEST(dropped_and_counted_when_no_policy_comes),
	    TEST(dropped_at_the_end),
	    TEST(a_pod_without_its_policy_is_not_exported),
	    TEST(the_node_itself_waits_for_the_default),
	    TEST(the_default_may_be_off),
	    TEST(the_default_is_never_told),
	    TEST(when_unknown_default_exports_everything),
	    TEST(without_an_operator_everything_is_exported),
	    TEST(who_is_gone_is_nowhere_until_its_cgroup_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
