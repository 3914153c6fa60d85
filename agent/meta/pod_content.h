/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct pod_content: what a pod table holds, without events: pods by uid and config hash,
 * container ids, policies, destinations. The table has two while a snapshot arrives: what counts,
 * and what is about to. Part of the pod table; loop thread.
 */
#pragma once

#define HASH_NONFATAL_OOM 1 /* an element that could not be added has no hh.tbl */

#include "agent/meta/pod_object.h"
#include "lib/uthash.h"

enum { POD_BYTES_MAX = 64 << 20 }; /* of all objects of a table */

struct pod_slot {
	UT_hash_handle hh;	/* by the object's key */
	UT_hash_handle hh_hash; /* pods: by config hash */
	struct pod_object *object;
	uint64_t until_ms;	      /* 0: live; else it is deleted, and forgotten then */
	struct pod_slot *prev, *next; /* deleted ones, oldest first */
};

struct pod_id {
	UT_hash_handle hh;
	uint8_t id[POD_CONTAINER_ID_BYTES];
	struct pod_object *object;
	uint64_t until_ms;	    /* 0: the pod has it; else it had */
	struct pod_id *prev, *next; /* former ones, oldest first */
};

/* Bytes of the objects that a table holds in any way. */
struct pod_budget {
	size_t bytes;
};

struct pod_content {
	struct pod_budget *budget;
	struct pod_slot *pods, *hashes, *policies, *destinations;
	struct pod_slot *deleted;
	struct pod_id *ids, *former_ids;
	size_t n_live, n_deleted;
	struct pod_object *default_policy;
	struct pod_counters *counters;
};

void pod_content_done(struct pod_content *c); /* leaves it empty */

struct pod_slot *pod_content_find(struct pod_slot *slots, const void *key, size_t len);
/* NULL: none, or it was one of a deleted pod's. */
static inline struct pod_object *pod_content_live(struct pod_slot *slots, const void *key,
						  size_t len)
{
	struct pod_slot *slot = pod_content_find(slots, key, len);

	return slot && !slot->until_ms ? slot->object : NULL;
}

/*
 * OBJECT becomes what its key stands for; takes a reference of its own. What it replaces is given
 * to the caller with its reference, or NULL (so it is for a pod that was deleted). -E2BIG: no room
 * for one more, counted; -ENOMEM. The content is unchanged on failure.
 */
int pod_content_put(struct pod_content *c, struct pod_object *object, uint64_t now_ms,
		    struct pod_object **ret_old) _must_check_;
/* Deletes; the caller gets the reference. NULL: there was none. A pod stays findable for a while.
 */
struct pod_object *pod_content_delete_pod(struct pod_content *c, const char *uid, uint64_t now_ms);
/* The same, but it is not findable any more, as if it had never been there. */
struct pod_object *pod_content_forget_pod(struct pod_content *c, const char *uid);
struct pod_object *pod_content_delete(struct pod_content *c, struct pod_slot **slots,
				      const void *key, size_t len);
void pod_content_set_default(struct pod_content *c, struct pod_object *policy);

/* What OLD still knows of pods and ids that C does not have moves to C as deleted. */
void pod_content_inherit(struct pod_content *c, struct pod_content *old, uint64_t now_ms);
/* True when something was forgotten. */
bool pod_content_expire(struct pod_content *c, uint64_t now_ms);
