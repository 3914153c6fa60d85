/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random pods, namespaces, nodes and configs that are added, changed and removed, against a count
 * of everything by hand after each step. Both ask policy_resolve() for a pod's policy;
 * tests/unit/operator/policy tests that function.
 */
#include "operator/reconcile/match.h"

#include "tests/unit/operator/cache/views.h"
/* Its `struct pod` has the same name as that of operator/cache. */
#define pod policy_pod
#include "tests/unit/operator/policy/support.h"
#undef pod

enum { WORLDS = 40, STEPS = 250, NAMESPACES = 3, NAMES = 25, NODES = 4, CONFIGS = 4 };

static uint64_t dice;

static unsigned int any(unsigned int n)
{
	dice = dice * 6364136223846793005ULL + 1442695040888963407ULL;
	return (unsigned int)(mix64(dice) % n);
}

static const char *const ns_names[NAMESPACES] = {"a", "b", "ab"};
static const char *const node_names[NODES + 1] = {"n0", "n1", "n2", "n3", ""};
static const char *const modes[] = {NULL, "enabled", "disabled", "odd"};
static const char *const values[] = {"x", "y", "z"};

struct model {
	unsigned int held_off; /* number of comparisons */
	unsigned int done_namespaces, done_all;
	struct {
		bool there, ended;
		unsigned int node, app, mode, uid;
	} pods[NAMESPACES][NAMES];
	bool labelled[NAMESPACES], known[NAMESPACES];
	struct intern *strings;
	struct pod_store *store;
	struct meta_store *namespaces, *nodes;
	struct policy_set *set;
	struct match_counts *counts;
	unsigned int serial;
	bool told; /* match_counts_pod() said that something changed */
};

static void on_pod(void *arg, const struct pod *pod, const struct pod *old)
{
	struct model *m = arg;

	m->told |= match_counts_pod(m->counts, pod, old);
}

static void on_namespace(void *arg, const struct meta_object *object, bool removed)
{
	struct model *m = arg;

	match_counts_namespace(m->counts, object->name);
	m->told = true;
}

/* Counts the namespaces that were counted again, and how often all of them were. */
static void on_done(void *arg, const char *ns)
{
	struct model *m = arg;

	if (ns[0])
		m->done_namespaces++;
	else
		m->done_all++;
	assert_false(match_counts_pending(m->counts, ns) && !ns[0]);
}

/* Counts a few pods at a time, so that other changes may come between. */
static void work(struct model *m)
{
	while (match_counts_work(m->counts, 1 + any(7), on_done, m) && any(4))
		;
}

static void work_off(struct model *m)
{
	while (match_counts_work(m->counts, 1 + any(7), on_done, m))
		;
	assert_false(match_counts_pending(m->counts, ""));
	for (unsigned int i = 0; i < NAMESPACES; i++)
		assert_false(match_counts_pending(m->counts, ns_names[i]));
}

static void model_init(struct model *m)
{
	static const char *const none[] = {NULL};
	struct pod_store_options pods = {
	    .max_pods = 1000, .annotations = none, .changed = on_pod, .arg = m};
	struct meta_store_options metas = {.max_objects = 100, .annotations = none, .arg = m};

	memset(m, 0, sizeof(*m));
	assert_int_equal(intern_new(16 << 20, &m->strings), 0);
	pods.intern = metas.intern = m->strings;
	assert_int_equal(pod_store_new(&pods, &m->store), 0);
	assert_int_equal(meta_store_new(&metas, &m->nodes), 0);
	metas.changed = on_namespace;
	assert_int_equal(meta_store_new(&metas, &m->namespaces), 0);
	m->set = set_of(any(4) ? "{}" : NULL);
	assert_int_equal(match_counts_new(m->set, m->store, m->namespaces, m->nodes, &m->counts),
			 0);
}

static void model_done(struct model *m)
{
	pod_store_free(m->store);
	match_counts_free(m->counts);
	meta_store_free(m->namespaces);
	meta_store_free(m->nodes);
	policy_set_free(m->set);
	intern_free(m->strings);
}

