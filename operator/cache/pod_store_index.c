// SPDX-License-Identifier: Apache-2.0
/*
 * The indexes of the pod store: three tables and two kinds of lists.
 *
 * The tables of uids and container ids hold the slab names of these bytes inside the records;
 * slab_base() gives the record, so a slot is one name. Uids and ids come from nodes, and several
 * pods may claim the same one: up to POD_SAME_MAX of them are indexed, and a look-up chooses by a
 * rule that does not depend on the order of events, so that all replicas agree.
 *
 * pod_index_reserve() does all that can fail; pod_link() and pod_unlink() cannot fail. Loop thread
 * only.
 */
#include "operator/cache/pod_store_internal.h"

static uint64_t hash_name(const struct pod_store *store, interned ns, const char *name, size_t len)
{
	return hash_bytes(name, len, store->seed ^ mix64(ns));
}

static uint64_t names_hash(const struct pod_store *store, uint32_t ref)
{
	const struct pod *pod = pod_at(store, ref);

	return hash_name(store, pod->ns, pod_name(pod), pod->name_len);
}

void pod_index_done(struct pod_store *store)
{
	ref_table_done(&store->names);
	ref_table_done(&store->uids);
	ref_table_done(&store->ids);
	ref_table_done(&store->nodes);
	ref_table_done(&store->namespaces);
}

static uint32_t group_find(const struct pod_store *store, const struct ref_table *t, interned key)
{
	uint64_t hash = mix64(key ^ store->seed);
	uint32_t pos = REF_TABLE_START, ref;

	while ((ref = ref_table_next(t, hash, &pos)))
		if (((struct group *)slab_at(&store->groups, ref))->key == key)
			return ref;
	return 0;
}

static int group_reserve(struct pod_store *store, struct ref_table *t, interned key)
{
	uint32_t ref;
	int r;

	if (!key || group_find(store, t, key))
		return 0;
	r = ref_table_reserve(t, 1);
	if (r)
		return r;
	r = slab_alloc(&store->groups, sizeof(struct group), &ref);
	if (r)
		return r;
	*(struct group *)slab_at(&store->groups, ref) = (struct group){.key = key};
	ref_table_insert(t, mix64(key ^ store->seed), ref);
	return 0;
}

static void group_trim(struct pod_store *store, struct ref_table *t, interned key)
{
	uint32_t ref = key ? group_find(store, t, key) : 0;
	struct group *g = ref ? slab_at(&store->groups, ref) : NULL;

	if (!g || g->count)
		return;
	(void)ref_table_remove(t, mix64(key ^ store->seed), ref);
	slab_free(&store->groups, ref);
}

int pod_index_reserve(struct pod_store *store, const struct pod *pod)
{
	int r = ref_table_reserve(&store->names, 1);

	if (!r)
		r = ref_table_reserve(&store->uids, 2);
	if (!r)
		r = ref_table_reserve(&store->ids, pod->n_ids);
	if (!r)
		r = group_reserve(store, &store->nodes, pod->node);
	if (!r)
		r = group_reserve(store, &store->namespaces, pod->ns);
	if (r)
		pod_index_trim(store, pod);
	return r;
}

void pod_index_trim(struct pod_store *store, const struct pod *pod)
{
	group_trim(store, &store->nodes, pod->node);
	group_trim(store, &store->namespaces, pod->ns);
}

/* Bytes inside a record that the record is indexed by. */
struct key {
	struct ref_table *table;
	uint32_t ref; /* slab name of the bytes */
	uint32_t len;
	uint64_t hash;
};
enum { KEYS_MAX = 2 + 2 * POD_CONTAINERS_MAX };

/* The slab name of P, which points into POD. */
static uint32_t place_of(const struct pod *pod, uint32_t ref, const uint8_t *p)
{
	return ref + (uint32_t)((size_t)(p - (const uint8_t *)pod) / SLAB_UNIT);
}

/* All keys of a record except its name. Prefetches their slots, which lie anywhere in memory. */
static size_t keys_of(struct pod_store *store, const struct pod *pod, uint32_t ref,
		      struct key keys[static KEYS_MAX])
{
	struct pod_tail t = pod_tail(pod);
	size_t n = 0;

	keys[n++] = (struct key){&store->uids, ref, 16, 0};
	if (pod->flags & POD_MIRROR)
		keys[n++] = (struct key){&store->uids, place_of(pod, ref, t.mirror), 16, 0};
	for (size_t i = 0; i < pod->n_ids; i++)
		keys[n++] = (struct key){&store->ids, place_of(pod, ref, t.ids + 32 * i), 32, 0};
	for (size_t i = 0; i < n; i++) {
		keys[i].hash =
		    hash_bytes(slab_at(&store->records, keys[i].ref), keys[i].len, store->seed);
		ref_table_prefetch(keys[i].table, keys[i].hash);
	}
	return n;
}

