/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct node_state: what was sent to one node, as revisions, and what may have changed since. It
 * holds an entry of some 64 bytes for each pod and policy, never the contents: those are read from
 * the caches when they are sent, so a slow agent gets only the latest state of each pod.
 *
 * Entries are in the order of their last change. An agent at revision R lacks the entries after R
 * in that order: that is the log to resume from. Deleted entries stay in it until there are
 * NODE_TOMBSTONES_MAX of them; an agent that is behind the last one forgotten needs a snapshot.
 *
 * Loop thread only.
 */
#pragma once

#include "operator/stream/node_view.h"

enum {
	NODE_PODS_MAX = 4096,
	NODE_TOMBSTONES_MAX = 64,
};

struct node_state;

/* BASE: the first revision is above it. */
int node_state_new(struct node_view *view, const char *node, uint64_t base,
		   struct node_state **ret) _must_check_;
struct node_state *node_state_free(struct node_state *n);
DEFINE_CLEANUP(struct node_state *, node_state_free)

const char *node_state_name(const struct node_state *n);
uint64_t node_state_revision(const struct node_state *n);
size_t node_state_bytes(const struct node_state *n);
size_t node_state_entries(const struct node_state *n);
uint64_t node_state_refused(const struct node_state *n); /* pods beyond NODE_PODS_MAX, no memory */

/* Marks a pod that may have changed. */
void node_state_touch(struct node_state *n, const uint8_t uid[16], const char *uid_text);
/* Marks a destination that may have changed. False: the node does not need it. */
bool node_state_touch_destination(struct node_state *n, const char *id);
/*
 * The destinations that the node needs and that are left out, up to LEFT_OUT_MAX: the cluster's
 * first, at most LEFT_OUT_NAMESPACE_MAX of each other namespace. Returns how many. Valid as long as
 * destination_table_left_out().
 */
size_t node_state_left_out(const struct node_state *n,
			   const struct left_out *ret[static LEFT_OUT_MAX]);
/* Marks all pods. */
void node_state_touch_all(struct node_state *n);
/* Marks only the policy of a pod. A pod without an entry is not added. */
void node_state_touch_policy(struct node_state *n, const uint8_t uid[16]);
void node_state_touch_policies(struct node_state *n);
/* BRIEF: the agent understands Update.pod_policies. */
void node_state_set_brief(struct node_state *n, bool brief);
/* True when nothing is marked, and no policy is left to be deleted. */
bool node_state_clean(const struct node_state *n);

/* True when an agent that has REVISION can be sent the changes since then. */
bool node_state_resumes(const struct node_state *n, uint64_t revision);
/*
 * Appends to OUT the fields of an Update (pods, policies, deletions) that an agent at *REVISION
 * lacks, until LIMIT bytes are reached, and sets *REVISION to the agent's revision after that. True
 * when there is more. A snapshot has no deletions; they wait until it is over.
 */
bool node_state_collect(struct node_state *n, bool snapshot, size_t limit, uint64_t *revision,
			struct buf *out);
