// SPDX-License-Identifier: Apache-2.0
/*
 * Objects of our own kinds as cJSON: there are few, and most of their fields are used. Bounded in
 * number and in memory, as a whole and for each namespace, so that one namespace cannot take the
 * room of the others. An object beyond a cap is refused: an earlier version of it stays, and its
 * namespace is over quota until a list shows that all of it fits. Of an object that is left out the
 * store keeps the name, the size and the generation: so its owner can be told, and a relist is
 * asked for (-ESTALE) only when everything would fit. Loop thread only.
 */
#define HASH_NONFATAL_OOM 1 /* an element that could not be added has no hh.tbl */

#include "operator/cache/kept.h"
#include "lib/uthash.h"
#include "operator/cache/meta_store.h"
#include "operator/kube/json.h"

struct entry {
	UT_hash_handle hh;
	char *ns, *name; /* point into `key` */
	cJSON *object;	 /* NULL: left out */
	struct account *account;
	uint64_t text_hash;
	size_t text_len, cost;
	size_t wanted; /* the cost of its newest version, which may not have had room */
	int64_t left_out_generation; /* metadata.generation of an object that is left out */
	uint32_t generation;
	char key[]; /* "ns\0name\0" */
};

/*
 * The number and cost of the objects in the store, and of all objects if every newest version had
 * room.
 */
struct room {
	size_t objects, cost;
	size_t wanted_objects, wanted_cost;
};

/* The room that a namespace takes. It exists while the namespace has entries or is over quota. */
struct account {
	UT_hash_handle hh;
	struct room room;
	bool over;
	bool unknown; /* there are objects of which not even the name is kept */
	/* Of the last object refused, and of the last one of which no name is kept. */
	uint32_t over_generation, unknown_generation;
	char ns[];
};

struct json_store {
	struct entry *entries;
	struct account *accounts;
	struct json_store_options options;
	struct room room;
	uint64_t refused;
	bool full; /* for all namespaces together */
	uint32_t full_generation;
};

int json_store_new(const struct json_store_options *options, struct json_store **ret)
{
	struct json_store *store = calloc(1, sizeof(*store));

	if (!store)
		return -ENOMEM;
	store->options = *options;
	if (!store->options.max_ns_objects)
		store->options.max_ns_objects = options->max_objects;
	if (!store->options.max_ns_cost)
		store->options.max_ns_cost = JSON_STORE_COST_MAX;
	*ret = store;
	return 0;
}

/* ---- accounts -------------------------------------------------------------------------------- */

static int get_account(struct json_store *store, const char *ns, struct account **ret)
{
	size_t len = strlen(ns);
	struct account *a;

	HASH_FIND(hh, store->accounts, ns, len, a);
	if (!a) {
		a = calloc(1, sizeof(*a) + len + 1);
		if (!a)
			return -ENOMEM;
		memcpy(a->ns, ns, len);
		HASH_ADD_KEYPTR(hh, store->accounts, a->ns, len, a);
		if (!a->hh.tbl) {
			free(a);
			return -ENOMEM;
		}
	}
	*ret = a;
	return 0;
}

static void drop_idle_account(struct json_store *store, struct account *a)
{
	if (a->room.wanted_objects || a->over)
		return;
	HASH_DEL(store->accounts, a);
	free(a);
}

/* Sets the cost of E: COST of its object, 0 without one, and WANTED of its newest version. */
static void charge(struct json_store *store, struct entry *e, size_t cost, size_t wanted)
{
	struct room *rooms[] = {&store->room, &e->account->room};

	for (size_t i = 0; i < ARRAY_SIZE(rooms); i++) {
		rooms[i]->objects += cost > 0;
		rooms[i]->objects -= e->cost > 0;
		rooms[i]->cost += cost - e->cost;
		rooms[i]->wanted_objects += wanted > 0;
		rooms[i]->wanted_objects -= e->wanted > 0;
		rooms[i]->wanted_cost += wanted - e->wanted;
	}
	e->cost = cost;
	e->wanted = wanted;
}

static void set_over(struct json_store *store, struct account *a, bool over)
{
	if (a->over == over)
		return;
	a->over = over;
	if (store->options.over)
		store->options.over(store->options.arg, a->ns, over);
}

/* True when A has room for OBJECTS and COST more. Either may be negative, wrapped around. */
static bool ns_has_room(const struct json_store *store, const struct account *a, size_t objects,
			size_t cost)
{
	return a->room.objects + objects <= store->options.max_ns_objects &&
	       a->room.cost + cost <= store->options.max_ns_cost;
}

static bool store_has_room(const struct json_store *store, size_t objects, size_t cost)
{
	return store->room.objects + objects <= store->options.max_objects &&
	       store->room.cost + cost <= JSON_STORE_COST_MAX;
}