static void change_pod(struct model *m)
{
	static struct pod_view v;
	unsigned int ns = any(NAMESPACES), name = any(NAMES);
	char name_text[16], uid[40];

	snprintf(name_text, sizeof(name_text), "p%u", name);
	if (m->pods[ns][name].there && !any(3)) {
		view_pod(&v, ns_names[ns], name_text, "", "");
		assert_int_equal(pod_store_remove_view(m->store, &v.meta), 0);
		m->pods[ns][name].there = false;
		return;
	}
	if (!m->pods[ns][name].there || !any(5))
		m->pods[ns][name].uid = ++m->serial; /* one of the same name is another pod */
	m->pods[ns][name].there = true;
	m->pods[ns][name].ended = !any(6);
	m->pods[ns][name].node = any(NODES + 1);
	m->pods[ns][name].app = any(ARRAY_SIZE(values));
	m->pods[ns][name].mode = any(ARRAY_SIZE(modes));
	snprintf(uid, sizeof(uid), "%08x-0000-4000-8000-000000000000", m->pods[ns][name].uid);
	view_pod(&v, ns_names[ns], name_text, uid, node_names[m->pods[ns][name].node]);
	view_label(&v, "app", values[m->pods[ns][name].app]);
	if (modes[m->pods[ns][name].mode])
		view_annotation(&v, POLICY_MODE_ANNOTATION, modes[m->pods[ns][name].mode]);
	if (m->pods[ns][name].ended)
		v.phase = text(any(2) ? "Succeeded" : "Failed");
	assert_int_equal(pod_store_put_view(m->store, &v, 1), 0);
}

/* Without a known namespace a pod has no policy: the namespace's labels might exclude it. */
static void change_namespace(struct model *m)
{
	static struct meta_view v;
	unsigned int ns = any(NAMESPACES);

	memset(&v, 0, sizeof(v));
	v.name = text(ns_names[ns]);
	m->known[ns] = any(5);
	if (!m->known[ns]) {
		m->labelled[ns] = false;
		assert_int_equal(meta_store_remove_view(m->namespaces, &v), 0);
		return;
	}
	m->labelled[ns] = any(2);
	v.uid = text("u");
	if (m->labelled[ns])
		v.labels[v.n_labels++] = (struct slice_pair){text("kiln"), text("yes")};
	assert_int_equal(meta_store_put_view(m->namespaces, &v, 1), 0);
}

/* Returns the namespace of the changed config; "": the cluster's. */
static const char *change_policy(struct model *m)
{
	static const char *const clusters[] = {
	    "{}", "{'defaults':{'mode':'OptIn'}}", "{'defaults':{'mode':'Disabled'}}",
	    "{'guardrails':{'namespaceSelector':{'matchLabels':{'kiln':'yes'}}}}",
	    "{'guardrails':{'podOptOut':'Forbidden'}}"};
	static const char *const specs[] = {
	    "{}", "{'profile':{'mode':'Disabled'}}",
	    "{'podSelector':{'matchLabels':{'app':'x'}},'priority':3}",
	    "{'podSelector':{'matchLabels':{'app':'y'}},'profile':{'mode':'Enabled'}}",
	    "{'podSelector':{},'profile':{'mode':'OptIn'}}"};
	const char *ns = ns_names[any(NAMESPACES)];
	char name[8];

	snprintf(name, sizeof(name), "c%u", any(CONFIGS));
	if (!any(4)) {
		assert_int_equal(
		    policy_set_cluster(m->set, any(6) ? cluster_of(clusters[any(5)]) : NULL), 0);
		ns = "";
	} else if (!any(4)) {
		policy_set_remove(m->set, ns, name);
	} else {
		put(m->set, ns, name, 1 + any(5), specs[any(5)]);
	}
	return ns;
}

/* If a change was not reported, all namespaces must be counted again. */
static void change_policies(struct model *m)
{
	const char *ns;
	uint64_t before;

	if (!any(8))
		change_policy(m);
	before = policy_set_revision(m->set);
	ns = change_policy(m);
	match_counts_policies(m->counts, ns, before);
}

/* Reports of agents: different for each node and policy. */
static unsigned int said(void *arg, uint64_t node, uint64_t policy)
{
	return mix64(node ^ policy) & (NODE_APPLIES | NODE_DEGRADED);
}

static const struct node_reports reports = {.state = said};

/* Counts by hand, in namespace NS; NULL: in all. */
static struct match_result count(struct model *m, const char *ns, const char *name)
{
	struct match_result result = {0};
	bool nodes[NODES] = {false};
	uint64_t policies[NODES] = {0};

