/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queries of a set: the effective policy of a pod, the rate of a node's timer, the verdict on a
 * config. A namespace is put in order at its first query after a change. A config whose newest
 * version was refused keeps its last accepted version, or counts as Disabled: an error in a config
 * never profiles a pod that its author did not ask for. Loop thread.
 */
#include "operator/policy/set_internal.h"

#include "lib/fields.h"

/* The first name in destinationRefs that is no destination; NULL: there is none. */
static const char *unknown_ref(const struct policy_set *set, const struct namespace_config *c,
			       size_t *ret_at)
{
	const struct string_list *refs = &c->profile.destination_refs;
	bool own;

	for (size_t i = 0; i < refs->n; i++)
		if (!destination_find(set->cluster, c, refs->items[i], &own)) {
			*ret_at = i;
			return refs->items[i];
		}
	return NULL;
}

static enum standing standing_alone(const struct policy_set *set, const struct config_entry *e)
{
	size_t at;

	if (e->cause)
		return INVALID;
	if (!set->cluster)
		return NO_CLUSTER;
	return unknown_ref(set, e->config, &at) ? NO_DESTINATION : ACCEPTED;
}

static bool is_older(const struct namespace_config *a, const struct namespace_config *b)
{
	if (a->id.created != b->id.created)
		return a->id.created < b->id.created;
	return strcmp(a->id.name, b->id.name) < 0;
}

static int compare_age(const struct config_entry *a, const struct config_entry *b)
{
	return is_older(a->config, b->config) ? -1 : 1;
}

/* E has no podSelector. The oldest such config is the namespace's default; the others conflict. */
static void propose_fallback(struct ns_entry *n, struct config_entry *e)
{
	if (!n->fallback)
		n->fallback = e;
	else if (e->standing != INVALID)
		e->standing = CONFLICT;
}

/* In order of age, so that the configs beyond a quota depend on the objects alone. */
static void put_in_order(struct policy_set *set, struct ns_entry *n)
{
	struct config_entry *e;
	size_t counted = 0;

	n->fallback = NULL;
	policy_index_clear(&n->index);
	HASH_SRT(hh, n->configs, compare_age);
	for (e = n->configs; e; e = e->hh.next) {
		e->standing = standing_alone(set, e);
		if (!set->cluster)
			continue;
		if (e->config->profile.mode != MODE_DISABLED &&
		    ++counted > POLICY_NAMESPACE_CONFIGS_MAX)
			e->standing = TOO_MANY;
		if (e->config->pods.set)
			policy_index_add(&n->index, e->config, e);
		else
			propose_fallback(n, e);
	}
	policy_index_sort(&n->index);
	n->ordered = true;
}

static struct ns_entry *ordered_ns(struct policy_set *set, const char *ns)
{
	struct ns_entry *n = policy_set_find_ns(set, ns);

	if (n && !n->ordered)
		put_in_order(set, n);
	return n;
}

static int intern(struct policy_set *set, struct effective_policy *policy,
		  const struct effective_policy **ret)
{
	uint8_t digest[POLICY_DIGEST_SIZE];
	struct interned *p;
	int r = policy_digest(policy, digest);

	if (r < 0)
		return r;
	HASH_FIND(hh, set->interned, digest, sizeof(digest), p);
	if (!p) {
		if (HASH_COUNT(set->interned) >= POLICY_DISTINCT_MAX)
			return -E2BIG;
		p = calloc(1, sizeof(*p));
		if (!p)
			return -ENOMEM;
		p->policy = *policy;
		p->policy.id = policy_id(digest);
		memcpy(p->digest, digest, sizeof(digest));
		HASH_ADD(hh, set->interned, digest, sizeof(p->digest), p);
		if (!p->hh.tbl) {
			free(p);
			return -ENOMEM;
		}
	}
	*ret = &p->policy;
	return 0;
}

