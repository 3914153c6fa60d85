/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct node_view: the messages about pods for a node, made from the caches: identity and
 * effective policy, encoded as kiln.node.v1.Pod and Policy. Policies are encoded once and shared by
 * all nodes. Loop thread only.
 */
#pragma once

#include "lib/buf.h"
#include "operator/cache/meta_store.h"
#include "operator/cache/pod_store.h"
#include "operator/cache/service_index.h"
#include "operator/policy/policy.h"
#include "operator/stream/destinations.h"

enum {
	VIEW_ATTRIBUTES_MAX = 64, /* of a pod, and of a container */
	VIEW_KEY_MAX = 256,
	VIEW_VALUE_MAX = 1024,
	VIEW_POD_MAX = 512 << 10, /* bytes of a pod; then containers lose their attributes */
};

struct view_sources { /* borrowed */
	struct pod_store *pods;
	struct meta_store *namespaces, *nodes;
	struct service_index *services; /* NULL: none */
	struct policy_set *policies;
	const struct intern *strings;
};

struct view_policy {
	uint64_t id;
	uint32_t refs, len;
	void *hh;							/* of the view's table */
	struct view_destination *destinations[CONFIG_DESTINATIONS_MAX]; /* references */
	size_t n_destinations;
	uint8_t bytes[];
};

struct view_counts {
	uint64_t pods;		 /* encoded */
	uint64_t cut_attributes; /* beyond the limits above */
	uint64_t cut_containers; /* sent without attributes, for want of room in the pod */
	uint64_t without_policy; /* pods without a policy: too many policies, or no memory */
	size_t policies;
};

struct node_view;
int node_view_new(const struct view_sources *sources, struct node_view **ret) _must_check_;
struct node_view *node_view_free(struct node_view *view);
DEFINE_CLEANUP(struct node_view *, node_view_free)

/* Policies made after this call name their destinations. DESTINATIONS outlives the view. */
void node_view_use_destinations(struct node_view *view, struct destination_table *destinations);
struct destination_table *node_view_destinations(const struct node_view *view);
/* A buffer for destination_table_encode(); the caller wipes it after use. */
struct buf *node_view_secret_scratch(struct node_view *view);

/*
 * Encodes the pod UID of NODE without its policy into OUT, which is emptied first. *RET_POLICY is a
 * reference on the policy, which the caller gives back, or NULL. -ENOENT: NODE has no such pod that
 * can run; -ENOMEM.
 */
int node_view_pod(struct node_view *view, const char *node, const uint8_t uid[16], struct buf *out,
		  struct view_policy **ret_policy) _must_check_;
/* Only the policy, which costs a tenth. */
int node_view_pod_policy(struct node_view *view, const char *node, const uint8_t uid[16],
			 struct view_policy **ret) _must_check_;
/* A hash of the cluster config's settings that pods' attributes depend on. */
uint64_t node_view_settings(const struct node_view *view);
/* The policy of a node's processes that are in no pod. -ENOENT: there is none. */
int node_view_default(struct node_view *view, const char *node,
		      struct view_policy **ret) _must_check_;
/* The budget of agents; all 0 without a config. */
struct budget_spec node_view_budget(const struct node_view *view);
void node_view_unref(struct node_view *view, struct view_policy *policy);
/* A buffer for OUT above, owned by the view; valid until the next call. */
struct buf *node_view_scratch(struct node_view *view);
/* Every pod of NODE, in no order. UID_TEXT is valid during the call. */
int node_view_each(struct node_view *view, const char *node,
		   int (*fn)(void *arg, const uint8_t uid[16], const char *uid_text), void *arg);
/* "" while the namespace kube-system is not known. Valid until the next call. */
const char *node_view_cluster_uid(struct node_view *view);
void node_view_read(const struct node_view *view, struct view_counts *ret);
