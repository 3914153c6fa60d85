/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every node is served by exactly one DaemonSet: that of the first group that it matches. The
 * terms are evaluated by a matcher of the test's own, written from Kubernetes' rules (core/v1
 * NodeSelectorTerm: terms are ORed, expressions ANDed, NotIn holds for a missing key), over every
 * node that can be told apart.
 */
#include "tests/support/test.h"

#include "operator/render/internal.h"

enum { KEYS = 4, VALUES = 3, NODES = 256 /* (VALUES + 1) ^ KEYS */, LAYOUTS = 1200 };

static const char *const keys[KEYS] = {"pool", "zone", "example.com/tier", "arch"};
static const char *const values[VALUES] = {"a", "b", "c"};

static uint64_t seed = 1;
static unsigned int dice(unsigned int n)
{
	seed += 0x9e3779b97f4a7c15ULL;
	return (unsigned int)(mix64(seed) % n);
}

/* -1: the node does not have the key. */
static int value_of(int node, int key)
{
	for (; key > 0; key--)
		node /= VALUES + 1;
	return node % (VALUES + 1) - 1;
}

static const char *arch = "amd64"; /* of all nodes */

static const char *label_of(int node, const char *key)
{
	if (streq(key, "kubernetes.io/arch"))
		return arch;
	for (int k = 0; k < KEYS; k++)
		if (streq(keys[k], key))
			return value_of(node, k) < 0 ? NULL : values[value_of(node, k)];
	fail_msg("a key that nobody gave: %s", key);
	return NULL;
}

static bool expression_matches(const cJSON *e, int node)
{
	const char *op = cJSON_GetStringValue(cJSON_GetObjectItem(e, "operator"));
	const char *have = label_of(node, cJSON_GetStringValue(cJSON_GetObjectItem(e, "key")));
	const cJSON *list = cJSON_GetObjectItem(e, "values"), *v;
	bool in = false;

	assert_true(cJSON_GetArraySize(list) > 0);
	cJSON_ArrayForEach(v, list) in |= have && streq(have, v->valuestring);
	if (streq(op, "In"))
		return in;
	assert_string_equal(op, "NotIn");
	return !in;
}

static bool terms_match(const cJSON *terms, int node)
{
	const cJSON *t, *e;

	cJSON_ArrayForEach(t, terms)
	{
		bool all = true;

		cJSON_ArrayForEach(e, cJSON_GetObjectItem(t, "matchExpressions")) all &=
		    expression_matches(e, node);
		if (all)
			return true;
	}
	return false;
}

/* ---- layouts --------------------------------------------------------------------------------- */

struct layout {
	struct node_group groups[CONFIG_GROUPS_MAX];
	struct selector_requirement requirements[CONFIG_GROUPS_MAX][KEYS];
	char *value[CONFIG_GROUPS_MAX][KEYS];
	char names[CONFIG_GROUPS_MAX][8];
	size_t n;
};

static void random_layout(struct layout *l)
{
	size_t product = 1, want = dice(CONFIG_GROUPS_MAX + 1);

	*l = (struct layout){.n = 0};
	while (l->n < want) {
		struct node_group *g = &l->groups[l->n];
		size_t labels = 1 + dice(3), first = dice(KEYS);

		if (product * labels > RENDER_TERMS_MAX)
			break;
		product *= labels;
		snprintf(l->names[l->n], sizeof(l->names[0]), "g%zu", l->n);
		*g = (struct node_group){.name = l->names[l->n]};
		for (size_t i = 0; i < labels; i++) {
			l->value[l->n][i] = (char *)values[dice(VALUES)];
			l->requirements[l->n][i] = (struct selector_requirement){
			    .key = (char *)keys[(first + i) % KEYS],
			    .op = SELECTOR_IN,
			    .values = &l->value[l->n][i],
			    .n_values = 1,
			};
		}
		g->nodes = (struct selector){l->requirements[l->n], labels, true};
		l->n++;
	}
}

static bool group_matches(const struct node_group *g, int node)
{
	for (size_t i = 0; i < g->nodes.n; i++) {
		const char *have = label_of(node, g->nodes.requirements[i].key);

		if (!have || !streq(have, g->nodes.requirements[i].values[0]))
			return false;
	}
	return true;
}

static size_t first_group(const struct layout *l, int node)
{
	size_t i = 0;

	while (i < l->n && !group_matches(&l->groups[i], node))
		i++;
	return i;
}

static bool has_nodes(const struct layout *l, size_t group)
{
	for (int node = 0; node < NODES; node++)
		if (first_group(l, node) == group)
			return true;
	return false;
}

static void each_node_matches_exactly_one_daemon_set(void **state)
{
	unsigned int refused = 0, served = 0;

	for (int round = 0; round < LAYOUTS; round++) {
		static struct layout l;

		random_layout(&l);
		for (size_t i = 0; i <= l.n; i++) {
			struct error err = {0};
			cJSON *terms = NULL;
			int r = node_terms(l.groups, l.n, i, &terms, &err);

			if (!has_nodes(&l, i)) {
				/* With every value of a key taken others are left: only groups
				 * can be without nodes. */
				assert_true(i < l.n);
				assert_int_equal(r, -EINVAL);
				assert_non_null(strstr(err.message, l.names[i]));
				refused++;
				continue;
			}
			assert_int_equal(r, 0);
			assert_true(cJSON_GetArraySize(terms) <= RENDER_TERMS_MAX);
			for (int node = 0; node < NODES; node++)
				if (terms_match(terms, node) != (first_group(&l, node) == i))
					fail_msg("layout %d, group %zu, node %d", round, i, node);
			/* There is no agent for them. */
			arch = "arm64";
			for (int node = 0; node < NODES; node++)
				assert_false(terms_match(terms, node));
			arch = "amd64";
			served++;
			cJSON_Delete(terms);
		}
	}
	assert_true(refused > 100 && served > 1000);
}

/* 6 groups of 2 labels are 64 terms; a seventh is one too many, before anything is built. */
static void too_many_terms_are_refused(void **state)
{
	static char *value = (char *)"x";
	struct selector_requirement r[2] = {{(char *)"k1", SELECTOR_IN, &value, 1},
					    {(char *)"k2", SELECTOR_IN, &value, 1}};
	struct node_group g[7];
	char other_keys[7][2][8];
	struct selector_requirement own[7][2];
	struct error err = {0};
	cJSON *terms = NULL;

	for (int i = 0; i < 7; i++) {
		for (int k = 0; k < 2; k++) {
			snprintf(other_keys[i][k], sizeof(other_keys[i][k]), "k%d%d", i, k);
			own[i][k] = r[k];
			own[i][k].key = other_keys[i][k];
		}
		g[i] = (struct node_group){.name = (char *)"g", .nodes = {own[i], 2, true}};
	}
	assert_int_equal(node_terms(g, 6, 6, &terms, &err), 0);
	assert_int_equal(cJSON_GetArraySize(terms), 64);
	cJSON_Delete(terms);
	assert_int_equal(node_terms(g, 7, 0, &terms, &err), -EINVAL);
	assert_non_null(strstr(err.message, "at most 64"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(each_node_matches_exactly_one_daemon_set),
	    cmocka_unit_test(too_many_terms_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
