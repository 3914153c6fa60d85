/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many configs in one namespace, and the limits. How long a pod takes is printed, not judged.
 */
#include <time.h>

#include "operator/policy/policy_index.h"
#include "tests/unit/operator/policy/support.h"

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void measure(struct policy_set *set, const char *what, const char *labels)
{
	enum { PODS = 150000 };
	const struct effective_policy *p;
	struct pod pod;
	double start;

	pod_init(&pod, "prod", labels, "kubernetes.io/metadata.name=prod,team=a", NULL);
	start = now();
	for (int i = 0; i < PODS; i++)
		assert_int_equal(policy_resolve(set, &pod.subject, &p, NULL), 0);
	print_message("%s: %.0f ns a pod\n", what, (now() - start) / PODS);
}

/* The labels that a Deployment's pod usually has, and one that says which it is. */
#define LABELS                                                                                     \
	"app.kubernetes.io/name=api,app.kubernetes.io/instance=api-1,pod-template-hash=5d4f8c,"    \
	"app.kubernetes.io/version=1.2.3,team=a,app="

static void test_a_thousand_configs(void **state)
{
	struct policy_set *set = set_of("{'guardrails':{'namespaceSelector':{'matchLabels':"
					"{'team':'a'}},'sampling':{'maxHz':1000}}}");
	char text[256];

	measure(set, "no config", LABELS "web");
	for (int i = 0; i < 1000; i++) {
		char name[24];

		snprintf(name, sizeof(name), "c%03d", i);
		snprintf(text, sizeof(text),
			 "{'podSelector':{'matchLabels':{'team':'a','app':'x%d'}},'priority':%d,"
			 "'profile':{'sampling':{'hz':%d}}}",
			 i / 2, i % 2, i + 1);
		/* Half of them are found by an expression instead. */
		if (i % 4 >= 2)
			snprintf(text, sizeof(text),
				 "{'podSelector':{'matchExpressions':[{'key':'app','operator':"
				 "'In','values':['x%d','y%d']}]},'priority':%d,'profile':"
				 "{'sampling':{'hz':%d}}}",
				 i / 2, i / 2, i % 2, i + 1);
		put(set, "prod", name, i, text);
		if (i == 3)
			measure(set, "4 configs", LABELS "x1");
	}
	measure(set, "1000 configs, a match", LABELS "x250");
	measure(set, "1000 configs, no match", LABELS "web");
	for (int i = 0; i < 500; i++) {
		char want[64];

		snprintf(text, sizeof(text), LABELS "%c%d", i % 4 == 1 ? 'y' : 'x', i);
		snprintf(want, sizeof(want), "on hz=%d off=0 tracers=aaaaaaaaa to= by=c%03d",
			 2 * i + 2, 2 * i + 1);
		assert_string_equal(resolved(set, "prod", text, "team=a", NULL), want);
	}
	for (int i = 999; i >= 0; i -= 2) {
		char name[24];

		snprintf(name, sizeof(name), "c%03d", i);
		policy_set_remove(set, "prod", name);
	}
	assert_string_equal(resolved(set, "prod", LABELS "x250", "team=a", NULL),
			    "on hz=501 off=0 tracers=aaaaaaaaa to= by=c500");
	policy_set_free(set);
}

static void test_distinct_policies_have_an_end(void **state)
{
	struct policy_set *set = set_of("{}");
	const struct effective_policy *p = NULL, *before;
	struct pod pod;
	char text[256], ns[32];
	int r = 0, i;

	for (i = 0; i < POLICY_DISTINCT_MAX + 10; i++) {
		snprintf(text, sizeof(text),
			 "{'profile':{'sampling':{'hz':%d},'offCPU':{'mode':'Enabled',"
			 "'perMille':%d}}}",
			 1 + i % 1000, 1 + i / 1000);
		snprintf(ns, sizeof(ns), "ns-%d", i);
		put(set, ns, "a", 1, text);
	}
	for (i = 0; r == 0 && i < POLICY_DISTINCT_MAX + 10; i++) {
		snprintf(ns, sizeof(ns), "ns-%d", i);
		pod_init(&pod, ns, NULL, NULL, NULL);
		before = p;
		r = policy_resolve(set, &pod.subject, &p, NULL);
	}
	assert_int_equal(r, -E2BIG);
	assert_int_equal(i, POLICY_DISTINCT_MAX + 1);
	/* Untouched on failure; what is known still answers; a change makes room. */
	assert_ptr_equal(p, before);
	pod_init(&pod, "ns-7", NULL, NULL, NULL);
	assert_int_equal(policy_resolve(set, &pod.subject, &p, NULL), 0);
	policy_set_remove(set, "ns-7", "a");
	pod_init(&pod, "ns-4100", NULL, NULL, NULL);
	assert_int_equal(policy_resolve(set, &pod.subject, &p, NULL), 0);
	policy_set_free(set);
}

static void test_configs_have_an_end(void **state)
{
	struct policy_set *set = set_of("{}");
	char name[32];

	for (int i = 0; i < POLICY_CONFIGS_MAX; i++) {
		snprintf(name, sizeof(name), "c%d", i);
		assert_int_equal(policy_set_put_invalid(set, i % 2 ? "prod" : "dev", name, "why"),
				 0);
	}
	assert_int_equal(policy_set_put_invalid(set, "new", "a", "why"), -E2BIG);
	assert_int_equal(policy_set_put(set, config_of("prod", "a", 1, "{}")), -E2BIG);
	assert_string_equal(verdict_of(set, "prod", "a"), "none");
	policy_set_remove(set, "dev", "c0");
	assert_int_equal(policy_set_put(set, config_of("prod", "a", 1, "{}")), 0);
	assert_string_equal(verdict_of(set, "prod", "a"), "Accepted: accepted");
	policy_set_free(set);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_a_thousand_configs),
	    cmocka_unit_test(test_distinct_policies_have_an_end),
	    cmocka_unit_test(test_configs_have_an_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
