/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configs of the cluster, by namespace.
 *
 * A change only marks its namespace: standings, default and precedence of its configs are computed
 * at the next query. The effective policies, which point into the configs, are all dropped. Between
 * two changes each config keeps the answer that was computed first, so that a pod costs its lookups
 * and label compares. All memory for the order is reserved when a config is put: resolving can fail
 * only when a policy is new.
 *
 * One thread (the loop) owns a set.
 */
#include "operator/policy/set_internal.h"

int policy_set_new(struct policy_set **ret)
{
	_cleanup_(policy_set_freep) struct policy_set *set = calloc(1, sizeof(*set));
	uint8_t digest[POLICY_DIGEST_SIZE];
	int r;

	if (!set)
		return -ENOMEM;
	set->revision = 1;
	for (size_t i = 0; i < TRACER_COUNT; i++)
		set->off.tracers[i] = TOGGLE_DISABLED;
	r = policy_digest(&set->off, digest);
	if (r < 0)
		return r;
	set->off.id = policy_id(digest);
	*ret = TAKE_PTR(set);
	return 0;
}

static void drop_interned(struct policy_set *set)
{
	struct interned *p = set->interned, *next;

	HASH_CLEAR(hh, set->interned);
	for (; p; p = next) {
		next = p->hh.next;
		free(p);
	}
}

static void entry_done(struct config_entry *e)
{
	namespace_config_free(e->config);
	e->config = NULL;
	free(e->cause);
	e->cause = NULL;
	e->stands_in = false;
}

static void ns_free(struct ns_entry *n)
{
	struct config_entry *e = n->configs, *next;

	HASH_CLEAR(hh, n->configs);
	for (; e; e = next) {
		next = e->hh.next;
		entry_done(e);
		free(e->name);
		free(e);
	}
	policy_index_done(&n->index);
	free(n->ns);
	free(n);
}

struct policy_set *policy_set_free(struct policy_set *set)
{
	struct ns_entry *n, *next;

	if (!set)
		return NULL;
	n = set->namespaces;
	HASH_CLEAR(hh, set->namespaces);
	for (; n; n = next) {
		next = n->hh.next;
		ns_free(n);
	}
	drop_interned(set);
	cluster_config_free(set->cluster);
	free(set->cluster_cause);
	free(set);
	return NULL;
}

static void changed(struct policy_set *set, struct ns_entry *n)
{
	set->revision++;
	drop_interned(set);
	if (n) {
		/* The configs in the index may be freed next. */
		n->ordered = false;
		policy_index_clear(&n->index);
	}
}

static void all_changed(struct policy_set *set)
{
	struct ns_entry *n;

	for (n = set->namespaces; n; n = n->hh.next)
		n->ordered = false;
	changed(set, NULL);
}

/* True when the specs are the same: each change of a spec is another generation. */
static bool is_same(const struct object_id *a, const struct object_id *b)
{
	return a->generation > 0 && a->generation == b->generation && a->uid && b->uid &&
	       streq(a->uid, b->uid) && streq(a->name, b->name);
}

int policy_set_cluster(struct policy_set *set, struct cluster_config *config)
{
	if (config && set->cluster && is_same(&config->id, &set->cluster->id)) {
		cluster_config_free(config);
		return 0;
	}
	all_changed(set);
	cluster_config_free(set->cluster);
	free(set->cluster_cause);
	set->cluster_cause = NULL;
	set->cluster = config;
	return 0;
}

struct ns_entry *policy_set_find_ns(const struct policy_set *set, const char *ns)
{
	struct ns_entry *n;

	HASH_FIND_STR(set->namespaces, ns, n);
	return n;
}

struct config_entry *policy_set_find(const struct ns_entry *n, const char *name)
{
	struct config_entry *e = NULL;

	if (n)
		HASH_FIND_STR(n->configs, name, e);
	return e;
}

static int add_ns(struct policy_set *set, const char *ns, struct ns_entry **ret)
{
	struct ns_entry *n = calloc(1, sizeof(*n));

	if (n)
		n->ns = strdup(ns);
	if (n && n->ns)
		HASH_ADD_KEYPTR(hh, set->namespaces, n->ns, strlen(n->ns), n);
	if (!n || !n->ns || !n->hh.tbl) {
		if (n)
			free(n->ns);
		free(n);
		return -ENOMEM;
	}
	*ret = n;
	return 0;
}

static void drop_empty_ns(struct policy_set *set, struct ns_entry *n)
{
	if (n->configs || n->closed)
		return;
	HASH_DEL(set->namespaces, n);
	ns_free(n);
}

static int add_config(struct policy_set *set, struct ns_entry *n, const char *name,
		      struct config_entry **ret)
{
	struct config_entry *e;
	int r;

