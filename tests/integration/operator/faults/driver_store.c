/* SPDX-License-Identifier: Apache-2.0 */
/* Objects by namespace and name. Out of memory ends the program: it is a test. */
#include "tests/integration/operator/faults/driver_store.h"

#include "lib/uthash.h"

struct object {
	UT_hash_handle hh;
	char *key, *state;
	uint32_t generation;
};

struct driver_store {
	enum kube_kind kind;
	struct object *objects;
};

struct driver_store *driver_store_new(enum kube_kind kind)
{
	struct driver_store *store = calloc(1, sizeof(*store));

	if (store)
		store->kind = kind;
	return store;
}

static void drop(struct driver_store *store, struct object *object)
{
	HASH_DEL(store->objects, object);
	free(object->key);
	free(object->state);
	free(object);
}

struct driver_store *driver_store_free(struct driver_store *store)
{
	struct object *object, *next;

	if (!store)
		return NULL;
	HASH_ITER (hh, store->objects, object, next)
		drop(store, object);
	free(store);
	return NULL;
}

static char *format(const struct slice *parts, size_t n, char between)
{
	size_t len = 0, at = 0;
	char *text;

	for (size_t i = 0; i < n; i++)
		len += parts[i].n + 2;
	text = calloc(1, len + 1);
	if (!text)
		abort();
	for (size_t i = 0; i < n; i++) {
		if (i > 0)
			text[at++] = between;
		if (parts[i].n == 0)
			text[at++] = '-';
		else
			memcpy(text + at, parts[i].p, parts[i].n);
		at += parts[i].n;
	}
	return text;
}

static struct object *find(const struct driver_store *store, const struct meta_view *meta,
			   char **ret_key)
{
	const struct slice parts[] = {meta->ns, meta->name};
	struct object *object;

	*ret_key = format(parts, 2, '/');
	HASH_FIND_STR(store->objects, *ret_key, object);
	return object;
}

static int put(void *arg, const struct kube_item *item, uint32_t generation)
{
	static struct pod_view view;
	struct driver_store *store = arg;
	_cleanup_free_ char *key = NULL;
	struct object *object;
	int r;

	view = (struct pod_view){0};
	r = store->kind == KUBE_PODS ? kube_decode_pod(item, &view)
				     : kube_decode_meta(item, &view.meta);
	if (r < 0)
		return r;
	const struct slice parts[] = {view.meta.uid, view.meta.resource_version, view.node_name};

	object = find(store, &view.meta, &key);
	if (!object) {
		object = calloc(1, sizeof(*object));
		if (!object)
			abort();
		object->key = TAKE_PTR(key);
		HASH_ADD_KEYPTR(hh, store->objects, object->key, strlen(object->key), object);
	}
	free(object->state);
	object->state = format(parts, 3, ' ');
	object->generation = generation;
	return 0;
}

static int take_out(void *arg, const struct kube_item *item)
{
	static struct meta_view view;
	struct driver_store *store = arg;
	_cleanup_free_ char *key = NULL;
	struct object *object;
	int r = kube_decode_meta(item, &view);

	if (r < 0)
		return r;
	object = find(store, &view, &key);
	if (object)
		drop(store, object);
	return 0;
}

static int replaced(void *arg, uint32_t generation)
{
	struct driver_store *store = arg;
	struct object *object, *next;

	HASH_ITER (hh, store->objects, object, next) {
		if (object->generation != generation)
			drop(store, object);
	}
	return 0;
}

const struct informer_ops driver_store_ops = {.put = put, .remove = take_out, .replaced = replaced};

void driver_store_dump(const struct driver_store *store, FILE *out)
{
	const struct object *object, *next;

	HASH_ITER (hh, store->objects, object, next)
		fprintf(out, "%s %s %s\n", kube_resources[store->kind].plural, object->key,
			object->state);
}

size_t driver_store_count(const struct driver_store *store)
{
	return HASH_COUNT(store->objects);
}
