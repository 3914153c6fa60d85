/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts live in two hash tables: config -> pods, and (config, node) -> pods; a node counts for a
 * config while its entry is above zero. Configs are told apart by the hash of "namespace/name", the
 * whole cluster by 0; a collision of 64-bit hashes would only make a count in a status wrong.
 *
 * A pod that changes is taken out as it was and put in as it is. That is right only while policies
 * are those that it was counted with: `revision` says which, and any other starts from zero.
 */
#include "operator/reconcile/match.h"

#include <uthash.h>

enum { ALL_PODS = 0 };

struct count {
	struct {
		uint64_t config, node; /* node 0: of the config as a whole */
	} key;
	uint32_t pods, nodes; /* nodes: only of the config as a whole */
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
static void count_one(struct match_counts *m, uint64_t config, uint64_t node, int step)
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
	if (step > 0 && !part->pods)
		whole->nodes++;
	part->pods += (uint32_t)step;
	if (!part->pods) {
		whole->nodes--;
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

/* What a pod counts for; false: nothing. */
static bool place_of(struct match_counts *m, const struct pod *pod, uint64_t *ret_config,
		     uint64_t *ret_node)
{
	const struct effective_policy *policy;
	const struct namespace_config *config;
	size_t n;

	if (!pod)
		return false;
	pod_unpack(m->pods, pod, &m->info);
	if (m->info.terminated ||
	    match_resolve(m->policies, m->namespaces, m->nodes, &m->info, &policy, &config) < 0 ||
	    !policy->enabled)
		return false;
	n = strlen(m->info.node);
	*ret_node = n ? hash_bytes(m->info.node, n, 2) | 1 : 0;
	*ret_config = config ? config_hash(config->id.ns, config->id.name) : ALL_PODS;
	return true;
}

static void count_pod(struct match_counts *m, uint64_t config, uint64_t node, int step)
{
	count_one(m, ALL_PODS, node, step);
	if (config != ALL_PODS)
		count_one(m, config, node, step);
}

bool match_counts_pod(struct match_counts *m, const struct pod *pod, const struct pod *old)
{
	uint64_t config[2] = {0}, node[2] = {0};
	bool was, is;

	if (!m->valid || m->revision != policy_set_revision(m->policies)) {
		m->valid = false;
		return true;
	}
	was = place_of(m, old, &config[0], &node[0]);
	is = place_of(m, pod, &config[1], &node[1]);
	if (was == is && config[0] == config[1] && node[0] == node[1])
		return false;
	if (was)
		count_pod(m, config[0], node[0], -1);
	if (is)
		count_pod(m, config[1], node[1], 1);
	return true;
}

static int count_existing(void *arg, const struct pod *pod)
{
	struct match_counts *m = arg;
	uint64_t config, node;

	if (place_of(m, pod, &config, &node))
		count_pod(m, config, node, 1);
	return 0;
}

void match_counts_invalidate(struct match_counts *m)
{
	m->valid = false;
}

struct match_result match_counts_read(struct match_counts *m, const char *ns, const char *name)
{
	const struct count *c;

	if (!m->valid || m->revision != policy_set_revision(m->policies)) {
		forget(m);
		m->valid = true;
		m->revision = policy_set_revision(m->policies);
		pod_store_each(m->pods, count_existing, m);
	}
	c = find(m, config_hash(ns, name), 0, false);
	return c ? (struct match_result){c->pods, c->nodes} : (struct match_result){0};
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