	if (set->n_configs >= POLICY_CONFIGS_MAX)
		return -E2BIG;
	r = policy_index_reserve(&n->index, HASH_COUNT(n->configs) + 1);
	if (r < 0)
		return r;
	e = calloc(1, sizeof(*e));
	if (e)
		e->name = strdup(name);
	if (e && e->name)
		HASH_ADD_KEYPTR(hh, n->configs, e->name, strlen(e->name), e);
	if (!e || !e->name || !e->hh.tbl) {
		if (e)
			free(e->name);
		free(e);
		return -ENOMEM;
	}
	set->n_configs++;
	*ret = e;
	return 0;
}

/* Finds or makes the entry of NS/NAME, and marks its namespace as changed. */
static int touch(struct policy_set *set, const char *ns, const char *name,
		 struct config_entry **ret)
{
	struct ns_entry *n = policy_set_find_ns(set, ns);
	struct config_entry *e;
	int r = 0;

	if (!n)
		r = add_ns(set, ns, &n);
	if (r < 0)
		return r;
	e = policy_set_find(n, name);
	if (!e)
		r = add_config(set, n, name, &e);
	if (r < 0) {
		drop_empty_ns(set, n);
		return r;
	}
	changed(set, n);
	*ret = e;
	return 0;
}

int policy_set_put(struct policy_set *set, struct namespace_config *config)
{
	_cleanup_(namespace_config_freep) struct namespace_config *c = config;
	struct config_entry *e = policy_set_find(policy_set_find_ns(set, c->id.ns), c->id.name);
	int r;

	if (e && !e->cause && is_same(&c->id, &e->config->id))
		return 0;
	r = touch(set, c->id.ns, c->id.name, &e);
	if (r < 0)
		return r;
	entry_done(e);
	e->config = TAKE_PTR(c);
	return 0;
}

int policy_set_refuse(struct policy_set *set, struct namespace_config *standin, bool disabled,
		      const char *cause)
{
	_cleanup_(namespace_config_freep) struct namespace_config *c = standin;
	_cleanup_free_ char *copy = strdup(cause);
	struct config_entry *e = policy_set_find(policy_set_find_ns(set, c->id.ns), c->id.name);
	bool same_object = e && streq(e->config->id.uid, c->id.uid);
	int r;

	if (!copy)
		return -ENOMEM;
	if (same_object && e->cause && streq(e->cause, cause) && c->id.generation > 0 &&
	    e->refused_generation == c->id.generation)
		return 0;
	r = touch(set, c->id.ns, c->id.name, &e);
	if (r < 0)
		return r;
	free(e->cause);
	e->cause = TAKE_PTR(copy);
	e->refused_generation = c->id.generation;
	if (same_object && !e->stands_in && !disabled)
		return 0; /* the last good version stays */
	namespace_config_free(e->config);
	e->config = TAKE_PTR(c);
	e->stands_in = true;
	return 0;
}

int policy_set_close(struct policy_set *set, const char *ns, bool closed)
{
	struct ns_entry *n = policy_set_find_ns(set, ns);
	int r = 0;

	if (!n && closed)
		r = add_ns(set, ns, &n);
	if (r < 0 || !n || n->closed == closed)
		return r;
	n->closed = closed;
	changed(set, n);
	drop_empty_ns(set, n);
	return 0;
}

int policy_set_refuse_cluster(struct policy_set *set, bool disabled, const char *cause)
{
	_cleanup_free_ char *copy = NULL;

	if (set->cluster) {
		if (disabled && set->cluster->defaults.mode != MODE_DISABLED) {
			all_changed(set);
			set->cluster->defaults.mode = MODE_DISABLED;
		}
		return 0;
	}
	if (set->cluster_cause && streq(set->cluster_cause, cause))
		return 0;
	copy = strdup(cause);
	if (!copy)
		return -ENOMEM;
	all_changed(set);
	free(set->cluster_cause);
	set->cluster_cause = TAKE_PTR(copy);
	return 0;
}

void policy_set_remove(struct policy_set *set, const char *ns, const char *name)
{
	struct ns_entry *n = policy_set_find_ns(set, ns);
	struct config_entry *e = policy_set_find(n, name);

	if (!*ns && (set->cluster || set->cluster_cause)) {
		(void)!policy_set_cluster(set, NULL);
		return;
	}
	if (!e)
		return;
	changed(set, n);
	HASH_DEL(n->configs, e);
	entry_done(e);
	free(e->name);
	free(e);
	set->n_configs--;
	drop_empty_ns(set, n);
}

const struct cluster_config *policy_set_get_cluster(const struct policy_set *set)
{
	return set->cluster;
}

uint64_t policy_set_without_room(const struct policy_set *set)
{
	return set->without_room;
}

uint64_t policy_set_revision(const struct policy_set *set)
{
	return set->revision;
}
