// SPDX-License-Identifier: Apache-2.0
/*
 * Objects of which only the metadata is used: a record of fixed size with the name behind it,
 * strings interned, one table by namespace and name. An object is returned unpacked into the
 * store's own arrays, which the next call overwrites. A changed object gets a new record. Loop
 * thread only.
 */
#include "operator/cache/meta_store.h"

#include <sys/random.h>

#include "operator/cache/kept.h"
#include "lib/ref_table.h"
#include "operator/cache/slab.h"

enum { META_ANNOTATIONS_MAX = 64 };

struct record {
	uint8_t uid[16];
	interned ns; /* 0: cluster scope */
	interned owner, labels, annotations;
	interned uid_text; /* 0: kept_uid_text(uid) */
	uint32_t generation;
	int64_t created;
	uint8_t name_len;
	char name[]; /* and a NUL */
};
_Static_assert(sizeof(struct record) == 56 && offsetof(struct record, name) == 49,
	       "49 bytes beside the name");

struct meta_store {
	struct intern *intern;
	struct slab records;
	struct ref_table names;
	size_t max_objects;
	bool no_labels;
	uint64_t seed, dropped, cut;
	struct kept_annotations annotations;
	void (*changed)(void *arg, const struct meta_object *object, bool removed);
	void *arg;
	struct buf scratch;
	struct meta_view view; /* of the item that is being read */
	/* What the last struct meta_object points to. */
	struct pod_label labels[VIEW_PAIRS_MAX], kept[META_ANNOTATIONS_MAX];
	struct kept_owner_fields owner;
	char uid[37];
};

static struct record *record_at(const struct meta_store *store, uint32_t ref)
{
	return ref ? slab_at(&store->records, ref) : NULL;
}

static uint64_t hash_name(const struct meta_store *store, interned ns, const char *name, size_t len)
{
	return hash_bytes(name, len, store->seed ^ mix64(ns));
}

static uint64_t names_hash(const struct meta_store *store, uint32_t ref)
{
	const struct record *rec = record_at(store, ref);

	return hash_name(store, rec->ns, rec->name, rec->name_len);
}

int meta_store_new(const struct meta_store_options *options, struct meta_store **ret)
{
	_cleanup_(meta_store_freep) struct meta_store *store = calloc(1, sizeof(*store));
	int r;

	if (!store)
		return -ENOMEM;
	store->intern = options->intern;
	store->max_objects = options->max_objects;
	store->no_labels = options->no_labels;
	store->changed = options->changed;
	store->arg = options->arg;
	buf_init(&store->scratch, KEPT_PAIRS_BYTES_MAX);
	if (getrandom(&store->seed, sizeof(store->seed), GRND_NONBLOCK) != sizeof(store->seed))
		store->seed = mix64((uintptr_t)store);
	r = kept_annotations_init(&store->annotations, options->annotations);
	if (r)
		return r;
	*ret = TAKE_PTR(store);
	return 0;
}

static void release_strings(struct meta_store *store, const struct record *rec)
{
	intern_unref(store->intern, rec->ns);
	intern_unref(store->intern, rec->owner);
	intern_unref(store->intern, rec->labels);
	intern_unref(store->intern, rec->annotations);
	intern_unref(store->intern, rec->uid_text);
}

int meta_store_keep_annotations(struct meta_store *store, const char *const *keys)
{
	return kept_annotations_set(&store->annotations, keys);
}

struct meta_store *meta_store_free(struct meta_store *store)
{
	uint32_t ref;

	if (!store)
		return NULL;
	for (uint32_t i = 0; i < store->names.size; i++) {
		ref = ref_table_slot(&store->names, i);
		if (ref)
			release_strings(store, record_at(store, ref));
	}
	ref_table_done(&store->names);
	slab_done(&store->records);
	kept_annotations_done(&store->annotations);
	buf_done(&store->scratch);
	free(store);
	return NULL;
}

