/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Computes exactly one effective policy for each pod from the configs: merge, select, clamp. A pure
 * function of its inputs; the status writer and the node stream call the same one. The order is in
 * docs/policy.md.
 *
 * struct policy_set holds the configs of the cluster, indexed by namespace; it owns them. Effective
 * policies are interned: two pods of the same policy get the same pointer, and `id` (a hash of the
 * contents) is the same in every replica and after every restart.
 */
#pragma once

#include "operator/policy/config.h"

#define POLICY_MODE_ANNOTATION "profiling.kiln.dev/mode"
enum {
	POLICY_CLAMPED_MAX = 17,
	POLICY_DISTINCT_MAX = 1 << 16,
	POLICY_CONFIGS_MAX = 1 << 16,	     /* in all namespaces, also the refused ones */
	POLICY_NAMESPACE_CONFIGS_MAX = 1024, /* enabled ones of a namespace; the oldest are used */
};

struct label {
	const char *key, *value;
};
/* The properties of a pod that decide its policy. Label arrays in any order. */
struct policy_subject {
	const char *ns;
	const struct label *namespace_labels;
	size_t n_namespace_labels;
	const struct label *pod_labels;
	size_t n_pod_labels;
	const char *mode_annotation; /* NULL: none */
	/* Of the pod's node, from policy_node_group(); NULL: none. Its rate replaces the
	 * defaults'. */
	const struct node_group *group;
};

struct policy_destination {
	const char *ns; /* "" = the operator's namespace, else the tenant's (for its secrets) */
	const struct destination *destination;
};

struct effective_policy {
	uint64_t id;
	bool enabled;
	int hz, off_cpu_per_mille; /* 0 per mille: no off-CPU */
	int priority;		   /* the budget of a node cuts the lowest first */
	enum toggle tracers[TRACER_COUNT];
	struct policy_destination destinations[CONFIG_DESTINATIONS_MAX];
	size_t n_destinations;
	const char *labels[CONFIG_LABELS_MAX]; /* keys that may leave the node */
	size_t n_labels;
	bool timestamps;
};

/* One field of a config that the guard-rails changed. */
struct policy_clamp {
	char field[64], requested[128], effective[128], reason[128];
};

/* The reason of a verdict: the namespace's configs are too many or too large. */
#define POLICY_OVER_QUOTA "NamespaceOverQuota"

/* The outcome of one config, for its status. */
struct policy_verdict {
	bool accepted;
	const char *reason; /* CamelCase, "Accepted", "Invalid", "Conflict", ... */
	/* Of a namespace's config: id of the policy of its pods on nodes of no group; 0: none. */
	uint64_t effective;
	char message[768];
	/*
	 * Settings without effect: unknown fields, parts that agents of this version lack. "":
	 * none.
	 */
	char ineffective[768];
	struct policy_clamp clamped[POLICY_CLAMPED_MAX];
	size_t n_clamped;
};

struct policy_set;

int policy_set_new(struct policy_set **ret) _must_check_;
struct policy_set *policy_set_free(struct policy_set *set);
DEFINE_CLEANUP(struct policy_set *, policy_set_free)

/*
 * Take ownership of the config, also on failure (-ENOMEM, -E2BIG). NULL removes the cluster's: then
 * nothing is profiled. A config with the uid and generation (above 0) of the present one changes
 * nothing: only its status or labels were written.
 */
int policy_set_cluster(struct policy_set *set, struct cluster_config *config) _must_check_;
int policy_set_put(struct policy_set *set, struct namespace_config *config) _must_check_;
void policy_set_remove(struct policy_set *set, const char *ns, const char *name);
/*
 * Records that an object was refused: its verdict is CAUSE. In its place the set uses STANDIN
 * (namespace_config_salvage()) if the object has mode Disabled (DISABLED), else the last accepted
 * version of the same object, else STANDIN. Takes ownership of STANDIN, also on failure.
 */
int policy_set_refuse(struct policy_set *set, struct namespace_config *standin, bool disabled,
		      const char *cause) _must_check_;
/*
 * The same for the cluster's config: the last accepted one stays in use, with its defaults Disabled
 * if the refused one has that (DISABLED). Without an accepted one nothing is profiled.
 */
int policy_set_refuse_cluster(struct policy_set *set, bool disabled,
			      const char *cause) _must_check_;
/*
 * CLOSED: not all configs of the namespace are known, so nothing in it is profiled until this is
 * called with false.
 */
int policy_set_close(struct policy_set *set, const char *ns, bool closed) _must_check_;
const struct cluster_config *policy_set_get_cluster(const struct policy_set *set);
/* Goes up with every change: a caller that caches a resolved policy compares it. */
uint64_t policy_set_revision(const struct policy_set *set);

/*
 * The effective policy, which lives until the set is freed or changed (policy_set_revision), and,
 * when RET_CONFIG is not NULL, the config of the namespace that decided last (NULL: only the
 * cluster's). A policy for which there is no room (POLICY_DISTINCT_MAX) is off. -ENOMEM.
 */
int policy_resolve(struct policy_set *set, const struct policy_subject *subject,
		   const struct effective_policy **ret,
		   const struct namespace_config **ret_config) _must_check_;
/* How often a pod was off because there was no room for its policy. */
uint64_t policy_set_without_room(const struct policy_set *set);
/* The largest rate that any policy can ask for: the node's timer. 0: nothing is profiled. */
int policy_set_max_hz(struct policy_set *set);
/* The same for the nodes of one group, or of none (NULL). */
int policy_group_max_hz(struct policy_set *set, const struct node_group *group);
/* The first group whose labels the node has; NULL: none. Lives as long as the cluster's config. */
const struct node_group *policy_node_group(const struct policy_set *set,
					   const struct label *node_labels, size_t n);
/* True when there is a cluster config and its namespaceSelector matches the namespace's LABELS. */
bool policy_namespace_allowed(const struct policy_set *set, const struct label *labels, size_t n);
/* The verdict on the config NAME of namespace NS; NS "": on the cluster's. -ENOENT: there is no
 * such config. In a closed namespace every name has a verdict, the same for all. */
int policy_verdict(struct policy_set *set, const char *ns, const char *name,
		   struct policy_verdict *ret) _must_check_;
bool selector_matches(const struct selector *selector, const struct label *labels, size_t n);
