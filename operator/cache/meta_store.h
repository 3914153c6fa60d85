/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct meta_store: objects of which only metadata counts (namespaces, nodes, replica sets, jobs):
 * name, uid, labels, kept annotations, controller. And struct json_store, for our own kinds: the
 * whole object as cJSON, bounded in number and bytes. Both fit struct informer_ops. Loop thread
 * only.
 */
#pragma once

#include <cjson/cJSON.h>

#include "operator/cache/pod_store.h"

struct meta_store;
struct meta_object {
	const char *ns, *name, *uid;
	const char *owner_kind, *owner_name; /* "" without */
	const struct pod_label *labels, *annotations;
	size_t n_labels, n_annotations;
	int64_t created;
};
struct meta_store_options {
	struct intern *intern;
	size_t max_objects;
	const char *const *annotations;
	bool no_labels;
	/* Told before removal too, with REMOVED. */
	void (*changed)(void *arg, const struct meta_object *object, bool removed);
	void *arg;
};
int meta_store_new(const struct meta_store_options *options, struct meta_store **ret) _must_check_;
struct meta_store *meta_store_free(struct meta_store *store);
DEFINE_CLEANUP(struct meta_store *, meta_store_free)
int meta_store_put(void *store, const struct kube_item *item, uint32_t generation);
int meta_store_remove(void *store, const struct kube_item *item);
void meta_store_replaced(void *store, uint32_t generation);
size_t meta_store_count(const struct meta_store *store);
/* *RET is valid until the next call of any function of the store. -ENOENT. */
int meta_store_find(struct meta_store *store, const char *ns, const char *name,
		    struct meta_object *ret) _must_check_;
int meta_store_each(struct meta_store *store,
		    int (*fn)(void *arg, const struct meta_object *object), void *arg);

struct json_store;
struct json_store_options {
	size_t max_objects;
	void (*changed)(void *arg, const char *ns, const char *name,
			const cJSON *object); /* NULL: removed */
	void *arg;
};
int json_store_new(const struct json_store_options *options, struct json_store **ret) _must_check_;
struct json_store *json_store_free(struct json_store *store);
DEFINE_CLEANUP(struct json_store *, json_store_free)
int json_store_put(void *store, const struct kube_item *item, uint32_t generation);
int json_store_remove(void *store, const struct kube_item *item);
void json_store_replaced(void *store, uint32_t generation);
size_t json_store_count(const struct json_store *store);
const cJSON *json_store_find(const struct json_store *store, const char *ns, const char *name);
int json_store_each(const struct json_store *store, int (*fn)(void *arg, const cJSON *object),
		    void *arg);