	for (unsigned int i = 0; i < NAMESPACES; i++)
		for (unsigned int j = 0; j < NAMES; j++) {
			const struct label app = {"app", values[m->pods[i][j].app]};
			const struct label kiln = {"kiln", "yes"};
			const struct policy_subject subject = {.ns = ns_names[i],
							       .namespace_labels = &kiln,
							       .n_namespace_labels = m->labelled[i],
							       .pod_labels = &app,
							       .n_pod_labels = 1,
							       .mode_annotation =
								   modes[m->pods[i][j].mode]};
			const struct effective_policy *policy;
			const struct namespace_config *by;

			if (!m->pods[i][j].there || m->pods[i][j].ended || !m->known[i])
				continue;
			assert_int_equal(policy_resolve(m->set, &subject, &policy, &by), 0);
			if (!policy->enabled && ns && by && streq(by->id.ns, ns) &&
			    streq(by->id.name, name) && by->profile.mode == MODE_DISABLED)
				result.held_off++;
			if (!policy->enabled ||
			    (ns && (!by || !streq(by->id.ns, ns) || !streq(by->id.name, name))))
				continue;
			result.pods++;
			if (m->pods[i][j].node >= NODES)
				continue;
			nodes[m->pods[i][j].node] = true;
			policies[m->pods[i][j].node] = policy->id;
		}
	for (unsigned int i = 0; i < NODES; i++)
		result.nodes += nodes[i];
	for (unsigned int i = 0; ns && i < NODES; i++)
		if (nodes[i]) {
			unsigned int state = said(NULL, match_node_key(node_names[i]), policies[i]);

			result.programmed += (state & NODE_APPLIES) != 0;
			result.degraded += (state & NODE_DEGRADED) != 0;
		}
	return result;
}

static void compare(struct model *m, const char *ns, const char *name)
{
	struct match_result want = count(m, ns, name),
			    is = match_counts_read(m->counts, ns ? ns : "", name, &reports);

	assert_int_equal(is.pods, want.pods);
	assert_int_equal(is.nodes, want.nodes);
	assert_int_equal(is.held_off, want.held_off);
	m->held_off += is.held_off;
	assert_int_equal(is.programmed, want.programmed);
	assert_int_equal(is.degraded, want.degraded);
}

static void compare_all(struct model *m)
{
	compare(m, NULL, "");
	for (unsigned int i = 0; i < NAMESPACES; i++)
		for (unsigned int j = 0; j < CONFIGS; j++) {
			char name[8];

			snprintf(name, sizeof(name), "c%u", j);
			compare(m, ns_names[i], name);
		}
}

static void test_counts_are_those_of_counting_anew(void **state)
{
	static struct model m;
	unsigned int quiet = 0, pods = 0, held_off = 0;

	for (unsigned int world = 0; world < WORLDS; world++) {
		dice = world;
		model_init(&m);
		for (unsigned int step = 0; step < STEPS; step++) {
			struct match_result before = match_counts_read(m.counts, "", "", NULL);

			m.told = false;
			if (any(5)) {
				change_pod(&m);
				/* A change that was not reported must not change the counts. */
				if (!m.told) {
					struct match_result now =
					    match_counts_read(m.counts, "", "", NULL);

					assert_int_equal(before.pods, now.pods);
					assert_int_equal(before.nodes, now.nodes);
					quiet++;
				}
			} else if (any(2)) {
				change_namespace(&m);
			} else {
				change_policies(&m);
			}
			work(&m);
			if (!any(3)) {
				work_off(&m);
				compare_all(&m);
			}
		}
		pods += match_counts_read(m.counts, "", "", NULL).pods;
		held_off += m.held_off;
		assert_true(m.done_namespaces && m.done_all);
		model_done(&m);
	}
	/* The worlds must be neither empty nor always changing. */
	assert_true(pods > WORLDS * 5 && quiet > WORLDS * 5 && held_off > WORLDS);
}

static void test_nothing_there_is_nothing(void **state)
{
	static struct model m;
	struct match_result r;

	dice = 1;
	model_init(&m);
	r = match_counts_read(m.counts, "nowhere", "nothing", NULL);
	assert_int_equal(r.pods, 0);
	assert_int_equal(r.nodes, 0);
	model_done(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_counts_are_those_of_counting_anew),
	    cmocka_unit_test(test_nothing_there_is_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