/* The index of a group in arrays by group: 0 is no group (or a group of a config that is gone). */
static size_t group_slot(const struct policy_set *set, const struct node_group *group)
{
	for (size_t i = 0; group && set->cluster && i < set->cluster->n_groups; i++)
		if (group == &set->cluster->groups[i])
			return i + 1;
	return 0;
}

static const struct node_group *group_at(const struct policy_set *set, size_t slot)
{
	return slot ? &set->cluster->groups[slot - 1] : NULL;
}

static const struct namespace_config *config_of(const struct config_entry *e)
{
	return e ? e->config : NULL;
}

/* The answer for a choice of layers, with its mode; computed once for each revision. */
static struct answer *answer(struct policy_set *set, const struct config_entry *fallback,
			     struct config_entry *best)
{
	struct answer *a = best ? &best->answer : &set->base;
	struct merged_profile merged;

	if (a->revision == set->revision)
		return a;
	profile_merge(set->cluster, NULL, config_of(fallback), config_of(best), &merged);
	*a = (struct answer){.revision = set->revision, .mode = merged.mode};
	return a;
}

/* The policy of an enabled pod: BEST over FALLBACK over the cluster's. */
static int policy_on(struct policy_set *set, const struct config_entry *fallback,
		     const struct config_entry *best, size_t slot, struct answer *a,
		     const struct effective_policy **ret)
{
	struct merged_profile merged;
	struct effective_policy policy;
	int r = 0;

	if (!a->on[slot]) {
		profile_merge(set->cluster, group_at(set, slot), config_of(fallback),
			      config_of(best), &merged);
		profile_clamp(set->cluster, &merged, &policy);
		r = intern(set, &policy, &a->on[slot]);
	}
	if (r == -E2BIG) {
		a->no_room = true;
		set->without_room++;
		*ret = &set->off;
		return 0;
	}
	if (r == 0)
		*ret = a->on[slot];
	return r;
}

bool policy_namespace_allowed(const struct policy_set *set, const struct label *labels, size_t n)
{
	return set->cluster && selector_matches(&set->cluster->guardrails.namespaces, labels, n);
}

const struct node_group *policy_node_group(const struct policy_set *set,
					   const struct label *node_labels, size_t n)
{
	for (size_t i = 0; set->cluster && i < set->cluster->n_groups; i++)
		if (selector_matches(&set->cluster->groups[i].nodes, node_labels, n))
			return &set->cluster->groups[i];
	return NULL;
}

static bool is_on(const struct policy_set *set, enum profile_mode mode,
		  const struct policy_subject *s)
{
	const char *asks = s->mode_annotation ? s->mode_annotation : "";

	if (!policy_namespace_allowed(set, s->namespace_labels, s->n_namespace_labels))
		return false;
	if (mode == MODE_OPT_IN)
		return streq(asks, "enabled");
	if (streq(asks, "disabled") && !set->cluster->guardrails.pod_opt_out_forbidden)
		return false;
	return mode == MODE_ENABLED;
}

/* True when E is beyond the namespace's quota: its pods are not profiled. */
static bool is_left_out(const struct config_entry *e)
{
	return e && e->standing == TOO_MANY;
}

int policy_resolve(struct policy_set *set, const struct policy_subject *subject,
		   const struct effective_policy **ret, const struct namespace_config **ret_config)
{
	struct config_entry *best = NULL, *fallback = NULL;
	struct ns_entry *n;
	struct answer *a;
	int r = 0;

	if (!set->cluster) {
		*ret = &set->off;
		if (ret_config)
			*ret_config = NULL;
		return 0;
	}
	n = ordered_ns(set, subject->ns);
	if (n) {
		fallback = n->fallback;
		best = policy_index_find(&n->index, subject->pod_labels, subject->n_pod_labels);
	}
	if (!best) {
		best = fallback;
		fallback = NULL;
	}
	a = answer(set, fallback, best);
	if ((n && n->closed) || is_left_out(fallback) || is_left_out(best) ||
	    !is_on(set, a->mode, subject))
		*ret = &set->off;
	else
		r = policy_on(set, fallback, best, group_slot(set, subject->group), a, ret);
	if (r == 0 && ret_config)
		*ret_config = config_of(best);
	return r;
}

