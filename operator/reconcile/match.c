/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts live in a hash table: config -> pods, and (config, node) -> pods; a node counts for a
 * config while its entry is above zero, and is in the config's list. All pods of a config on one
 * node have the same policy: only annotations tell pods apart, and those that they disable do not
 * count. Pods that a Disabled config holds off count for it alone, apart from the others. Configs
 * are told apart by the hash of "namespace/name", the whole cluster by 0; a collision of 64-bit
 * hashes would only make a count in a status wrong.
 *
 * Each pod's mark in the store says where it is counted, so that it can be taken out again after
 * the policies have changed. A change queues the namespaces it affects in `waiting`, and their pods
 * are evaluated again in small batches; `at_work` is the namespace whose pods are being evaluated
 * and `cursor` the next of them. Until a pod's turn comes it is counted under its old policy.
 */
#include "operator/reconcile/match.h"

#include <utlist.h>

#include "lib/uthash.h"

enum { ALL_PODS = 0, COUNTS_MAX = 1 << 30 };

struct count {
	struct {
		uint64_t config, node; /* node 0: of the config as a whole */
	} key;
	uint32_t pods, nodes; /* nodes: only of the config as a whole */
	uint32_t held_off;    /* pods not profiled, because the config is Disabled; as `nodes` */
	uint32_t place;	      /* of a config as a whole: its index in `places` */
	uint64_t policy;      /* of the config's pods on one node: their policy */
	struct count *parts;  /* of a config as a whole: the counts of its nodes */
	struct count *prev, *next;
	UT_hash_handle hh;
};

/* The count that a pod's mark refers to. */
struct place {
	struct count *whole; /* NULL: free */
	uint32_t next_free;
};

struct waiting {
	UT_hash_handle hh;
	char ns[];
};

struct match_counts {
	struct policy_set *policies;
	struct pod_store *pods;
	struct meta_store *namespaces, *nodes;
	struct count *counts;
	struct place *places; /* 0 is not used */
	size_t n_places, cap_places;
	uint32_t free_place; /* 0: none */
	struct waiting *waiting;
	char *at_work; /* the namespace that CURSOR is in, or NULL */
	const struct pod *cursor;
	bool all;	       /* a change that affects every pod is queued or being evaluated */
	bool counted_once;     /* the first such change is done: every pod has been counted */
	bool broken;	       /* memory ran out: count_anew() */
	uint64_t revision;     /* of the policies when something was last queued */
	uint64_t without_room; /* policy_set_without_room() at that time */
	struct pod_info info;  /* scratch: it is large */
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

static struct count *find(const struct match_counts *m, uint64_t config, uint64_t node)
{
	struct count *c = NULL, probe = {.key = {config, node}};

	HASH_FIND(hh, m->counts, &probe.key, sizeof(probe.key), c);
	return c;
}

static struct count *add(struct match_counts *m, uint64_t config, uint64_t node)
{
	struct count *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->key.config = config;
	c->key.node = node;
	HASH_ADD(hh, m->counts, key, sizeof(c->key), c);
	if (!c->hh.tbl) {
		free(c);
		return NULL;
	}
	return c;
}

static void drop(struct match_counts *m, struct count *c)
{
	HASH_DEL(m->counts, c);
	free(c);
}

static int take_place(struct match_counts *m, struct count *whole)
{
	uint32_t at = m->free_place;
	int r;

	if (at) {
		m->free_place = m->places[at].next_free;
	} else {
		at = (uint32_t)MAX(m->n_places, (size_t)1);
		r = grow_array((void **)&m->places, &m->cap_places, at + 1, sizeof(*m->places),
			       COUNTS_MAX);
		if (r < 0)
			return r;
		m->n_places = at + 1;
	}
	m->places[at].whole = whole;
	whole->place = at;
	return 0;
}

static struct count *find_whole(struct match_counts *m, uint64_t config)
{
	struct count *whole = find(m, config, 0);