/* True when a relist could load all objects of the namespace that were left out. */
static bool may_heal(const struct json_store *store, const struct account *a)
{
	const struct room *r = &a->room;
	size_t objects = r->wanted_objects - r->objects, cost = r->wanted_cost - r->cost;

	return a->over && (a->unknown || (ns_has_room(store, a, objects, cost) &&
					  store_has_room(store, objects, cost)));
}

/*
 * Called after an object of namespace A was removed or got smaller. -ESTALE when all objects of A,
 * or of another namespace, that were left out would fit. A is NULL when the namespace has no
 * account any more.
 */
static int gave_room(const struct json_store *store, const struct account *a)
{
	const struct account *i, *next;

	if (a && may_heal(store, a))
		return -ESTALE;
	if (!store->full)
		return 0;
	HASH_ITER (hh, store->accounts, i, next)
		if (may_heal(store, i))
			return -ESTALE;
	return 0;
}

/* The approximate memory of a tree: what malloc() takes for each node and its strings. */
static size_t cost_of(const cJSON *node)
{
	enum { MALLOC_OVERHEAD = 16 };
	const cJSON *child;
	size_t sum;

	if (!node)
		return 0;
	sum = sizeof(*node) + MALLOC_OVERHEAD;
	if (node->string)
		sum += strlen(node->string) + MALLOC_OVERHEAD;
	if (node->valuestring)
		sum += strlen(node->valuestring) + MALLOC_OVERHEAD;
	cJSON_ArrayForEach(child, node) sum += cost_of(child);
	return sum;
}

/*
 * The cost of OBJECT. In a lean store its status is not counted: the operator writes it, its size
 * is bounded, and it must not bring a namespace over quota.
 */
static size_t cost_of_object(const struct json_store *store, const cJSON *object)
{
	const cJSON *status = cJSON_GetObjectItemCaseSensitive(object, "status");

	return cost_of(object) - (store->options.lean ? cost_of(status) : 0);
}

/* ---- entries --------------------------------------------------------------------------------- */

static void entry_free(struct json_store *store, struct entry *e)
{
	struct account *a = e->account;

	charge(store, e, 0, 0);
	HASH_DEL(store->entries, e);
	cJSON_Delete(e->object);
	free(e);
	drop_idle_account(store, a);
}

struct json_store *json_store_free(struct json_store *store)
{
	struct account *a, *next_account;
	struct entry *e, *next;

	if (!store)
		return NULL;
	HASH_ITER (hh, store->entries, e, next)
		entry_free(store, e);
	HASH_ITER (hh, store->accounts, a, next_account) {
		HASH_DEL(store->accounts, a);
		free(a);
	}
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

static int add(struct json_store *store, struct account *account, const char *name,
	       struct entry **ret)
{
	char key[KEY_MAX];
	size_t len = make_key(account->ns, name, key);
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
	e->account = account;
	*ret = e;
	return 0;
}

/* Removes the metadata that the operator does not read: anybody may put megabytes into it. */
static void strip(const struct json_store *store, cJSON *object)
{
	static const char *const keep[] = {"name",	 "namespace",	      "uid",
					   "generation", "creationTimestamp", NULL};
	cJSON *meta = cJSON_GetObjectItemCaseSensitive(object, "metadata"), *field, *next;

	cJSON_DeleteItemFromObjectCaseSensitive(meta, "managedFields");
	for (field = store->options.lean ? meta->child : NULL; field; field = next) {
		size_t i = 0;

		next = field->next;
		while (keep[i] && !streq(keep[i], field->string))
			i++;
		if (!keep[i])
			cJSON_Delete(cJSON_DetachItemViaPointer(meta, field));
	}
}

/* Adds an entry without an object. NULL when too many objects are left out, or out of memory. */
static struct entry *add_left_out(struct json_store *store, struct account *a, const char *name)
{
	const struct room *all = &store->room, *own = &a->room;
	struct entry *e;