/* Puts KEY into its table unless too many others have the same bytes. */
static void key_link(struct pod_store *store, const struct key *key)
{
	const void *bytes = slab_at(&store->records, key->ref);
	uint32_t pos = REF_TABLE_START, other;
	unsigned int same = 0;

	while ((other = ref_table_next(key->table, key->hash, &pos)))
		if (!memcmp(slab_at(&store->records, other), bytes, key->len) &&
		    ++same == POD_SAME_MAX) {
			store->stats.unindexed++;
			return;
		}
	ref_table_insert(key->table, key->hash, key->ref);
}

static size_t text_size(const struct pod_store *store, interned text)
{
	size_t len;

	(void)intern_text(store->intern, text, &len);
	return len;
}

/* Size of names, images and ids; 0 for ids that are kept without the rest. */
static size_t containers_size(const struct pod_store *store, const struct pod *pod)
{
	size_t len, all;
	const char *statics = intern_text(store->intern, pod->containers, &len);
	struct container_static s;

	all = len ? len + 32 * (size_t)pod->n_ids : 0;
	for (size_t i = 0; i < len; i += sizeof(s)) {
		memcpy(&s, statics + i, sizeof(s));
		all += text_size(store, s.name) + text_size(store, s.image) +
		       text_size(store, s.image_id);
	}
	return all;
}

/* Size of POD's part of its namespace's quota in TEXT_UNITs, as if it shared no string. */
static uint32_t text_of(const struct pod_store *store, const struct pod *pod)
{
	size_t all = text_size(store, pod->labels) + text_size(store, pod->annotations) +
		     containers_size(store, pod);

	return (uint32_t)((all + TEXT_UNIT - 1) / TEXT_UNIT);
}

bool pod_text_fits(const struct pod_store *store, const struct pod *pod, const struct pod *old)
{
	uint32_t ref = group_find(store, &store->namespaces, pod->ns);
	uint64_t all = text_of(store, pod);

	if (ref)
		all += ((struct group *)slab_at(&store->groups, ref))->text;
	if (old)
		all -= text_of(store, old);
	return all <= POD_NS_TEXT_MAX / TEXT_UNIT;
}

static void lists_link(struct pod_store *store, struct pod *pod, uint32_t ref)
{
	struct group *g = slab_at(&store->groups, group_find(store, &store->namespaces, pod->ns));

	g->count++;
	g->text += text_of(store, pod);
	pod->ns_prev = 0;
	pod->ns_next = g->head;
	if (g->head)
		pod_at(store, g->head)->ns_prev = ref;
	g->head = ref;
	if (!pod->node)
		return;
	g = slab_at(&store->groups, group_find(store, &store->nodes, pod->node));
	g->count++;
	pod->node_prev = 0;
	pod->node_next = g->head;
	if (g->head)
		pod_at(store, g->head)->node_prev = ref;
	g->head = ref;
}

static void lists_unlink(struct pod_store *store, struct pod *pod)
{
	struct group *g = slab_at(&store->groups, group_find(store, &store->namespaces, pod->ns));

	g->count--;
	g->text -= text_of(store, pod);
	if (pod->ns_prev)
		pod_at(store, pod->ns_prev)->ns_next = pod->ns_next;
	else
		g->head = pod->ns_next;
	if (pod->ns_next)
		pod_at(store, pod->ns_next)->ns_prev = pod->ns_prev;
	group_trim(store, &store->namespaces, pod->ns);
	if (!pod->node)
		return;
	g = slab_at(&store->groups, group_find(store, &store->nodes, pod->node));
	g->count--;
	if (pod->node_prev)
		pod_at(store, pod->node_prev)->node_next = pod->node_next;
	else
		g->head = pod->node_next;
	if (pod->node_next)
		pod_at(store, pod->node_next)->node_prev = pod->node_prev;
	group_trim(store, &store->nodes, pod->node);
}

void pod_link(struct pod_store *store, uint32_t ref)
{
	struct pod *pod = pod_at(store, ref);
	struct key keys[KEYS_MAX];
	size_t n = keys_of(store, pod, ref, keys);

	ref_table_insert(&store->names, names_hash(store, ref), ref);
	for (size_t i = 0; i < n; i++)
		key_link(store, &keys[i]);
	lists_link(store, pod, ref);
}

void pod_unlink(struct pod_store *store, uint32_t ref)
{
	struct pod *pod = pod_at(store, ref);
	struct key keys[KEYS_MAX];
	size_t n = keys_of(store, pod, ref, keys);

	(void)ref_table_remove(&store->names, names_hash(store, ref), ref);
	for (size_t i = 0; i < n; i++)
		(void)ref_table_remove(keys[i].table, keys[i].hash, keys[i].ref);
	lists_unlink(store, pod);
}

uint32_t pod_index_find(const struct pod_store *store, interned ns, const char *name, size_t len)
{
	uint64_t hash = hash_name(store, ns, name, len);
	uint32_t pos = REF_TABLE_START, ref;

	while ((ref = ref_table_next(&store->names, hash, &pos))) {
		const struct pod *pod = pod_at(store, ref);

		if (pod->ns == ns && pod->name_len == len && !memcmp(pod_name(pod), name, len))
			return ref;
	}
	return 0;
}

