/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts live in two hash tables: config -> pods, and (config, node) -> pods; a node counts for a
 * config while its entry is above zero, and is in the config's list. All pods of a config on one
 * node have the same policy: only annotations tell pods apart, and those that they disable do not
 * count. Pods that a Disabled config holds off count for it alone, apart from the others. Configs
 * are told apart by the hash of "namespace/name", the whole cluster by 0; a collision of 64-bit
 * hashes would only make a count in a status wrong.
 *
 * A pod that changes is taken out as it was and put in as it is. That is right only while policies
 * are those that it was counted with: `revision` says which, and any other starts from zero.
 */
#include "operator/reconcile/match.h"

#include <utlist.h>

#include "lib/uthash.h"

enum { ALL_PODS = 0 };

struct count {
	struct {
		uint64_t config, node; /* node 0: of the config as a whole */
	} key;
	uint32_t pods, nodes; /* nodes: only of the config as a whole */
	uint32_t held_off;    /* pods that a Disabled config keeps from being profiled; as nodes */
	uint64_t policy;      /* of a part */
	struct count *parts;  /* of the whole: its nodes */
	struct count *prev, *next;
	UT_hash_handle hh;
};

struct match_counts {
	struct policy_set *policies;
	struct pod_store *pods;
	struct meta_store *namespaces, *nodes;
	struct count *counts;
	uint64_t revision;
	bool valid;
	struct pod_info info; /* scratch: it is large */
};

static uint64_t config_hash(const char *ns, const char *name)
{
	uint64_t h;

	if (!ns[0] && !name[0])
		return ALL_PODS;
	h = hash_bytes(name, strlen(name), hash_bytes(ns, strlen(ns), 1));
	return h ? h : 1;
}

uint64_t match_node_key(const char *node)
{
	size_t n = strlen(node);

	return n ? hash_bytes(node, n, 2) | 1 : 0;
}

static void forget(struct match_counts *m)
{
	struct count *c, *next;

	HASH_ITER (hh, m->counts, c, next) {
		HASH_DEL(m->counts, c);
		free(c);
	}
	m->valid = false;
}

static struct count *find(struct match_counts *m, uint64_t config, uint64_t node, bool make)
{
	struct count *c = NULL, probe = {.key = {config, node}};

	HASH_FIND(hh, m->counts, &probe.key, sizeof(probe.key), c);
	if (c || !make)
		return c;
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->key.config = config;
	c->key.node = node;
	HASH_ADD(hh, m->counts, key, sizeof(c->key), c);
	return c;
}

/* STEP is 1 or -1. Out of memory: the counts are made anew at the next question. */
static void count_one(struct match_counts *m, uint64_t config, uint64_t node, uint64_t policy,
		      int step)
{
	struct count *whole = find(m, config, 0, step > 0), *part = NULL;

	if (node)
		part = find(m, config, node, step > 0);
	if (!whole || (node && !part)) {
		m->valid = false;
		return;
	}
	whole->pods += (uint32_t)step;
	if (!part)
		return;
	if (step > 0 && !part->pods) {
		whole->nodes++;
		DL_APPEND(whole->parts, part);
	}
	part->pods += (uint32_t)step;
	part->policy = policy;
	if (!part->pods) {
		whole->nodes--;
		DL_DELETE(whole->parts, part);
		HASH_DEL(m->counts, part);
		free(part);
	}
}

/* Copies the labels into OUT of VIEW_PAIRS_MAX. */
static size_t labels_of(struct meta_store *store, const char *name, struct label *out)
{
	struct meta_object object;
	size_t n = 0;

	if (meta_store_find(store, "", name, &object) < 0)
		return 0;
	for (; n < object.n_labels && n < VIEW_PAIRS_MAX; n++)
		out[n] = (struct label){object.labels[n].key, object.labels[n].value};
	return n;
}

