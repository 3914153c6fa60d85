/* SPDX-License-Identifier: Apache-2.0 */
/* The pod store's record and its tables, shared by its files only. */
#pragma once

#include "operator/cache/kept.h"
#include "operator/cache/pod_store.h"
#include "lib/ref_table.h"
#include "operator/cache/slab.h"

/*
 * One pod, of variable size. After the fixed part:
 *
 *   ids       n_ids * 32   of each container in turn: its id, its previous id, as its state says
 *   mirror    16           POD_MIRROR: the config hash of a static pod
 *   restarts  4 each       of the containers whose state says so
 *   states    1 each       enum container_state
 *   ip        ip_len       0, 4 or 16
 *   name      name_len + 1
 *   hostname  hostname_len + 1, without POD_HOSTNAME_IS_NAME
 *
 * ids come first and the size is a multiple of 8, so that indexes can name the place of an id. The
 * fields before `generation` and from `created` on are the pod's data; those between are the
 * store's. `containers` is a string of struct container_static, the same one for all pods of a
 * workload; 0 without containers, and when the namespace had no room for it.
 */
struct pod {
	uint8_t uid[16];
	interned ns, node, owner, labels, annotations, containers;
	interned uid_text; /* 0: kept_uid_text(uid) */

	uint32_t generation;
	uint32_t node_next, node_prev, ns_next, ns_prev;
	uint32_t mark; /* pod_mark() */
	uint32_t pad;

	int64_t created;
	uint16_t tail; /* bytes used after the fixed part */
	uint8_t name_len, hostname_len, ip_len;
	uint8_t n_containers, n_ids;
	uint8_t flags;
	uint8_t rest[];
};
_Static_assert(offsetof(struct pod, generation) == 44, "first part that is compared");
_Static_assert(offsetof(struct pod, created) == 72, "second part that is compared");
_Static_assert(offsetof(struct pod, rest) == 88 && sizeof(struct pod) == 88, "ids are aligned");

enum {
	POD_HOST_NETWORK = 1,
	POD_DELETING = 2,
	POD_TERMINATED = 4,
	POD_MIRROR = 8,
	POD_HOSTNAME_IS_NAME = 16,
	POD_CUT = 32,
};
enum container_state { STATE_ID = 1, STATE_PREVIOUS = 2, STATE_RESTARTS = 4 };

struct container_static {
	interned name, image, image_id;
	uint32_t type;
};
_Static_assert(sizeof(struct container_static) == 16, "16 bytes, shared by a workload");

enum {
	POD_IMAGE_MAX = 1024,
	POD_RECORD_MAX = sizeof(struct pod) + POD_CONTAINERS_MAX * (64 + 4 + 1) + 16 + 16 +
			 2 * (KEPT_NAME_MAX + 1),
	POD_SAME_MAX = 32, /* pods that claim the same uid or container id and are indexed by it */
};
_Static_assert((int)POD_RECORD_MAX <= (int)SLAB_REACH, "every id can be named");

/* Pods of one node or namespace: a list through the records. */
struct group {
	interned key;
	uint32_t head, count;
	/* Of a namespace: what its pods take of POD_NS_TEXT_MAX, in TEXT_UNITs. */
	uint32_t text;
};
enum { TEXT_UNIT = 16 }; /* bytes */
_Static_assert(sizeof(struct group) == 16, "16 bytes a node or namespace");

struct pod_store {
	struct intern *intern;
	struct slab records, groups;
	struct ref_table names;		    /* of records, by namespace and name */
	struct ref_table uids;		    /* of uids and mirror hashes inside records */
	struct ref_table ids;		    /* of container ids inside records */
	struct ref_table nodes, namespaces; /* of groups */
	size_t max_pods;
	uint64_t seed;
	/* `containers` of the last draft, without a reference; 0 once that string may be freed. */
	interned last_containers;
	struct kept_annotations annotations;
	void (*changed)(void *arg, const struct pod *pod, const struct pod *old);
	void *arg;
	struct pod_store_stats stats;
	struct buf scratch;
	struct pod_view view; /* of the item that is being read: too large for a stack */
	_Alignas(8) uint8_t draft[POD_RECORD_MAX];
};

/* Where the parts of a record's tail are. */
struct pod_tail {
	const uint8_t *ids, *mirror, *restarts, *states, *ip;
	const char *name, *hostname;
};
struct pod_tail pod_tail(const struct pod *pod);
static inline const char *pod_name(const struct pod *pod)
{
	return pod_tail(pod).name;
}
static inline struct pod *pod_at(const struct pod_store *store, uint32_t ref)
{
	return ref ? slab_at(&store->records, ref) : NULL;
}
/* The container whose id or previous id is the Kth of the record. */
size_t pod_id_container(const struct pod *pod, size_t k, bool *ret_current);

/*
 * store->draft becomes the record of VIEW, with references on its strings; OLD (may be NULL) is
 * what the store has of the same pod, for the previous container ids.
 */
int pod_draft(struct pod_store *store, const struct pod_view *view, const struct pod *old,
	      struct pod **ret) _must_check_;
/* Releases the references of the record on its strings. */
void pod_release_strings(struct pod_store *store, const struct pod *pod);
bool pod_same(const struct pod *a, const struct pod *b);

void pod_index_done(struct pod_store *store);
/* Reserves the memory that pod_link() of POD needs. */
int pod_index_reserve(struct pod_store *store, const struct pod *pod) _must_check_;
/* Undoes pod_index_reserve() when no pod_link() follows. */
void pod_index_trim(struct pod_store *store, const struct pod *pod);
void pod_link(struct pod_store *store, uint32_t ref);
/*
 * True when labels, annotations and containers of POD, in place of those of OLD (may be NULL), fit
 * into the quota of its namespace, POD_NS_TEXT_MAX.
 */
bool pod_text_fits(const struct pod_store *store, const struct pod *pod, const struct pod *old);
void pod_unlink(struct pod_store *store, uint32_t ref);
uint32_t pod_index_find(const struct pod_store *store, interned ns, const char *name, size_t len);