static void raise_hz(struct policy_set *set, const struct config_entry *fallback,
		     const struct config_entry *best)
{
	if (is_left_out(fallback) || is_left_out(best))
		return;
	for (size_t slot = 0; slot <= set->cluster->n_groups; slot++) {
		struct merged_profile merged;

		profile_merge(set->cluster, group_at(set, slot), config_of(fallback),
			      config_of(best), &merged);
		if (merged.mode != MODE_DISABLED)
			set->max_hz[slot] =
			    MAX(set->max_hz[slot], hz_clamp(&set->cluster->guardrails, merged.hz));
	}
}

static void work_out_hz(struct policy_set *set)
{
	struct ns_entry *n;

	if (set->hz_revision == set->revision)
		return;
	memset(set->max_hz, 0, sizeof(set->max_hz));
	set->hz_revision = set->revision;
	if (!set->cluster)
		return;
	raise_hz(set, NULL, NULL);
	for (n = set->namespaces; n; n = n->hh.next) {
		if (n->closed)
			continue;
		if (!n->ordered)
			put_in_order(set, n);
		if (n->fallback)
			raise_hz(set, NULL, n->fallback);
		for (uint32_t i = 0; i < n->index.n; i++)
			raise_hz(set, n->fallback, n->index.items[i].entry);
	}
}

int policy_group_max_hz(struct policy_set *set, const struct node_group *group)
{
	work_out_hz(set);
	return set->max_hz[group_slot(set, group)];
}

int policy_set_max_hz(struct policy_set *set)
{
	int hz = 0;

	work_out_hz(set);
	for (size_t i = 0; i < ARRAY_SIZE(set->max_hz); i++)
		hz = MAX(hz, set->max_hz[i]);
	return hz;
}

#define SET_MESSAGE(v, ...) snprintf((v)->message, sizeof((v)->message), __VA_ARGS__)

static void refuse(struct policy_verdict *v, const char *reason)
{
	v->accepted = false;
	v->reason = reason;
}

static void accept(struct policy_verdict *v)
{
	v->accepted = true;
	v->reason = "Accepted";
	if (!v->n_clamped)
		SET_MESSAGE(v, "accepted");
	else if (v->n_clamped == 1)
		SET_MESSAGE(v, "accepted; the guard-rails changed %s", v->clamped[0].field);
	else
		SET_MESSAGE(v, "accepted; the guard-rails changed %zu fields", v->n_clamped);
}

/* The name of a destination that C may use that is most like NAME, or NULL. */
static const char *nearest_ref(const struct policy_set *set, const struct namespace_config *c,
			       const char *name)
{
	const char *names[CONFIG_DESTINATIONS_MAX + CONFIG_TENANT_DESTINATIONS_MAX + 1];
	size_t n = 0;

	for (size_t i = 0; i < c->n_destinations && n < CONFIG_TENANT_DESTINATIONS_MAX; i++)
		names[n++] = c->destinations[i].name;
	for (size_t i = 0; i < set->cluster->n_destinations && n < ARRAY_SIZE(names) - 1; i++)
		names[n++] = set->cluster->destinations[i].name;
	names[n] = NULL;
	return nearest_choice(name, names);
}

static void explain_ref(const struct policy_set *set, const struct namespace_config *c,
			struct policy_verdict *v)
{
	size_t at = 0;
	const char *name = unknown_ref(set, c, &at), *nearest = nearest_ref(set, c, name);

