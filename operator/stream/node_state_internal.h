/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by node_state.c (Updates, life), node_entries.c (the table), node_pods.c, node_policies.c
 * and node_destinations.c. An entry is named by its index, because the array moves when it grows.
 *
 * A node_..._look() compares a dirty entry with the caches, and appends what has changed to the
 * Update. Where one returns false, the entry must be looked at again: it is gone, which must wait
 * for the end of the snapshot, or memory ran out. A node_..._tell_again() appends an entry that was
 * sent before, in its current state. Loop thread only.
 */
#pragma once

#include "operator/stream/node_state.h"

enum {
	ENTRY_NONE = UINT16_MAX,
	/* Fields of Update in node.proto. */
	UPDATE_DESTINATIONS = 2,
	UPDATE_POLICIES = 3,
	UPDATE_PODS = 4,
	UPDATE_DELETED_PODS = 5,
	UPDATE_DELETED_POLICIES = 6,
	UPDATE_DELETED_DESTINATIONS = 7,
	UPDATE_DEFAULT_POLICY = 8,
	UPDATE_POD_POLICIES = 9,
	UPDATE_BUDGET = 10,
	BUDGET_CPU = 1,
	BUDGET_MEMORY = 2,
	POD_POLICY = 5,
	POD_POLICY_UID = 1,
	POD_POLICY_POLICY = 2,
};

enum entry_kind { ENTRY_FREE, ENTRY_POD, ENTRY_POLICY, ENTRY_DEFAULT, ENTRY_DESTINATION };

struct entry {
	uint8_t key[16]; /* a pod's uid, a policy's id, hashes of a destination's id */
	uint64_t revision;
	uint64_t hash; /* of a pod as it was sent, without its policy; 0: send all of it */
	union {
		struct view_policy *policy; /* a pod's; a policy itself, a tombstone's too */
		struct view_destination *destination;
	};
	char *uid_text; /* when it cannot be made from the key */
	/* of a policy: from pods and the default; of a destination: from policies that were sent */
	uint32_t refs;
	uint16_t chain;	     /* next entry of the hash chain, or of the list of free entries */
	uint16_t prev, next; /* by revision */
	uint16_t dirty_next;
	uint8_t kind;
	bool dirty, gone; /* gone: a tombstone */
	bool only_policy; /* only its policy may have changed */
};

struct node_state {
	struct node_view *view;
	struct entry *entries;
	uint16_t *buckets;
	size_t cap, used;	 /* cap: a power of two; as many buckets */
	uint16_t free_list;	 /* by chain */
	uint16_t oldest, newest; /* by revision */
	uint16_t dirty, dirty_last;
	/* idle: policies that were sent and have no reference */
	size_t n_dirty, n_pods, n_gone, n_idle;
	uint64_t revision, floor;
	uint64_t refused;
	bool brief;
	uint16_t fallback;	   /* the entry of kind DEFAULT: its revision is the budget's too */
	struct budget_spec budget; /* as it was sent */
	struct buf *scratch;	   /* the view's */
	char name[];
};

/* node_entries.c */
uint16_t node_entry_find(const struct node_state *n, uint8_t kind, const uint8_t key[16]);
/* ENTRY_NONE: there are as many as there may be, or no memory. */
uint16_t node_entry_make(struct node_state *n, uint8_t kind, const uint8_t key[16]);
/* The entry must not be dirty. */
void node_entry_forget(struct node_state *n, uint16_t i);
void node_entry_unref(struct node_state *n, const struct entry *e);
/* Gives the entry a new revision: the last one of the order. */
void node_entry_advance(struct node_state *n, uint16_t i);
/* Makes the entry a tombstone. */
void node_entry_bury(struct node_state *n, uint16_t i);
/* Forgets the oldest tombstones beyond NODE_TOMBSTONES_MAX. */
void node_entries_limit_tombstones(struct node_state *n);
void node_entry_set_dirty(struct node_state *n, uint16_t i);
/* The next dirty entry; there must be one. */
uint16_t node_entry_take_dirty(struct node_state *n);
/* The uid of a pod's entry, as text. */
void node_entry_uid(const struct entry *e, char ret[64]);
void node_entry_tell_gone(const struct entry *e, struct buf *out);

/* node_pods.c */
bool node_pod_look(struct node_state *n, uint16_t i, bool snapshot, struct buf *out);
void node_pod_tell_again(struct node_state *n, uint16_t i, struct buf *out);

/* node_policies.c */
/*
 * Sets the policy of an entry to POLICY (NULL: none), a reference that is taken over. Appends the
 * policy first when the node does not have it. False: no memory.
 */
bool node_policy_set(struct node_state *n, uint16_t i, struct view_policy *policy, struct buf *out);
/* Drops the reference of an entry. */
void node_policy_release(struct node_state *n, struct view_policy *policy);
/* Appends the default policy and the budget as they were sent before. */
void node_policy_tell_default(const struct node_state *n, struct buf *out);
void node_policy_look_at_default(struct node_state *n, uint16_t i, struct buf *out);
/* Appends the deletion of the policies that no entry refers to. */
void node_policies_delete_idle(struct node_state *n, struct buf *out);

/* node_destinations.c */
/* A policy that is sent refers to D; node_destination_release(): a deleted one did. */
void node_destination_hold(struct node_state *n, struct view_destination *d, struct buf *out);
void node_destination_release(struct node_state *n, const struct view_destination *d);
bool node_destination_look(struct node_state *n, uint16_t i, bool snapshot, struct buf *out);
void node_destination_tell_again(struct node_state *n, uint16_t i, struct buf *out);
