/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct node_state: what one node was told, as revisions, and what may have changed since. It
 * holds an entry of some 64 bytes for each pod and policy, never the contents: those are read from
 * the caches when they are sent, so what waits for a slow agent is the latest of each pod and
 * nothing more.
 *
 * Entries are in the order of their last change. What an agent at revision R lacks is what comes
 * after R in that order: that is the log to resume from. Deleted entries stay in it until there are
 * NODE_TOMBSTONES_MAX of them; who is behind the last one that was forgotten needs a snapshot.
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

/* Something about the pod is, or may be, another. */
void node_state_touch(struct node_state *n, const uint8_t uid[16], const char *uid_text);
/* The destination is, or may be, another. False: the node needs none such. */
bool node_state_touch_destination(struct node_state *n, const char *id);
/* What the node needs and is not told, up to LEFT_OUT_MAX: the cluster's first, of a namespace no
 * more than LEFT_OUT_NAMESPACE_MAX. Returns how many; good as long as what the table has. */
size_t node_state_left_out(const struct node_state *n,
			   const struct left_out *ret[static LEFT_OUT_MAX]);
/* About all of them. */
void node_state_touch_all(struct node_state *n);
/* Nothing but the policy; a pod that was never told is not told now. */
void node_state_touch_policy(struct node_state *n, const uint8_t uid[16]);
void node_state_touch_policies(struct node_state *n);
/* From now on an agent is told that understands Update.pod_policies, or not. */
void node_state_set_brief(struct node_state *n, bool brief);
/* Nothing may be left to look at. */
bool node_state_clean(const struct node_state *n);

/* Can an agent that has REVISION be told what changed since? */
bool node_state_resumes(const struct node_state *n, uint64_t revision);
/*
 * Appends fields of an Update (pods, policies, deletions) that an agent which has *REVISION lacks,
 * until LIMIT is reached, and puts *REVISION to what it then has. True when there is more. In a
 * snapshot nothing is deleted; that waits until it is over.
 */
bool node_state_collect(struct node_state *n, bool snapshot, size_t limit, uint64_t *revision,
			struct buf *out);