static uint32_t find(const struct meta_store *store, struct slice ns, struct slice name)
{
	interned key = ns.n ? intern_find(store->intern, ns.p, ns.n) : 0;
	uint64_t hash = hash_name(store, key, name.p, name.n);
	uint32_t pos = REF_TABLE_START, ref;

	if (ns.n && !key)
		return 0;
	while ((ref = ref_table_next(&store->names, hash, &pos))) {
		const struct record *rec = record_at(store, ref);

		if (rec->ns == key && rec->name_len == name.n && !memcmp(rec->name, name.p, name.n))
			return ref;
	}
	return 0;
}

static void unpack(struct meta_store *store, const struct record *rec, struct meta_object *ret)
{
	const struct intern *in = store->intern;

	kept_owner_unpack(in, rec->owner, &store->owner);
	kept_uid_text(rec->uid, store->uid);
	*ret = (struct meta_object){
	    .ns = intern_text(in, rec->ns, NULL),
	    .name = rec->name,
	    .uid = rec->uid_text ? intern_text(in, rec->uid_text, NULL) : store->uid,
	    .owner_kind = store->owner.kind,
	    .owner_name = store->owner.name,
	    .owner_uid = store->owner.uid_text,
	    .labels = store->labels,
	    .annotations = store->kept,
	    .created = rec->created,
	};
	ret->n_labels = kept_pairs_unpack(in, rec->labels, store->labels, VIEW_PAIRS_MAX);
	ret->n_annotations =
	    kept_pairs_unpack(in, rec->annotations, store->kept, META_ANNOTATIONS_MAX);
}

static void tell(struct meta_store *store, const struct record *rec, bool removed)
{
	struct meta_object object;

	if (!store->changed)
		return;
	unpack(store, rec, &object);
	store->changed(store->arg, &object, removed);
}

static void forget(struct meta_store *store, uint32_t ref)
{
	struct record *rec = record_at(store, ref);

	tell(store, rec, true);
	(void)ref_table_remove(&store->names, names_hash(store, ref), ref);
	release_strings(store, rec);
	slab_free(&store->records, ref);
}

/* Interns the strings of VIEW; on failure REC holds the references taken so far. */
static int take_strings(struct meta_store *store, const struct meta_view *view, struct record *rec)
{
	struct intern *in = store->intern;
	int r = 0;

	if (view->ns.n)
		r = intern_get(in, view->ns.p, view->ns.n, &rec->ns);
	if (!r)
		r = kept_owner(in, &store->scratch, view->owners, view->n_owners, &rec->owner);
	if (!r && !store->no_labels)
		r = kept_pairs(in, &store->scratch, view->labels, view->n_labels, NULL,
			       VIEW_PAIRS_MAX, &store->cut, &rec->labels);
	if (!r)
		r = kept_pairs(in, &store->scratch, view->annotations, view->n_annotations,
			       &store->annotations, META_ANNOTATIONS_MAX, &store->cut,
			       &rec->annotations);
	if (!r && !kept_uid(view->uid, rec->uid)) {
		if (kept_is_text(view->uid, KEPT_NAME_MAX))
			r = intern_get(in, view->uid.p, view->uid.n, &rec->uid_text);
		else
			store->cut++;
	}
	return r;
}

static bool same_record(const struct record *a, const struct record *b)
{
	return !memcmp(a, b, offsetof(struct record, generation)) && a->created == b->created;
}

static int commit(struct meta_store *store, const struct record *draft, struct slice name,
		  uint32_t old)
{
	struct record *rec;
	uint32_t ref;
	int r;

	r = ref_table_reserve(&store->names, 1);
	if (!r)
		r = slab_alloc(&store->records, offsetof(struct record, name) + name.n + 1, &ref);
	if (r)
		return r;
	rec = record_at(store, ref);
	memcpy(rec, draft, offsetof(struct record, name));
	memcpy(rec->name, name.p, name.n);
	rec->name[name.n] = 0;
	if (old)
		(void)ref_table_remove(&store->names, names_hash(store, old), old);
	ref_table_insert(&store->names, names_hash(store, ref), ref);
	tell(store, rec, false);
	if (old) {
		release_strings(store, record_at(store, old));
		slab_free(&store->records, old);
	}
	return 0;
}

