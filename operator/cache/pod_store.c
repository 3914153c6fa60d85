// SPDX-License-Identifier: Apache-2.0
/*
 * The pod store: takes decoded pods, keeps a record of each (pod_store_record.c) and indexes them
 * (pod_store_index.c).
 *
 * A changed pod gets a new record: it is written, linked and reported to changed(), and then the
 * old one is freed. So changed() can read both, and an error before leaves the old record as it
 * was. A pod whose strings have no room is dropped and counted, and no error is returned: the
 * informer would only retry again and again. Loop thread only.
 */
#include <sys/random.h>

#include "operator/cache/pod_store_internal.h"

int pod_store_new(const struct pod_store_options *options, struct pod_store **ret)
{
	_cleanup_(pod_store_freep) struct pod_store *store = calloc(1, sizeof(*store));
	int r;

	if (!store)
		return -ENOMEM;
	store->intern = options->intern;
	store->max_pods = options->max_pods;
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

struct pod_store *pod_store_free(struct pod_store *store)
{
	uint32_t ref;

	if (!store)
		return NULL;
	for (uint32_t i = 0; i < store->names.size; i++) {
		ref = ref_table_slot(&store->names, i);
		if (ref)
			pod_release_strings(store, pod_at(store, ref));
	}
	pod_index_done(store);
	slab_done(&store->records);
	slab_done(&store->groups);
	kept_annotations_done(&store->annotations);
	buf_done(&store->scratch);
	free(store);
	return NULL;
}

int pod_store_keep_annotations(struct pod_store *store, const char *const *keys)
{
	return kept_annotations_set(&store->annotations, keys);
}

static void tell(struct pod_store *store, const struct pod *pod, const struct pod *old)
{
	store->stats.changes++;
	if (store->changed)
		store->changed(store->arg, pod, old);
}

static void forget(struct pod_store *store, uint32_t ref)
{
	struct pod *pod = pod_at(store, ref);

	pod_unlink(store, ref);
	tell(store, NULL, pod);
	pod_release_strings(store, pod);
	slab_free(&store->records, ref);
}

static void trim(struct pod_store *store)
{
	ref_table_trim(&store->names);
	ref_table_trim(&store->uids);
	ref_table_trim(&store->ids);
	ref_table_trim(&store->nodes);
	ref_table_trim(&store->namespaces);
}

/* DRAFT, whose strings have references, takes the place of OLD (0: none). */
static int commit(struct pod_store *store, const struct pod *draft, uint32_t old)
{
	uint32_t ref;
	int r;

	r = pod_index_reserve(store, draft);
	if (r)
		return r;
	r = slab_alloc(&store->records, sizeof(*draft) + draft->tail, &ref);
	if (r) {
		pod_index_trim(store, draft);
		return r;
	}
	memcpy(pod_at(store, ref), draft, sizeof(*draft) + draft->tail);
	pod_link(store, ref);
	if (old)
		pod_unlink(store, old);
	tell(store, pod_at(store, ref), pod_at(store, old));
	if (old) {
		pod_release_strings(store, pod_at(store, old));
		slab_free(&store->records, old);
	}
	return 0;
}

static uint32_t find_meta(const struct pod_store *store, const struct meta_view *meta)
{
	interned ns = intern_find(store->intern, meta->ns.p, meta->ns.n);

	return ns ? pod_index_find(store, ns, meta->name.p, meta->name.n) : 0;
}

int pod_store_put_view(struct pod_store *store, const struct pod_view *view, uint32_t generation)
{
	const struct meta_view *meta = &view->meta;
	struct pod *draft;
	uint8_t uid[16];
	uint32_t old;
	int r;

	if (!kept_is_name(meta->name) || !kept_is_name(meta->ns))
		return -EBADMSG;
	old = find_meta(store, meta);
	(void)kept_uid(meta->uid, uid);
	if (old && !same_bytes(pod_at(store, old)->uid, uid, sizeof(uid))) {
		forget(store, old);
		old = 0;
	}
	if (!old && store->names.count >= store->max_pods) {
		store->stats.beyond_max++;
		return 0;
	}
	if (old)
		pod_at(store, old)->generation = generation;
	r = pod_draft(store, view, pod_at(store, old), &draft);
	if (r == -ENOSPC) {
		/*
		 * Its old record may have labels that do not apply any more: do not go on profiling
		 * by it.
		 */
		if (old)
			forget(store, old);
		store->stats.no_room++;
		return 0;
	}
	if (r)
		return r;
	draft->generation = generation;
	if (old && pod_same(draft, pod_at(store, old))) {
		store->stats.unchanged++;
		pod_release_strings(store, draft);
		return 0;
	}
	r = commit(store, draft, old);
	if (r)
		pod_release_strings(store, draft);
	return r;
}

int pod_store_remove_view(struct pod_store *store, const struct meta_view *meta)
{
	uint8_t uid[16];
	uint32_t ref;

	if (!kept_is_name(meta->name) || !kept_is_name(meta->ns))
		return -EBADMSG;
	ref = find_meta(store, meta);
	(void)kept_uid(meta->uid, uid);
	/* The name belongs to another pod already: the removed one is gone. */
	if (!ref || (meta->uid.n && !same_bytes(pod_at(store, ref)->uid, uid, sizeof(uid))))
		return 0;
	forget(store, ref);
	trim(store);
	return 0;
}

int pod_store_replaced(void *arg, uint32_t generation)
{
	struct pod_store *store = arg;
	uint32_t ref;

	for (uint32_t i = 0; i < store->names.size;) {
		ref = ref_table_slot(&store->names, i);
		if (ref && pod_at(store, ref)->generation != generation)
			forget(store, ref); /* the slot may have another record */
		else
			i++;
	}
	trim(store);
	return 0;
}

uint32_t pod_mark(const struct pod *pod)
{
	return pod->mark;
}

void pod_set_mark(struct pod_store *store, const struct pod *pod, uint32_t mark)
{
	((struct pod *)pod)->mark = mark; /* the store's own memory */
}

const char *pod_node(const struct pod_store *store, const struct pod *pod)
{
	return intern_text(store->intern, pod->node, NULL);
}

size_t pod_store_count(const struct pod_store *store)
{
	return store->names.count;
}

void pod_store_read_stats(const struct pod_store *store, struct pod_store_stats *ret)
{
	*ret = store->stats;
	ret->record_bytes = sizeof(*store) + slab_bytes(&store->records);
	ret->index_bytes = slab_bytes(&store->groups) + ref_table_bytes(&store->names) +
			   ref_table_bytes(&store->uids) + ref_table_bytes(&store->ids) +
			   ref_table_bytes(&store->nodes) + ref_table_bytes(&store->namespaces);
}

size_t pod_store_bytes(const struct pod_store *store)
{
	struct pod_store_stats s;

	pod_store_read_stats(store, &s);
	return s.record_bytes + s.index_bytes;
}

uint64_t pod_store_dropped(const struct pod_store *store)
{
	const struct pod_store_stats *s = &store->stats;

	return s->beyond_max + s->no_room + s->cut_pods + s->cut_values + s->unindexed;
}