	if (whole)
		return whole;
	whole = add(m, config, 0);
	if (whole && take_place(m, whole) < 0) {
		drop(m, whole);
		return NULL;
	}
	return whole;
}

static void drop_if_empty(struct match_counts *m, struct count *whole)
{
	if (whole->pods || whole->held_off)
		return;
	m->places[whole->place] = (struct place){.next_free = m->free_place};
	m->free_place = whole->place;
	drop(m, whole);
}

static int add_one(struct match_counts *m, struct count *whole, uint64_t node, uint64_t policy)
{
	struct count *part = node ? find(m, whole->key.config, node) : NULL;

	if (node && !part) {
		part = add(m, whole->key.config, node);
		if (!part)
			return -ENOMEM;
		whole->nodes++;
		DL_APPEND(whole->parts, part);
	}
	whole->pods++;
	if (part) {
		part->pods++;
		part->policy = policy;
	}
	return 0;
}

static void take_one(struct match_counts *m, struct count *whole, uint64_t node)
{
	struct count *part = node ? find(m, whole->key.config, node) : NULL;

	whole->pods--;
	if (part && !--part->pods) {
		whole->nodes--;
		DL_DELETE(whole->parts, part);
		drop(m, part);
	}
}

/* Copies the labels into OUT of VIEW_PAIRS_MAX. False: the store does not know NAME. */
static bool labels_of(struct meta_store *store, const char *name, struct label *out, size_t *ret_n)
{
	struct meta_object object;

	*ret_n = 0;
	if (meta_store_find(store, "", name, &object) < 0)
		return false;
	for (; *ret_n < object.n_labels && *ret_n < VIEW_PAIRS_MAX; ++*ret_n)
		out[*ret_n] =
		    (struct label){object.labels[*ret_n].key, object.labels[*ret_n].value};
	return true;
}

int match_resolve(struct policy_set *policies, struct meta_store *namespaces,
		  struct meta_store *nodes, const struct pod_info *pod,
		  const struct effective_policy **ret, const struct namespace_config **ret_config)
{
	struct label labels[VIEW_PAIRS_MAX], ns_labels[VIEW_PAIRS_MAX];
	const struct cluster_config *cluster;
	struct policy_subject subject = {
	    .ns = pod->ns, .pod_labels = labels, .namespace_labels = ns_labels};
	size_t n;

	if (pod->cut)
		return -E2BIG;
	for (size_t i = 0; i < pod->n_labels && i < VIEW_PAIRS_MAX; i++)
		labels[subject.n_pod_labels++] =
		    (struct label){pod->labels[i].key, pod->labels[i].value};
	for (size_t i = 0; i < pod->n_annotations; i++)
		if (streq(pod->annotations[i].key, POLICY_MODE_ANNOTATION))
			subject.mode_annotation = pod->annotations[i].value;
	cluster = policy_set_get_cluster(policies);
	if (cluster && cluster->n_groups && pod->node[0]) {
		(void)labels_of(nodes, pod->node, ns_labels, &n);
		subject.group = policy_node_group(policies, ns_labels, n);
	}
	/* Without the namespace's labels, selectors such as NotIn would match wrongly. */
	if (!labels_of(namespaces, pod->ns, ns_labels, &subject.n_namespace_labels) && pod->ns[0])
		return -ENOENT;
	return policy_resolve(policies, &subject, ret, ret_config);
}

/* The count that a pod belongs to. */
struct part {
	uint64_t config, policy;
	bool held_off;
};

/* False when the pod is not counted. */
static bool part_of(struct match_counts *m, const struct pod *pod, struct part *ret)
{
	const struct effective_policy *policy;
	const struct namespace_config *config;

	pod_unpack_subject(m->pods, pod, &m->info);
	if (m->info.terminated ||
	    match_resolve(m->policies, m->namespaces, m->nodes, &m->info, &policy, &config) < 0)
		return false;
	ret->held_off = !policy->enabled;
	if (ret->held_off && (!config || config->profile.mode != MODE_DISABLED))
		return false;
	ret->config = config ? config_hash(config->id.ns, config->id.name) : ALL_PODS;
	ret->policy = policy->id;
	return true;
}

/* The mark of a pod that is counted: where, and whether it is held off. */
static uint32_t mark_of(const struct count *whole, bool held_off)
{
	return whole->place << 1 | held_off;
}

/* Without memory the pod is not counted, and `broken` is set: all pods are counted anew later. */
static void count_pod(struct match_counts *m, const struct pod *pod)
{
	struct count *whole, *all = NULL;
	struct part part;
	uint64_t node;

	if (m->broken || !part_of(m, pod, &part))
		return;
	node = match_node_key(m->info.node);
	whole = find_whole(m, part.config);
	if (whole && !part.held_off)
		all = find_whole(m, ALL_PODS);
	if (!whole || (!part.held_off && !all)) {
		m->broken = true;
		return;
	}
	if (part.held_off)
		whole->held_off++;
	else if (add_one(m, all, node, part.policy) < 0 ||
		 (whole != all && add_one(m, whole, node, part.policy) < 0)) {
		m->broken = true;
		return;
	}
	pod_set_mark(m->pods, pod, mark_of(whole, part.held_off));
}

static void uncount_pod(struct match_counts *m, const struct pod *pod)
{
	uint32_t mark = pod_mark(pod);
	struct count *whole, *all;
	uint64_t node;

	if (!mark || m->broken)
		return;
	node = match_node_key(pod_node(m->pods, pod));
	whole = m->places[mark >> 1].whole;
	pod_set_mark(m->pods, pod, 0);
	if (mark & 1) {
		whole->held_off--;
	} else {
		all = find(m, ALL_PODS, 0);
		take_one(m, all, node);
		if (whole != all) {
			take_one(m, whole, node);
			drop_if_empty(m, all);
		}
	}
	drop_if_empty(m, whole);
}

static void recount_pod(struct match_counts *m, const struct pod *pod)
{
	uncount_pod(m, pod);
	count_pod(m, pod);
}

/* ---- evaluating again ------------------------------------------------------------------------ */

static void end_namespace(struct match_counts *m)
{
	m->cursor = NULL;
	free(TAKE_PTR(m->at_work));
}

static void forget_waiting(struct match_counts *m)
{
	struct waiting *w, *next;

	HASH_ITER (hh, m->waiting, w, next) {
		HASH_DEL(m->waiting, w);
		free(w);
	}
	end_namespace(m);
	m->all = false;
}

static void forget_counts(struct match_counts *m)
{
	struct count *c, *next;

	HASH_ITER (hh, m->counts, c, next)
		drop(m, c);
	free(TAKE_PTR(m->places));
	m->n_places = m->cap_places = 0;
	m->free_place = 0;
}

static int unmark(void *arg, const struct pod *pod)
{
	struct match_counts *m = arg;

	pod_set_mark(m->pods, pod, 0);
	return 0;
}

static int count_existing(void *arg, const struct pod *pod)
{
	count_pod(arg, pod);
	return 0;
}

/* Counts all pods from nothing, after memory ran out. Nowhere else are they all evaluated in one
 * turn of the loop. */
static void count_anew(struct match_counts *m)
{
	forget_waiting(m);
	forget_counts(m);
	pod_store_each(m->pods, unmark, m);
	m->broken = false;
	pod_store_each(m->pods, count_existing, m);
}

static int wait_for(void *arg, const char *ns)
{
	struct match_counts *m = arg;
	size_t len = strlen(ns);
	struct waiting *w;

	HASH_FIND(hh, m->waiting, ns, len, w);
	if (w)
		return 0;
	w = malloc(sizeof(*w) + len + 1);
	if (!w) {
		m->broken = true;
		return 0;
	}
	memcpy(w->ns, ns, len + 1);
	HASH_ADD_KEYPTR(hh, m->waiting, w->ns, len, w);
	if (!w->hh.tbl) {
		free(w);
		m->broken = true;
	}
	return 0;
}

static void wait_for_all(struct match_counts *m)
{
	m->all = true;
	pod_store_each_namespace(m->pods, wait_for, m);
}

void match_counts_namespace(struct match_counts *m, const char *ns)
{
	(void)wait_for(m, ns);
}

static int recount(void *arg, const struct pod *pod)
{
	recount_pod(arg, pod);
	return 0;
}

void match_counts_node(struct match_counts *m, const char *node)
{
	pod_store_each_on_node(m->pods, node, recount, m);
}

void match_counts_policies(struct match_counts *m, const char *ns, uint64_t before)
{
	uint64_t without_room = policy_set_without_room(m->policies);

	/* At the limit of policies (without_room), a policy that is gone makes room for one of
	 * another namespace. */
	if (!ns[0] || m->revision != before || m->without_room != without_room)
		wait_for_all(m);
	else
		(void)wait_for(m, ns);
	m->revision = policy_set_revision(m->policies);
	m->without_room = without_room;
}

static bool next_namespace(struct match_counts *m, void (*done)(void *arg, const char *ns),
			   void *arg)
{
	struct waiting *w = m->waiting;

	if (m->at_work && !m->all)
		done(arg, m->at_work);
	end_namespace(m);
	if (!w) {
		if (m->all) {
			m->all = false;
			m->counted_once = true;
			done(arg, "");
		}
		return false;
	}
	HASH_DEL(m->waiting, w);
	m->at_work = strdup(w->ns);
	m->cursor = pod_store_first_in_namespace(m->pods, w->ns);
	free(w);
	if (!m->at_work)
		m->broken = true;
	return true;
}

bool match_counts_work(struct match_counts *m, size_t max, void (*done)(void *arg, const char *ns),
		       void *arg)
{
	const struct pod *pod;

	if (m->broken) {
		count_anew(m);
		done(arg, "");
	}
	for (; max; max--) {
		pod = m->cursor;
		if (!pod && !next_namespace(m, done, arg))
			return false;
		if (!pod)
			continue;
		m->cursor = pod_store_next_in_namespace(m->pods, pod);
		recount_pod(m, pod);
	}
	return true;
}

bool match_counts_pending(const struct match_counts *m, const char *ns)
{
	struct waiting *w;

	if (m->broken)
		return true;
	if (!ns[0])
		return m->all && !m->counted_once;
	if (m->at_work && streq(m->at_work, ns))
		return true;
	HASH_FIND(hh, m->waiting, ns, strlen(ns), w);
	return w != NULL;
}

bool match_counts_pod(struct match_counts *m, const struct pod *pod, const struct pod *old)
{
	uint32_t before = old ? pod_mark(old) : 0;

	if (old && old == m->cursor)
		m->cursor = pod_store_next_in_namespace(m->pods, old);
	if (old)
		uncount_pod(m, old);
	if (pod)
		count_pod(m, pod);
	return m->broken || before != (pod ? pod_mark(pod) : 0) ||
	       (before && !streq(pod_node(m->pods, pod), pod_node(m->pods, old)));
}

struct match_result match_counts_read(const struct match_counts *m, const char *ns,
				      const char *name, const struct node_reports *reports)
{
	const struct count *c, *part;
	struct match_result result;
	unsigned int state;

	c = find(m, config_hash(ns, name), 0);
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
	m->revision = policy_set_revision(policies);
	*ret = m;
	return 0;
}

struct match_counts *match_counts_free(struct match_counts *m)
{
	if (!m)
		return NULL;
	forget_waiting(m);
	forget_counts(m);
	free(m);
	return NULL;
}