const struct pod *pod_store_find(const struct pod_store *store, const char *ns, const char *name)
{
	interned key = intern_find(store->intern, ns, strlen(ns));

	return key ? pod_at(store, pod_index_find(store, key, name, strlen(name))) : NULL;
}

/* True when A is preferred to B among pods that claim the same uid or container id. */
static bool better(const struct pod *a, const struct pod *b)
{
	const int gone = POD_TERMINATED;
	int c;

	if ((a->flags & gone) != (b->flags & gone))
		return !(a->flags & gone);
	if (a->created != b->created)
		return a->created > b->created;
	c = memcmp(a->uid, b->uid, sizeof(a->uid));
	return c ? c < 0 : strcmp(pod_name(a), pod_name(b)) < 0;
}

const struct pod *pod_store_find_uid(const struct pod_store *store, const uint8_t uid[16])
{
	uint64_t hash = hash_bytes(uid, 16, store->seed);
	const struct pod *best = NULL, *pod;
	bool best_own = false, own;
	uint32_t pos = REF_TABLE_START, ref;

	while ((ref = ref_table_next(&store->uids, hash, &pos))) {
		if (!same_bytes(slab_at(&store->records, ref), uid, 16))
			continue;
		pod = pod_at(store, slab_base(&store->records, ref));
		own = (const void *)pod == slab_at(&store->records, ref);
		if (!best || (own != best_own ? own : better(pod, best))) {
			best = pod;
			best_own = own;
		}
	}
	return best;
}

const struct pod *pod_store_find_container(const struct pod_store *store, const uint8_t id[32],
					   size_t *ret_container)
{
	static const uint8_t none[32];
	uint64_t hash = hash_bytes(id, 32, store->seed);
	const struct pod *best = NULL, *pod;
	bool best_current = false, current;
	uint32_t pos = REF_TABLE_START, ref;
	size_t container, best_container = 0;
	const uint8_t *place;

	if (!memcmp(id, none, 32))
		return NULL;
	while ((ref = ref_table_next(&store->ids, hash, &pos))) {
		place = slab_at(&store->records, ref);
		if (!same_bytes(place, id, 32))
			continue;
		pod = pod_at(store, slab_base(&store->records, ref));
		container = pod_id_container(pod, (size_t)(place - pod->rest) / 32, &current);
		if (best == pod
			? current > best_current ||
			      (current == best_current && container < best_container)
			: !best || (current != best_current ? current : better(pod, best))) {
			best = pod;
			best_current = current;
			best_container = container;
		}
	}
	if (best && ret_container)
		*ret_container = best_container;
	return best;
}

int pod_store_each(const struct pod_store *store, int (*fn)(void *arg, const struct pod *pod),
		   void *arg)
{
	uint32_t ref;
	int r;

	for (uint32_t i = 0; i < store->names.size; i++) {
		ref = ref_table_slot(&store->names, i);
		r = ref ? fn(arg, pod_at(store, ref)) : 0;
		if (r)
			return r;
	}
	return 0;
}

int pod_store_each_on_node(const struct pod_store *store, const char *node,
			   int (*fn)(void *arg, const struct pod *pod), void *arg)
{
	interned key = intern_find(store->intern, node, strlen(node));
	uint32_t ref = key ? group_find(store, &store->nodes, key) : 0;
	const struct pod *pod;
	int r;

	ref = ref ? ((struct group *)slab_at(&store->groups, ref))->head : 0;
	for (; ref; ref = pod->node_next) {
		pod = pod_at(store, ref);
		r = fn(arg, pod);
		if (r)
			return r;
	}
	return 0;
}

int pod_store_each_in_namespace(const struct pod_store *store, const char *ns,
				int (*fn)(void *arg, const struct pod *pod), void *arg)
{
	interned key = intern_find(store->intern, ns, strlen(ns));
	uint32_t ref = key ? group_find(store, &store->namespaces, key) : 0;
	const struct pod *pod;
	int r;

	ref = ref ? ((struct group *)slab_at(&store->groups, ref))->head : 0;
	for (; ref; ref = pod->ns_next) {
		pod = pod_at(store, ref);
		r = fn(arg, pod);
		if (r)
			return r;
	}
	return 0;
}

int pod_store_each_namespace(const struct pod_store *store, int (*fn)(void *arg, const char *ns),
			     void *arg)
{
	const struct group *g;
	uint32_t ref;
	int r;

	for (uint32_t i = 0; i < store->namespaces.size; i++) {
		ref = ref_table_slot(&store->namespaces, i);
		if (!ref)
			continue;
		g = slab_at(&store->groups, ref);
		r = fn(arg, intern_text(store->intern, g->key, NULL));
		if (r)
			return r;
	}
	return 0;
}

const struct pod *pod_store_first_in_namespace(const struct pod_store *store, const char *ns)
{
	interned key = intern_find(store->intern, ns, strlen(ns));
	uint32_t ref = key ? group_find(store, &store->namespaces, key) : 0;

	return ref ? pod_at(store, ((struct group *)slab_at(&store->groups, ref))->head) : NULL;
}

const struct pod *pod_store_next_in_namespace(const struct pod_store *store, const struct pod *pod)
{
	return pod_at(store, pod->ns_next);
}
