// SPDX-License-Identifier: Apache-2.0
/*
 * Whole objects of our own kinds as cJSON: there are few, and all of their fields count. Bounded in
 * number and in bytes of text; what the caps refuse leaves the store as it was and is counted.
 * Loop thread only.
 */
#define HASH_NONFATAL_OOM 1 /* an element that could not be added has no hh.tbl */
#include <uthash.h>

#include "operator/cache/kept.h"
#include "operator/cache/meta_store.h"
#include "operator/kube/json.h"

struct entry {
	UT_hash_handle hh;
	char *ns, *name; /* of the key's memory */
	cJSON *object;
	uint64_t text_hash;
	size_t text_len;
	uint32_t generation;
	char key[]; /* "ns\0name\0" */
};

struct json_store {
	struct entry *entries;
	size_t max_objects, bytes;
	uint64_t refused;
	void (*changed)(void *arg, const char *ns, const char *name, const cJSON *object);
	void *arg;
};

int json_store_new(const struct json_store_options *options, struct json_store **ret)
{
	struct json_store *store = calloc(1, sizeof(*store));

	if (!store)
		return -ENOMEM;
	store->max_objects = options->max_objects;
	store->changed = options->changed;
	store->arg = options->arg;
	*ret = store;
	return 0;
}

static void entry_free(struct json_store *store, struct entry *e)
{
	HASH_DEL(store->entries, e);
	store->bytes -= e->text_len;
	cJSON_Delete(e->object);
	free(e);
}

struct json_store *json_store_free(struct json_store *store)
{
	struct entry *e, *next;

	if (!store)
		return NULL;
	HASH_ITER (hh, store->entries, e, next)
		entry_free(store, e);
	free(store);
	return NULL;
}

enum { KEY_MAX = 2 * (KEPT_NAME_MAX + 1) };

static size_t make_key(const char *ns, const char *name, char key[KEY_MAX])
{
	size_t ns_len = strlen(ns) + 1, name_len = strlen(name) + 1;

	if (ns_len + name_len > KEY_MAX)
		return 0;
	memcpy(key, ns, ns_len);
	memcpy(key + ns_len, name, name_len);
	return ns_len + name_len;
}

static struct entry *find(const struct json_store *store, const char *ns, const char *name)
{
	struct entry *e = NULL;
	char key[KEY_MAX];
	size_t len = make_key(ns ? ns : "", name, key);

	if (len)
		HASH_FIND(hh, store->entries, key, len, e);
	return e;
}

/* Names are checked as the other stores check them; NS "" in cluster scope. */
static int names_of(const cJSON *object, const char **ret_ns, const char **ret_name)
{
	const cJSON *meta = cJSON_GetObjectItemCaseSensitive(object, "metadata");
	const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(meta, "name"));
	const char *ns = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(meta, "namespace"));

	if (!name || !kept_is_name((struct slice){name, (uint32_t)strlen(name)}))
		return -EBADMSG;
	if (ns && *ns && !kept_is_name((struct slice){ns, (uint32_t)strlen(ns)}))
		return -EBADMSG;
	*ret_ns = ns ? ns : "";
	*ret_name = name;
	return 0;
}

static int parse(const struct kube_item *item, cJSON **ret, const char **ret_ns,
		 const char **ret_name)
{
	_cleanup_(cJSON_Deletep) cJSON *object = NULL;
	int r;

	if (item->encoding != KUBE_JSON)
		return -EBADMSG;
	object = cJSON_ParseWithLength((const char *)item->bytes, item->len);
	if (!cJSON_IsObject(object))
		return -EBADMSG;
	r = names_of(object, ret_ns, ret_name);
	if (r)
		return r;
	*ret = TAKE_PTR(object);
	return 0;
}

static int add(struct json_store *store, const char *ns, const char *name, struct entry **ret)
{
	char key[KEY_MAX];
	size_t len = make_key(ns, name, key);
	struct entry *e;

	if (!len)
		return -EBADMSG;
	e = calloc(1, sizeof(*e) + len);
	if (!e)
		return -ENOMEM;
	memcpy(e->key, key, len);
	e->ns = e->key;
	e->name = e->key + strlen(e->key) + 1;
	HASH_ADD_KEYPTR(hh, store->entries, e->key, len, e);
	if (!e->hh.tbl) {
		free(e);
		return -ENOMEM;
	}
	*ret = e;
	return 0;
}

int json_store_put(void *arg, const struct kube_item *item, uint32_t generation)
{
	struct json_store *store = arg;
	uint64_t hash = hash_bytes(item->bytes, item->len, 0);
	_cleanup_(cJSON_Deletep) cJSON *object = NULL;
	const char *ns, *name;
	struct entry *e;
	int r;

	if (item->len > JSON_OBJECT_MAX) {
		store->refused++;
		return 0;
	}
	r = parse(item, &object, &ns, &name);
	if (r)
		return r;
	e = find(store, ns, name);
	if (e) {
		e->generation = generation;
		if (e->text_hash == hash && e->text_len == item->len)
			return 0;
	}
	if ((!e && HASH_COUNT(store->entries) >= store->max_objects) ||
	    store->bytes - (e ? e->text_len : 0) + item->len > JSON_STORE_BYTES_MAX) {
		store->refused++;
		return 0;
	}
	if (!e) {
		r = add(store, ns, name, &e);
		if (r)
			return r;
	}
	cJSON_DeleteItemFromObjectCaseSensitive(
	    cJSON_GetObjectItemCaseSensitive(object, "metadata"), "managedFields");
	store->bytes = store->bytes - e->text_len + item->len;
	cJSON_Delete(e->object);
	e->object = TAKE_PTR(object);
	e->text_hash = hash;
	e->text_len = item->len;
	e->generation = generation;
	if (store->changed)
		store->changed(store->arg, e->ns, e->name, e->object);
	return 0;
}

static void forget(struct json_store *store, struct entry *e)
{
	cJSON_Delete(e->object);
	e->object = NULL;
	if (store->changed)
		store->changed(store->arg, e->ns, e->name, NULL);
	entry_free(store, e);
}

int json_store_remove(void *arg, const struct kube_item *item)
{
	struct json_store *store = arg;
	_cleanup_(cJSON_Deletep) cJSON *object = NULL;
	const char *ns, *name;
	struct entry *e;
	int r;

	r = parse(item, &object, &ns, &name);
	if (r)
		return r;
	e = find(store, ns, name);
	if (e)
		forget(store, e);
	return 0;
}

void json_store_replaced(void *arg, uint32_t generation)
{
	struct json_store *store = arg;
	struct entry *e, *next;

	HASH_ITER (hh, store->entries, e, next)
		if (e->generation != generation)
			forget(store, e);
}

size_t json_store_count(const struct json_store *store)
{
	return HASH_COUNT(store->entries);
}

uint64_t json_store_refused(const struct json_store *store)
{
	return store->refused;
}

const cJSON *json_store_find(const struct json_store *store, const char *ns, const char *name)
{
	const struct entry *e = find(store, ns, name);

	return e ? e->object : NULL;
}

int json_store_each(const struct json_store *store, int (*fn)(void *arg, const cJSON *object),
		    void *arg)
{
	struct entry *e, *next;
	int r;

	HASH_ITER (hh, store->entries, e, next) {
		r = fn(arg, e->object);
		if (r)
			return r;
	}
	return 0;
}