	refuse(v, "DestinationNotFound");
	SET_MESSAGE(v,
		    "spec.profile.destinationRefs[%zu]: want the name of a destination of the "
		    "cluster's or of spec.destinations, got %s%s%s%s Nothing is sent there; the "
		    "rest of the config is in effect",
		    at, quote_text(name).text, nearest ? "; did you mean " : "",
		    nearest ? nearest : "", nearest ? "?" : ".");
}

static int cluster_verdict(const struct policy_set *set, struct policy_verdict *v)
{
	if (set->cluster_cause) {
		refuse(v, "Invalid");
		SET_MESSAGE(v, "%s", set->cluster_cause);
		return 0;
	}
	if (!set->cluster)
		return -ENOENT;
	clamps_of_cluster(set->cluster, v);
	ineffective_of_cluster(set->cluster, v);
	accept(v);
	return 0;
}

/* The policy of the pods that E decides for, whatever their annotations. */
static uint64_t effective_id(struct policy_set *set, const struct ns_entry *n,
			     struct config_entry *e)
{
	const struct config_entry *fallback = e == n->fallback ? NULL : n->fallback;
	const struct effective_policy *policy = &set->off;
	struct answer *a = answer(set, fallback, e);

	if (a->mode != MODE_DISABLED && policy_on(set, fallback, e, 0, a, &policy) < 0)
		return 0;
	return policy->id;
}

int policy_verdict(struct policy_set *set, const char *ns, const char *name,
		   struct policy_verdict *ret)
{
	const struct ns_entry *n = ordered_ns(set, ns);
	struct config_entry *e = policy_set_find(n, name);

	if (!*ns && streq(name, "cluster") && (set->cluster || set->cluster_cause)) {
		*ret = (struct policy_verdict){.n_clamped = 0};
		return cluster_verdict(set, ret);
	}
	if (!e && !(n && n->closed))
		return -ENOENT;
	*ret = (struct policy_verdict){.n_clamped = 0};
	if (n->closed) {
		refuse(ret, POLICY_OVER_QUOTA);
		SET_MESSAGE(ret,
			    "the ProfilingConfigs of namespace %s are too many or too large: "
			    "nothing in it is profiled until some of them are deleted",
			    n->ns);
		return 0;
	}
	if (!e->cause)
		ineffective_of_namespace(e->config, ret);
	switch (e->standing) {
	case ACCEPTED:
		ret->effective = effective_id(set, n, e);
		clamps_of_namespace(set->cluster, e->config, ret);
		accept(ret);
		if (e->answer.revision != set->revision || !e->answer.no_room)
			break;
		refuse(ret, "TooManyPolicies");
		SET_MESSAGE(ret,
			    "the cluster has more than %d different policies: the pods of this "
			    "config are not profiled",
			    POLICY_DISTINCT_MAX);
		break;
	case INVALID:
		refuse(ret, "Invalid");
		SET_MESSAGE(ret, "%s; %s", e->cause,
			    !e->stands_in ? "the last accepted version stays in effect"
					  : "its pods are not profiled");
		break;
	case TOO_MANY:
		refuse(ret, "TooManyConfigs");
		SET_MESSAGE(ret,
			    "namespace %s has more than %d configs that enable profiling: of this "
			    "one, and all that are younger, the pods are not profiled",
			    n->ns, POLICY_NAMESPACE_CONFIGS_MAX);
		break;
	case NO_CLUSTER:
		refuse(ret, "NoClusterConfig");
		SET_MESSAGE(ret, set->cluster_cause
				     ? "ClusterProfilingConfig cluster is not accepted: nothing "
				       "is profiled"
				     : "there is no ClusterProfilingConfig cluster: nothing is "
				       "profiled");
		break;
	case NO_DESTINATION:
		explain_ref(set, e->config, ret);
		break;
	case CONFLICT:
		refuse(ret, "Conflict");
		SET_MESSAGE(ret,
			    "spec.podSelector: absent, as in %s, which is the namespace's default: "
			    "of several the oldest counts",
			    n->fallback->name);
		break;
	}
	return 0;
}
