/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct match_counts: for each config the number of pods whose policy it is, and of the nodes they
 * run on. Follows every change of a pod at once. After a change of a policy or of a namespace's
 * labels the affected pods are evaluated again in batches, by match_counts_work(). Uses the marks
 * of the pod store (pod_set_mark()). Loop thread only.
 */
#pragma once

#include "operator/cache/meta_store.h"
#include "operator/policy/policy.h"

struct match_counts;

struct match_result {
	uint32_t pods;	/* enabled ones, not terminated */
	uint32_t nodes; /* distinct */
	/* Pods that are not profiled because the config is Disabled. */
	uint32_t held_off;
	/* Of those nodes, from their agents' reports; all 0 without node_reports. */
	uint32_t programmed, degraded;
};

/* The reports of agents, implemented by operator/nodes. NODE: match_node_key(). */
enum { NODE_APPLIES = 1, NODE_DEGRADED = 2 };
struct node_totals {
	uint32_t nodes;	   /* whose agents have reported */
	uint32_t applied;  /* that are connected and run the current configuration */
	uint32_t degraded; /* not Ready, or away */
};
struct status_cause {
	const char *reason; /* of a condition; good until control goes back to the loop */
	char text[1024];
};
struct node_reports {
	/* NODE_APPLIES when the agent of NODE applies POLICY, NODE_DEGRADED when it is degraded. */
	unsigned int (*state)(void *arg, uint64_t node, uint64_t policy);
	void (*totals)(void *arg, struct node_totals *ret);
	/* The number of nodes that cannot export to the destination NAME of the tenant NS. */
	uint32_t (*failing)(void *arg, const char *ns, const char *name);
	/*
	 * Why a node that needs the destination NAME of the configs of NS ("": the cluster's) is
	 * not sent it. False: no such node is known.
	 */
	bool (*left_out)(void *arg, const char *ns, const char *name, struct status_cause *ret);
	void *arg;
};
uint64_t match_node_key(const char *node);

int match_counts_new(struct policy_set *policies, struct pod_store *pods,
		     struct meta_store *namespaces, struct meta_store *nodes,
		     struct match_counts **ret) _must_check_;
struct match_counts *match_counts_free(struct match_counts *m);
DEFINE_CLEANUP(struct match_counts *, match_counts_free)

/* From pod_store's `changed`. True when a count may have changed. */
bool match_counts_pod(struct match_counts *m, const struct pod *pod, const struct pod *old);
/* The labels of a namespace changed, or it came or went. */
void match_counts_namespace(struct match_counts *m, const char *ns);
/* A node's labels, which choose its group, changed: its pods are evaluated at once. */
void match_counts_node(struct match_counts *m, const char *node);
/* A config in NS changed, or ("") the cluster's. BEFORE: the policies' revision until then. */
void match_counts_policies(struct match_counts *m, const char *ns, uint64_t before);
/*
 * Evaluates up to MAX pods of the queued namespaces; returns false when none are left. Calls DONE
 * with each namespace whose pods have all been evaluated; after a change that affects every pod
 * once, with "", when the last of them has.
 */
bool match_counts_work(struct match_counts *m, size_t max, void (*done)(void *arg, const char *ns),
		       void *arg);
/*
 * True when pods of NS are still queued. NS "": true until all pods have been counted once; later
 * changes do not count, because frequent changes of policies would keep this true.
 */
bool match_counts_pending(const struct match_counts *m, const char *ns);
/* NS "" and NAME "": all pods that are profiled. REPORTS may be NULL. */
struct match_result match_counts_read(const struct match_counts *m, const char *ns,
				      const char *name, const struct node_reports *reports);

/*
 * The effective policy of a pod, for the node stream and for statuses. -E2BIG: labels of the pod
 * were cut; -ENOENT: its namespace is not known; or the error of policy_resolve().
 */
int match_resolve(struct policy_set *policies, struct meta_store *namespaces,
		  struct meta_store *nodes, const struct pod_info *pod,
		  const struct effective_policy **ret,
		  const struct namespace_config **ret_config) _must_check_;
