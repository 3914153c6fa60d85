/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct pod_content: the objects of a pod table, without events: pods by uid and config hash,
 * container ids, policies, destinations. While a snapshot arrives the table has two: the current
 * one, and the one that the snapshot fills. Part of the pod table; loop thread.
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
	uint64_t until_ms;	      /* 0: live; else deleted, and removed at this time */
	struct pod_slot *prev, *next; /* deleted ones, oldest first */
};

struct pod_id {
	UT_hash_handle hh;
	uint8_t id[POD_CONTAINER_ID_BYTES];
	struct pod_object *object;
	uint64_t until_ms; /* 0: the pod has this id; else a former id, removed at this time */
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
/* The object of a slot that is not deleted; NULL: there is none. */
static inline struct pod_object *pod_content_live(struct pod_slot *slots, const void *key,
						  size_t len)
{
	struct pod_slot *slot = pod_content_find(slots, key, len);

	return slot && !slot->until_ms ? slot->object : NULL;
}

/*
 * Stores OBJECT under its key and takes a reference of its own. *RET_OLD is the object that it
 * replaces, with a reference, or NULL (also if the pod was deleted). -E2BIG: no room for one more,
 * counted; -ENOMEM. On failure the content is unchanged.
 */
int pod_content_put(struct pod_content *c, struct pod_object *object, uint64_t now_ms,
		    struct pod_object **ret_old) _must_check_;
/* Deletes the pod; the caller gets its reference. NULL: there is no such pod. A deleted pod can be
 * found for POD_LINGER_MS. */
struct pod_object *pod_content_delete_pod(struct pod_content *c, const char *uid, uint64_t now_ms);
/* The same, but the pod cannot be found afterwards, as if it had never existed. */
struct pod_object *pod_content_forget_pod(struct pod_content *c, const char *uid);
struct pod_object *pod_content_delete(struct pod_content *c, struct pod_slot **slots,
				      const void *key, size_t len);
void pod_content_set_default(struct pod_content *c, struct pod_object *policy);

/* Moves the pods and ids of OLD that C does not have to C, as deleted ones. */
void pod_content_inherit(struct pod_content *c, struct pod_content *old, uint64_t now_ms);
/* True when something was removed. */
bool pod_content_expire(struct pod_content *c, uint64_t now_ms);
