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
		snprintf(want, sizeof(want), "on hz=%d off=0 tracers=aaaaaaaaaaa to= by=c%03d",
			 2 * i + 2, 2 * i + 1);
		assert_string_equal(resolved(set, "prod", text, "team=a", NULL), want);
	}
	for (int i = 999; i >= 0; i -= 2) {
		char name[24];

		snprintf(name, sizeof(name), "c%03d", i);
		policy_set_remove(set, "prod", name);
	}
	assert_string_equal(resolved(set, "prod", LABELS "x250", "team=a", NULL),
			    "on hz=501 off=0 tracers=aaaaaaaaaaa to= by=c500");
	policy_set_free(set);
}

static void put_rate(struct policy_set *set, const char *ns, const char *name, int64_t created,
		     int i, const char *mode)
{
	char text[256];

	snprintf(text, sizeof(text),
		 "{'podSelector':{'matchLabels':{'n':'%d'}},'profile':{'mode':'%s','sampling':"
		 "{'hz':%d},'offCPU':{'mode':'Enabled','perMille':%d}}}",
		 i, mode, 1 + i % 1000, 1 + i / 1000);
	put(set, ns, name, created, text);
}

/* The facts of a namespace that goes beyond its quota: the younger configs' pods are off. */
static void test_a_namespace_has_a_quota(void **state)
{
	struct policy_set *set = set_of("{}");
	char name[32];

	/* In an order that has nothing to do with their age. */
	for (int i = 0; i < POLICY_NAMESPACE_CONFIGS_MAX + 2; i++) {
		int n = (i * 7 + 3) % (POLICY_NAMESPACE_CONFIGS_MAX + 2);

		snprintf(name, sizeof(name), "c%d", n);
		put_rate(set, "greedy", name, n, n, "Enabled");
	}
	put_rate(set, "other", "a", 1, 5, "Enabled");
	assert_true(has_prefix(resolved(set, "greedy", "n=1023", NULL, NULL), "on hz=24 off=2 "));
	assert_true(has_prefix(resolved(set, "greedy", "n=1024", NULL, NULL), "off "));
	assert_true(has_prefix(resolved(set, "greedy", "n=1025", NULL, NULL), "off "));
	assert_true(has_prefix(resolved(set, "greedy", "n=x", NULL, NULL), "on hz=20 "));
	assert_true(has_prefix(resolved(set, "other", "n=5", NULL, NULL), "on hz=6 "));
	assert_string_equal(verdict_of(set, "greedy", "c1023"), "Accepted: accepted");
	assert_true(has_prefix(verdict_of(set, "greedy", "c1024"), "TooManyConfigs: namespace "));
	assert_string_equal(verdict_of(set, "other", "a"), "Accepted: accepted");
	/* One that is Disabled needs no place, and one that goes makes one. */
	put_rate(set, "greedy", "c7", 7, 7, "Disabled");
	policy_set_remove(set, "greedy", "c9");
	assert_true(has_prefix(resolved(set, "greedy", "n=1025", NULL, NULL), "on hz=26 off=2 "));
	assert_true(has_prefix(resolved(set, "greedy", "n=7", NULL, NULL), "off "));
	assert_string_equal(verdict_of(set, "greedy", "c1025"), "Accepted: accepted");
	policy_set_free(set);
}

/* As many policies as the set has room for, and pods beyond: they are off, whoever they are. */
static void test_distinct_policies_have_an_end(void **state)
{
	struct policy_set *set = set_of(
	    "{'nodeGroups':[{'name':'g','nodeSelector':{'matchLabels':{'x':'y'}},'sampling':{'hz':"
	    "3}}]}");
	static const char *const tracers[] = {"Auto", "Enabled", "Disabled"};
	const struct label node = {"x", "y"};
	const struct node_group *group = policy_node_group(set, &node, 1);
	const struct effective_policy *p = NULL;
	struct pod pod;
	char text[160], ns[32];
	size_t enabled = 0;

	for (int i = 0; i < POLICY_DISTINCT_MAX / 2 + 10; i++) {
		snprintf(text, sizeof(text),
			 "{'profile':{'offCPU':{'mode':'Enabled','perMille':%d},'tracers':{'v8':"
			 "'%s','php':'%s','go':'%s','jvm':'%s'}}}",
			 1 + i % 1000, tracers[i / 1000 % 3], tracers[i / 3000 % 3],
			 tracers[i / 9000 % 3], tracers[i / 27000 % 3]);
		snprintf(ns, sizeof(ns), "ns-%d", i);
		put(set, ns, "a", 1, text);
	}
	put(set, "off", "a", 1, "{'profile':{'mode':'Disabled'}}");
	for (int i = 0; i < POLICY_DISTINCT_MAX / 2 + 10; i++) {
		snprintf(ns, sizeof(ns), "ns-%d", i);
		for (int j = 0; j < 2; j++) {
			pod_init(&pod, ns, NULL, NULL, NULL);
			pod.subject.group = j ? group : NULL;
			assert_int_equal(policy_resolve(set, &pod.subject, &p, NULL), 0);
			enabled += p->enabled;
		}
	}
	assert_in_range(enabled, 1, POLICY_DISTINCT_MAX + 20 - policy_set_without_room(set));
	assert_int_equal(enabled + policy_set_without_room(set), POLICY_DISTINCT_MAX + 20);
	policy_set_free(set);
}

static void test_configs_have_an_end(void **state)
{
	struct policy_set *set = set_of("{}");
	char name[32];

	for (int i = 0; i < POLICY_CONFIGS_MAX; i++) {
		snprintf(name, sizeof(name), "c%d", i);
		assert_int_equal(refuse(set, i % 2 ? "prod" : "dev", name, 1, "1", "why"), 0);
	}
	assert_int_equal(refuse(set, "new", "a", 1, "{}", "why"), -E2BIG);
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
	    cmocka_unit_test(test_a_namespace_has_a_quota),
	    cmocka_unit_test(test_distinct_policies_have_an_end),
	    cmocka_unit_test(test_configs_have_an_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
