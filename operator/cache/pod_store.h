/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct pod_store: every pod of the cluster in about 500 bytes each, with what identity and policy
 * need: names, owner, labels, kept annotations, node, containers. Indexes: namespace/name, uid,
 * container id, and lists by node and by namespace. Strings are interned. Loop thread only.
 *
 * Container ids of a pod's former containers stay findable until the pod goes or KEEP_IDS newer
 * ones replaced them, so that the last window of a restarted container is named.
 */
#pragma once

#include "operator/cache/intern.h"
#include "operator/kube/decode.h"

enum { POD_CONTAINERS_MAX = 64, POD_KEEP_IDS = 2 };

struct pod_container {
	interned name, image, image_id;
	uint8_t id[32]; /* of "runtime://64 hex"; all zero: not known yet */
	uint8_t previous_id[32];
	uint32_t restart_count;
	uint8_t type; /* enum container_type */
};

/*
 * Limit, in bytes, of what is kept of a namespace's pods: labels, annotations, and the names,
 * images and ids of containers. A pod that would exceed it is `cut`: only its container ids are
 * kept.
 */
enum { POD_NS_TEXT_MAX = 64 << 20 };

struct pod; /* read by the functions below */
struct pod_store;

struct pod_store_options {
	struct intern *intern;
	size_t max_pods; /* more are counted and left out */
	/*
	 * Annotations that are kept besides profiling.kiln.dev/mode, OpenTelemetry's
	 * (resource.opentelemetry.io/) and kubernetes.io/config.mirror: by exact key, and by prefix
	 * (ends with '/'). All labels are kept.
	 */
	const char *const *annotations; /* ends with NULL */
	/*
	 * POD was added (OLD NULL), changed (OLD is its earlier record) or removed (POD NULL). Not
	 * called when no kept field changed, whatever the resourceVersion. A pod of the same name
	 * with another uid is reported as removed, then as added. Must not change the store.
	 */
	void (*changed)(void *arg, const struct pod *pod, const struct pod *old);
	void *arg;
};

int pod_store_new(const struct pod_store_options *options, struct pod_store **ret) _must_check_;
struct pod_store *pod_store_free(struct pod_store *store);
DEFINE_CLEANUP(struct pod_store *, pod_store_free)

/* For struct informer_ops. */
int pod_store_put(void *store, const struct kube_item *item, uint32_t generation);
int pod_store_remove(void *store, const struct kube_item *item);
int pod_store_replaced(void *store, uint32_t generation);

/* As put and remove, for a decoded object. -EBADMSG: names that no API server accepts. */
int pod_store_put_view(struct pod_store *store, const struct pod_view *view, uint32_t generation);
int pod_store_remove_view(struct pod_store *store, const struct meta_view *meta);
/*
 * Replaces the annotation keys. 1: they differ, and pods in the store get theirs with the next
 * list. 0: they are the same. On failure untouched.
 */
int pod_store_keep_annotations(struct pod_store *store, const char *const *keys) _must_check_;

size_t pod_store_count(const struct pod_store *store);
/* Memory of records and indexes, without the interned strings. */
size_t pod_store_bytes(const struct pod_store *store);
uint64_t pod_store_dropped(const struct pod_store *store); /* all drops of pod_store_stats */

/* Counters of drops, by reason, and the memory, by use. */
struct pod_store_stats {
	uint64_t changes, unchanged;
	uint64_t beyond_max; /* events of pods that max_pods left out */
	uint64_t no_room;    /* events that found no room for strings: the pod is forgotten */
	/* Events of pods with too many labels, annotations or containers: for struct pod_view, or
	 * for the quota of their namespace. */
	uint64_t cut_pods;
	uint64_t cut_values; /* labels, annotations, images, ... that were left out */
	uint64_t unindexed;  /* uids and container ids that too many pods claim */
	size_t record_bytes, index_bytes;
};
void pod_store_read_stats(const struct pod_store *store, struct pod_store_stats *ret);

const struct pod *pod_store_find(const struct pod_store *store, const char *ns, const char *name);
/*
 * A static pod is also found by its config hash (annotation kubernetes.io/config.mirror), which its
 * cgroup path contains. Of several pods that claim a uid or a container id, these are preferred, in
 * this order: one whose current id it is over one that had it before, one that is not terminated,
 * the younger, the smaller uid.
 */
const struct pod *pod_store_find_uid(const struct pod_store *store, const uint8_t uid[16]);
const struct pod *pod_store_find_container(const struct pod_store *store, const uint8_t id[32],
					   size_t *ret_container);
/*
 * Calls FN for each pod, in no order. A non-zero result of FN ends the loop and is returned. FN
 * must not change the store.
 */
int pod_store_each(const struct pod_store *store, int (*fn)(void *arg, const struct pod *pod),
		   void *arg);
int pod_store_each_on_node(const struct pod_store *store, const char *node,
			   int (*fn)(void *arg, const struct pod *pod), void *arg);
int pod_store_each_in_namespace(const struct pod_store *store, const char *ns,
				int (*fn)(void *arg, const struct pod *pod), void *arg);

/* Calls FN with the name of each namespace that has pods; otherwise as pod_store_each(). */
int pod_store_each_namespace(const struct pod_store *store, int (*fn)(void *arg, const char *ns),
			     void *arg);
/*
 * Iterates over the pods of a namespace across several turns of the loop; NULL: no more. New
 * pods are inserted at the front, so an iteration under way does not meet them. When a pod is
 * removed, get the one after it in the `changed` callback: afterwards its memory is freed.
 */
const struct pod *pod_store_first_in_namespace(const struct pod_store *store, const char *ns);
const struct pod *pod_store_next_in_namespace(const struct pod_store *store, const struct pod *pod);

/* A number that the store keeps with a pod for one caller, match_counts; 0 in a new or changed pod.
 */
uint32_t pod_mark(const struct pod *pod);
void pod_set_mark(struct pod_store *store, const struct pod *pod, uint32_t mark);
/* The name of the pod's node; "" while it has none. */
const char *pod_node(const struct pod_store *store, const struct pod *pod);

/* A pod, unpacked. Strings are valid until the next change of the store. */
struct pod_info {
	const char *name, *ns, *node, *hostname;
	char ip[46]; /* canonical form; "" without */
	uint8_t uid[16];
	char uid_text[37]; /* as the API has it; also for uids that are not UUIDs (static pods) */
	const char *owner_kind, *owner_name; /* the controller; "" without */
	uint8_t owner_uid[16];
	char owner_uid_text[37];
	int64_t created;
	bool host_network, deleting, terminated; /* phase Succeeded or Failed */
	/* Labels, annotations or containers were left out: no selector can be trusted. */
	bool cut;
	struct pod_label {
		const char *key, *value;
	} labels[VIEW_PAIRS_MAX], annotations[32];
	size_t n_labels, n_annotations;
	size_t n_containers;
	struct pod_container containers[POD_CONTAINERS_MAX];
};
void pod_unpack(const struct pod_store *store, const struct pod *pod, struct pod_info *ret);
/*
 * Unpacks only the fields that policies select by: name, ns, node, uid, flags, labels, annotations.
 * The rest of RET is left as it was.
 */
void pod_unpack_subject(const struct pod_store *store, const struct pod *pod, struct pod_info *ret);
