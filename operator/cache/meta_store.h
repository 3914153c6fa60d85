/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct meta_store: objects of which only the metadata is used (namespaces, nodes, replica sets,
 * jobs): name, uid, labels, kept annotations, controller. struct json_store: objects of our own
 * kinds as cJSON, bounded in number and memory. Both fit struct informer_ops. Loop thread only.
 */
#pragma once

#include <cjson/cJSON.h>

#include "operator/cache/pod_store.h"

struct meta_store;
struct meta_object {
	const char *ns, *name, *uid;
	const char *owner_kind, *owner_name, *owner_uid; /* "" without */
	const struct pod_label *labels, *annotations;
	size_t n_labels, n_annotations;
	int64_t created;
};
struct meta_store_options {
	struct intern *intern;
	size_t max_objects;
	const char *const *annotations; /* kept ones, as in struct pod_store_options */
	bool no_labels;
	/*
	 * Called after an object was added or changed in a kept field, and with REMOVED before it
	 * is removed. Must not change the store nor look things up in it.
	 */
	void (*changed)(void *arg, const struct meta_object *object, bool removed);
	void *arg;
};
int meta_store_new(const struct meta_store_options *options, struct meta_store **ret) _must_check_;
struct meta_store *meta_store_free(struct meta_store *store);
/* As pod_store_keep_annotations(). */
int meta_store_keep_annotations(struct meta_store *store, const char *const *keys) _must_check_;
DEFINE_CLEANUP(struct meta_store *, meta_store_free)
int meta_store_put(void *store, const struct kube_item *item, uint32_t generation);
int meta_store_remove(void *store, const struct kube_item *item);
int meta_store_replaced(void *store, uint32_t generation);
/* As put and remove, for a decoded object. -EBADMSG: names that no API server accepts. */
int meta_store_put_view(struct meta_store *store, const struct meta_view *view,
			uint32_t generation);
int meta_store_remove_view(struct meta_store *store, const struct meta_view *view);
size_t meta_store_count(const struct meta_store *store);
size_t meta_store_bytes(const struct meta_store *store); /* without interned strings */
/*
 * The number of events dropped, beyond max_objects or without room for strings, and of values left
 * out.
 */
uint64_t meta_store_dropped(const struct meta_store *store);
/* *RET is valid until the next call of any function of the store. -ENOENT. */
int meta_store_find(struct meta_store *store, const char *ns, const char *name,
		    struct meta_object *ret) _must_check_;
int meta_store_each(struct meta_store *store,
		    int (*fn)(void *arg, const struct meta_object *object), void *arg);

enum {
	JSON_OBJECT_MAX = 4 << 20,	/* bytes of one object's text; etcd has 1.5 MiB at most */
	JSON_STORE_COST_MAX = 64 << 20, /* bytes of memory of all objects */
	JSON_STORE_LEFT_OUT_MAX = 16384 /* objects without room that are known by name */
};
struct json_store;
struct json_store_options {
	size_t max_objects;
	size_t max_ns_objects, max_ns_cost; /* of one namespace; 0: as for all */
	/*
	 * Keep of metadata only name, namespace, uid, generation, creationTimestamp, and do not
	 * count the status, which only the operator writes, against the caps.
	 */
	bool lean;
	/* Called unless the object's text is byte for byte the same. Must not change the store. */
	void (*changed)(void *arg, const char *ns, const char *name,
			const cJSON *object); /* NULL: removed */
	/* OVER: objects of NS do not fit; else all of them fit again. May be NULL. */
	void (*over)(void *arg, const char *ns, bool over);
	/*
	 * There is no room for OBJECT, and the store has no earlier version of it. Called at each
	 * of its events, after over(). OBJECT is freed after the call. May be NULL.
	 */
	void (*left_out)(void *arg, const char *ns, const char *name, const cJSON *object);
	void *arg;
};
int json_store_new(const struct json_store_options *options, struct json_store **ret) _must_check_;
struct json_store *json_store_free(struct json_store *store);
DEFINE_CLEANUP(struct json_store *, json_store_free)
/*
 * -EBADMSG: not a JSON object with valid names. -ESTALE: done; a relist may load objects that were
 * left out. metadata.managedFields is left out.
 */
int json_store_put(void *store, const struct kube_item *item, uint32_t generation);
int json_store_remove(void *store, const struct kube_item *item);
int json_store_replaced(void *store, uint32_t generation);
size_t json_store_count(const struct json_store *store);
/* Objects that the caps refused. An earlier version of such an object stays. */
uint64_t json_store_refused(const struct json_store *store);
const cJSON *json_store_find(const struct json_store *store, const char *ns, const char *name);
/* True when NS/NAME exists but the store has no room for it; *RET_GENERATION is then its
 * metadata.generation. At most JSON_STORE_LEFT_OUT_MAX of such objects are remembered, and
 * max_ns_objects of one namespace: of others it returns false. */
bool json_store_left_out(const struct json_store *store, const char *ns, const char *name,
			 int64_t *ret_generation);
int json_store_each(const struct json_store *store, int (*fn)(void *arg, const cJSON *object),
		    void *arg);