	if (all->wanted_objects - all->objects >= JSON_STORE_LEFT_OUT_MAX ||
	    own->wanted_objects - own->objects >= store->options.max_ns_objects ||
	    add(store, a, name, &e) < 0)
		return NULL;
	return e;
}

/*
 * Moves the status of OBJECT to the older version in E. Otherwise the operator would not see the
 * status that it has written, and would write it again and again.
 */
static void take_status(const struct json_store *store, struct entry *e, cJSON *object)
{
	cJSON *status;

	if (!store->options.lean || !e || !e->object)
		return;
	cJSON_DeleteItemFromObjectCaseSensitive(e->object, "status");
	status = cJSON_DetachItemFromObjectCaseSensitive(object, "status");
	if (status && !cJSON_AddItemToObject(e->object, "status", status))
		cJSON_Delete(status);
}

/* Records that OBJECT, of COST, has no room. An older version in E stays. */
static void leave_out(struct json_store *store, struct account *a, struct entry *e,
		      const char *name, cJSON *object, size_t cost, uint32_t generation)
{
	store->refused++;
	a->over_generation = generation;
	if (ns_has_room(store, a, !e || !e->object, cost - (e ? e->cost : 0))) {
		store->full = true;
		store->full_generation = generation;
	}
	if (!e)
		e = add_left_out(store, a, name);
	if (e) {
		e->generation = generation;
		e->left_out_generation = json_generation(object);
		charge(store, e, e->cost, cost);
	} else {
		a->unknown = true;
		a->unknown_generation = generation;
	}
	set_over(store, a, true);
	take_status(store, e, object);
	if (e && !e->object && store->options.left_out)
		store->options.left_out(store->options.arg, e->ns, e->name, object);
}

/* Stores *OBJECT and takes ownership of it, or leaves it out. */
static int put_object(struct json_store *store, struct account *a, struct entry *e,
		      const char *name, const struct kube_item *item, cJSON **object,
		      uint32_t generation)
{
	size_t cost = cost_of_object(store, *object), objects = !e || !e->object;
	size_t more = cost - (e ? e->cost : 0);
	bool shrinks = e && cost < e->wanted;
	int r;

	if (!ns_has_room(store, a, objects, more) || !store_has_room(store, objects, more)) {
		leave_out(store, a, e, name, *object, cost, generation);
		return 0;
	}
	if (!e) {
		r = add(store, a, name, &e);
		if (r)
			return r;
	}
	charge(store, e, cost, cost);
	cJSON_Delete(e->object);
	e->object = TAKE_PTR(*object);
	e->text_hash = hash_bytes(item->bytes, item->len, 0);
	e->text_len = item->len;
	e->generation = generation;
	if (store->options.changed)
		store->options.changed(store->options.arg, e->ns, e->name, e->object);
	return shrinks ? gave_room(store, a) : 0;
}

int json_store_put(void *arg, const struct kube_item *item, uint32_t generation)
{
	struct json_store *store = arg;
	uint64_t hash = hash_bytes(item->bytes, item->len, 0);
	_cleanup_(cJSON_Deletep) cJSON *object = NULL;
	const char *ns, *name;
	struct account *a;
	struct entry *e;
	bool shrinks;
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
		if (e->object && e->text_hash == hash && e->text_len == item->len) {
			shrinks = e->cost < e->wanted; /* back to what it was */
			charge(store, e, e->cost, e->cost);
			return shrinks ? gave_room(store, e->account) : 0;
		}
	}
	strip(store, object);
	r = get_account(store, ns, &a);
	if (r)
		return r;
	r = put_object(store, a, e, name, item, &object, generation);
	drop_idle_account(store, a);
	return r;
}

static void forget(struct json_store *store, struct entry *e)
{
	bool had_object = e->object;

	cJSON_Delete(e->object);
	e->object = NULL;
	if (had_object && store->options.changed)
		store->options.changed(store->options.arg, e->ns, e->name, NULL);
	entry_free(store, e);
}

int json_store_remove(void *arg, const struct kube_item *item)
{
	struct json_store *store = arg;
	_cleanup_(cJSON_Deletep) cJSON *object = NULL;
	const char *ns, *name;
	struct account *a;
	struct entry *e;
	int r;

	r = parse(item, &object, &ns, &name);
	if (r)
		return r;
	e = find(store, ns, name);
	if (e)
		forget(store, e);
	HASH_FIND(hh, store->accounts, ns, strlen(ns), a);
	return gave_room(store, a);
}

int json_store_replaced(void *arg, uint32_t generation)
{
	struct json_store *store = arg;
	struct account *a, *next_account;
	struct entry *e, *next;
	bool gave = false;
	int r = 0;

	HASH_ITER (hh, store->entries, e, next) {
		if (e->generation == generation)
			continue;
		gave |= e->cost > 0;
		forget(store, e);
	}
	if (store->full_generation != generation)
		store->full = false;
	HASH_ITER (hh, store->accounts, a, next_account) {
		if (a->unknown_generation != generation)
			a->unknown = false;
		if (a->over_generation != generation)
			set_over(store, a, false);
		/* The objects removed here took the room of objects in the list. */
		if (gave && a->over)
			r = -ESTALE;
		drop_idle_account(store, a);
	}
	return r;
}

size_t json_store_count(const struct json_store *store)
{
	return store->room.objects;
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

bool json_store_left_out(const struct json_store *store, const char *ns, const char *name,
			 int64_t *ret_generation)
{
	const struct entry *e = find(store, ns, name);

	if (!e || e->object)
		return false;
	*ret_generation = e->left_out_generation;
	return true;
}

int json_store_each(const struct json_store *store, int (*fn)(void *arg, const cJSON *object),
		    void *arg)
{
	struct entry *e, *next;
	int r;

	HASH_ITER (hh, store->entries, e, next) {
		if (!e->object)
			continue;
		r = fn(arg, e->object);
		if (r)
			return r;
	}
	return 0;
}