static bool names_fit(const struct meta_view *view)
{
	return kept_is_name(view->name) && (!view->ns.n || kept_is_name(view->ns));
}

int meta_store_put_view(struct meta_store *store, const struct meta_view *view, uint32_t generation)
{
	struct record draft = {.generation = generation, .created = view->created};
	uint32_t old;
	int r;

	if (!names_fit(view))
		return -EBADMSG;
	draft.name_len = (uint8_t)view->name.n;
	old = find(store, view->ns, view->name);
	if (old)
		record_at(store, old)->generation = generation;
	else if (store->names.count >= store->max_objects) {
		store->dropped++;
		return 0;
	}
	store->cut += view->cut;
	r = take_strings(store, view, &draft);
	if (!r && !(old && same_record(&draft, record_at(store, old)))) {
		r = commit(store, &draft, view->name, old);
		if (!r)
			return 0;
	}
	release_strings(store, &draft);
	if (r == -ENOSPC) {
		/* Its old labels may be wrong: drop the object. */
		if (old)
			forget(store, old);
		store->dropped++;
		return 0;
	}
	return r;
}

int meta_store_remove_view(struct meta_store *store, const struct meta_view *view)
{
	uint32_t ref;

	if (!names_fit(view))
		return -EBADMSG;
	ref = find(store, view->ns, view->name);
	if (ref)
		forget(store, ref);
	ref_table_trim(&store->names);
	return 0;
}

int meta_store_put(void *arg, const struct kube_item *item, uint32_t generation)
{
	struct meta_store *store = arg;
	int r = kube_decode_meta(item, &store->view);

	return r ? r : meta_store_put_view(store, &store->view, generation);
}

int meta_store_remove(void *arg, const struct kube_item *item)
{
	struct meta_store *store = arg;
	int r = kube_decode_meta(item, &store->view);

	return r ? r : meta_store_remove_view(store, &store->view);
}

int meta_store_replaced(void *arg, uint32_t generation)
{
	struct meta_store *store = arg;
	uint32_t ref;

	for (uint32_t i = 0; i < store->names.size;) {
		ref = ref_table_slot(&store->names, i);
		if (ref && record_at(store, ref)->generation != generation)
			forget(store, ref); /* the slot may have another record */
		else
			i++;
	}
	ref_table_trim(&store->names);
	return 0;
}

size_t meta_store_count(const struct meta_store *store)
{
	return store->names.count;
}

size_t meta_store_bytes(const struct meta_store *store)
{
	return sizeof(*store) + slab_bytes(&store->records) + ref_table_bytes(&store->names);
}

uint64_t meta_store_dropped(const struct meta_store *store)
{
	return store->dropped + store->cut;
}

int meta_store_find(struct meta_store *store, const char *ns, const char *name,
		    struct meta_object *ret)
{
	size_t ns_len = ns ? strlen(ns) : 0;
	uint32_t ref = find(store, (struct slice){ns, (uint32_t)ns_len},
			    (struct slice){name, (uint32_t)strlen(name)});

	if (!ref)
		return -ENOENT;
	unpack(store, record_at(store, ref), ret);
	return 0;
}

int meta_store_each(struct meta_store *store,
		    int (*fn)(void *arg, const struct meta_object *object), void *arg)
{
	struct meta_object object;
	uint32_t ref;
	int r;

	for (uint32_t i = 0; i < store->names.size; i++) {
		ref = ref_table_slot(&store->names, i);
		if (!ref)
			continue;
		unpack(store, record_at(store, ref), &object);
		r = fn(arg, &object);
		if (r)
			return r;
	}
	return 0;
}