int match_resolve(struct policy_set *policies, struct meta_store *namespaces,
		  struct meta_store *nodes, const struct pod_info *pod,
		  const struct effective_policy **ret, const struct namespace_config **ret_config)
{
	struct label labels[VIEW_PAIRS_MAX], ns_labels[VIEW_PAIRS_MAX];
	const struct cluster_config *cluster;
	struct policy_subject subject = {
	    .ns = pod->ns, .pod_labels = labels, .namespace_labels = ns_labels};

	for (size_t i = 0; i < pod->n_labels && i < VIEW_PAIRS_MAX; i++)
		labels[subject.n_pod_labels++] =
		    (struct label){pod->labels[i].key, pod->labels[i].value};
	for (size_t i = 0; i < pod->n_annotations; i++)
		if (streq(pod->annotations[i].key, POLICY_MODE_ANNOTATION))
			subject.mode_annotation = pod->annotations[i].value;
	cluster = policy_set_get_cluster(policies);
	if (cluster && cluster->n_groups && pod->node[0])
		subject.group =
		    policy_node_group(policies, ns_labels, labels_of(nodes, pod->node, ns_labels));
	subject.n_namespace_labels = labels_of(namespaces, pod->ns, ns_labels);
	return policy_resolve(policies, &subject, ret, ret_config);
}

struct place {
	uint64_t config, node, policy;
	bool held_off;
};

/* What a pod counts for; false: nothing. */
static bool place_of(struct match_counts *m, const struct pod *pod, struct place *ret)
{
	const struct effective_policy *policy;
	const struct namespace_config *config;

	if (!pod)
		return false;
	pod_unpack_subject(m->pods, pod, &m->info);
	if (m->info.terminated ||
	    match_resolve(m->policies, m->namespaces, m->nodes, &m->info, &policy, &config) < 0)
		return false;
	ret->held_off = !policy->enabled;
	if (ret->held_off && (!config || config->profile.mode != MODE_DISABLED))
		return false;
	ret->node = match_node_key(m->info.node);
	ret->config = config ? config_hash(config->id.ns, config->id.name) : ALL_PODS;
	ret->policy = policy->id;
	return true;
}

static void count_pod(struct match_counts *m, const struct place *place, int step)
{
	struct count *whole;

	if (place->held_off) {
		whole = find(m, place->config, 0, step > 0);
		if (whole)
			whole->held_off += (uint32_t)step;
		else
			m->valid = false;
		return;
	}
	count_one(m, ALL_PODS, place->node, place->policy, step);
	if (place->config != ALL_PODS)
		count_one(m, place->config, place->node, place->policy, step);
}

bool match_counts_pod(struct match_counts *m, const struct pod *pod, const struct pod *old)
{
	struct place before = {0}, now = {0};
	bool was, is;

	if (!m->valid || m->revision != policy_set_revision(m->policies)) {
		m->valid = false;
		return true;
	}
	was = place_of(m, old, &before);
	is = place_of(m, pod, &now);
	if (was == is && before.config == now.config && before.node == now.node &&
	    before.held_off == now.held_off)
		return false;
	if (was)
		count_pod(m, &before, -1);
	if (is)
		count_pod(m, &now, 1);
	return true;
}

static int count_existing(void *arg, const struct pod *pod)
{
	struct match_counts *m = arg;
	struct place place;

	if (place_of(m, pod, &place))
		count_pod(m, &place, 1);
	return 0;
}

void match_counts_invalidate(struct match_counts *m)
{
	m->valid = false;
}

struct match_result match_counts_read(struct match_counts *m, const char *ns, const char *name,
				      const struct node_reports *reports)
{
	const struct count *c, *part;
	struct match_result result;
	unsigned int state;

	if (!m->valid || m->revision != policy_set_revision(m->policies)) {
		forget(m);
		m->valid = true;
		m->revision = policy_set_revision(m->policies);
		pod_store_each(m->pods, count_existing, m);
	}
	c = find(m, config_hash(ns, name), 0, false);
	if (!c)
		return (struct match_result){0};
	result = (struct match_result){.pods = c->pods, .nodes = c->nodes, .held_off = c->held_off};
	if (!reports || !name[0]) /* the pods of all configs have several policies */
		return result;
	DL_FOREACH (c->parts, part) {
		state = reports->state(reports->arg, part->key.node, part->policy);
		result.programmed += (state & NODE_APPLIES) != 0;
		result.degraded += (state & NODE_DEGRADED) != 0;
	}
	return result;
}

int match_counts_new(struct policy_set *policies, struct pod_store *pods,
		     struct meta_store *namespaces, struct meta_store *nodes,
		     struct match_counts **ret)
{
	struct match_counts *m = calloc(1, sizeof(*m));

	if (!m)
		return -ENOMEM;
	m->policies = policies;
	m->pods = pods;
	m->namespaces = namespaces;
	m->nodes = nodes;
	*ret = m;
	return 0;
}

struct match_counts *match_counts_free(struct match_counts *m)
{
	if (!m)
		return NULL;
	forget(m);
	free(m);
	return NULL;
}
