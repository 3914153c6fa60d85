// SPDX-License-Identifier: Apache-2.0
/*
 * Endpoint slices as records {namespace, service, the slice's name, pod uids}, and a table of the
 * slab names of the uids inside them: 16 bytes and a slot for each endpoint. A changed slice gets a
 * new record, and changed() is called for the uids that only the old or the new one has, or for all
 * uids of both when the service differs. Loop thread only.
 */
#include "operator/cache/service_index.h"

#include <sys/random.h>

#include "operator/cache/kept.h"
#include "lib/ref_table.h"
#include "operator/cache/slab.h"

/* Followed by n_uids sorted uids of 16 bytes and the slice's name with a NUL. */
struct slice_record {
	interned ns, service; /* service 0: none */
	uint32_t generation;
	uint16_t n_uids;
	uint8_t name_len;
	uint8_t unused;
	uint8_t uids[];
};
_Static_assert(sizeof(struct slice_record) == 16, "uids are aligned");

enum {
	RECORD_MAX = sizeof(struct slice_record) + SERVICE_SLICE_PODS_MAX * 16 + KEPT_NAME_MAX + 1,
	SAME_MAX = 64, /* slices of one pod that are indexed */
};
_Static_assert((int)RECORD_MAX <= (int)SLAB_REACH, "every uid can be named");

static const char service_label[] = "kubernetes.io/service-name";

struct service_index {
	struct intern *intern;
	struct slab records;
	struct ref_table names, uids;
	size_t max_slices, max_endpoints, endpoints;
	uint64_t seed, refused, cut;
	void (*changed)(void *arg, const uint8_t uid[16]);
	void *arg;
	struct endpoint_slice_view view;
	_Alignas(8) uint8_t draft[RECORD_MAX];
};

static struct slice_record *record_at(const struct service_index *index, uint32_t ref)
{
	return ref ? slab_at(&index->records, ref) : NULL;
}

static const char *record_name(const struct slice_record *rec)
{
	return (const char *)rec->uids + 16 * (size_t)rec->n_uids;
}

static uint64_t hash_name(const struct service_index *index, interned ns, const char *name,
			  size_t len)
{
	return hash_bytes(name, len, index->seed ^ mix64(ns));
}

static uint64_t names_hash(const struct service_index *index, uint32_t ref)
{
	const struct slice_record *rec = record_at(index, ref);

	return hash_name(index, rec->ns, record_name(rec), rec->name_len);
}

/* Includes the namespace, so that slices of other namespaces cannot crowd out a pod's own. */
static uint64_t hash_uid(const struct service_index *index, interned ns, const uint8_t uid[16])
{
	return hash_bytes(uid, 16, index->seed ^ mix64(~(uint64_t)ns));
}

static const struct slice_record *record_of(const struct service_index *index, uint32_t place)
{
	return record_at(index, slab_base(&index->records, place));
}

static uint64_t uids_hash(const struct service_index *index, uint32_t ref)
{
	return hash_uid(index, record_of(index, ref)->ns, slab_at(&index->records, ref));
}

int service_index_new(const struct service_index_options *options, struct service_index **ret)
{
	struct service_index *index = calloc(1, sizeof(*index));

	if (!index)
		return -ENOMEM;
	index->intern = options->intern;
	index->max_slices = options->max_slices;
	index->max_endpoints = options->max_endpoints;
	index->changed = options->changed;
	index->arg = options->arg;
	if (getrandom(&index->seed, sizeof(index->seed), GRND_NONBLOCK) != sizeof(index->seed))
		index->seed = mix64((uintptr_t)index);
	*ret = index;
	return 0;
}

static void release_strings(struct service_index *index, const struct slice_record *rec)
{
	intern_unref(index->intern, rec->ns);
	intern_unref(index->intern, rec->service);
}

struct service_index *service_index_free(struct service_index *index)
{
	uint32_t ref;

	if (!index)
		return NULL;
	for (uint32_t i = 0; i < index->names.size; i++) {
		ref = ref_table_slot(&index->names, i);
		if (ref)
			release_strings(index, record_at(index, ref));
	}
	ref_table_done(&index->names);
	ref_table_done(&index->uids);
	slab_done(&index->records);
	free(index);
	return NULL;
}

static uint32_t find(const struct service_index *index, const struct meta_view *meta)
{
	interned ns = intern_find(index->intern, meta->ns.p, meta->ns.n);
	uint64_t hash = hash_name(index, ns, meta->name.p, meta->name.n);
	uint32_t pos = REF_TABLE_START, ref;

	while (ns && (ref = ref_table_next(&index->names, hash, &pos))) {
		const struct slice_record *rec = record_at(index, ref);

		if (rec->ns == ns && rec->name_len == meta->name.n &&
		    !memcmp(record_name(rec), meta->name.p, meta->name.n))
			return ref;
	}
	return 0;
}

static uint32_t place_of(uint32_t ref, size_t i)
{
	return ref + (uint32_t)((offsetof(struct slice_record, uids) + 16 * i) / SLAB_UNIT);
}

static void link_uid(struct service_index *index, uint32_t place)
{
	const void *uid = slab_at(&index->records, place);
	interned ns = record_of(index, place)->ns;
	uint64_t hash = hash_uid(index, ns, uid);
	uint32_t pos = REF_TABLE_START, other;
	unsigned int same = 0;

	while ((other = ref_table_next(&index->uids, hash, &pos)))
		if (!memcmp(slab_at(&index->records, other), uid, 16) &&
		    record_of(index, other)->ns == ns && ++same == SAME_MAX) {
			index->cut++;
			return;
		}
	ref_table_insert(&index->uids, hash, place);
}

static void link_record(struct service_index *index, uint32_t ref)
{
	const struct slice_record *rec = record_at(index, ref);

	ref_table_insert(&index->names, names_hash(index, ref), ref);
	for (size_t i = 0; i < rec->n_uids; i++)
		link_uid(index, place_of(ref, i));
	index->endpoints += rec->n_uids;
}

static void unlink_record(struct service_index *index, uint32_t ref)
{
	const struct slice_record *rec = record_at(index, ref);

	(void)ref_table_remove(&index->names, names_hash(index, ref), ref);
	for (size_t i = 0; i < rec->n_uids; i++)
		(void)ref_table_remove(&index->uids, uids_hash(index, place_of(ref, i)),
				       place_of(ref, i));
	index->endpoints -= rec->n_uids;
}

/* Reports the uids that changed from A to B by merging the two sorted lists. Either may be NULL. */
static void tell(struct service_index *index, const struct slice_record *a,
		 const struct slice_record *b)
{
	bool same = a && b && a->service == b->service;
	size_t i = 0, j = 0, n_a = a ? a->n_uids : 0, n_b = b ? b->n_uids : 0;
	const uint8_t *uid;
	bool both;
	int c;

	while (index->changed && (i < n_a || j < n_b)) {
		c = i == n_a ? 1 : j == n_b ? -1 : memcmp(a->uids + 16 * i, b->uids + 16 * j, 16);
		both = c == 0;
		uid = c <= 0 ? a->uids + 16 * i : b->uids + 16 * j;
		i += c <= 0;
		j += c >= 0;
		if (!both || !same)
			index->changed(index->arg, uid);
	}
}

static int compare_uids(const void *a, const void *b)
{
	return memcmp(a, b, 16);
}

static int draft(struct service_index *index, const struct endpoint_slice_view *view,
		 struct slice_record **ret)
{
	struct slice_record *rec = (struct slice_record *)index->draft;
	const struct meta_view *meta = &view->meta;
	size_t n = MIN(view->n_pods, (size_t)VIEW_ENDPOINTS_MAX), out = 0;
	int r;

	*rec = (struct slice_record){.name_len = (uint8_t)meta->name.n};
	for (size_t i = 0; i < n; i++) {
		if (!view->pod_uids[i].n)
			continue;
		if (out == SERVICE_SLICE_PODS_MAX)
			index->cut++;
		else
			(void)kept_uid(view->pod_uids[i], rec->uids + 16 * out++);
	}
	qsort(rec->uids, out, 16, compare_uids);
	for (size_t i = 0; i < out; i++) /* one pod may be in a slice several times */
		if (!i || !same_bytes(rec->uids + 16 * i, rec->uids + 16 * (i - 1), 16))
			memmove(rec->uids + 16 * (size_t)rec->n_uids++, rec->uids + 16 * i, 16);
	memcpy(rec->uids + 16 * (size_t)rec->n_uids, meta->name.p, meta->name.n);
	rec->uids[16 * (size_t)rec->n_uids + meta->name.n] = 0;
	index->cut += meta->cut;
	r = intern_get(index->intern, meta->ns.p, meta->ns.n, &rec->ns);
	for (size_t i = 0; i < meta->n_labels && !r && !rec->service; i++)
		if (meta->labels[i].key.n == strlen(service_label) &&
		    !memcmp(meta->labels[i].key.p, service_label, strlen(service_label)) &&
		    kept_is_name(meta->labels[i].value))
			r = intern_get(index->intern, meta->labels[i].value.p,
				       meta->labels[i].value.n, &rec->service);
	if (r) {
		release_strings(index, rec);
		return r;
	}
	*ret = rec;
	return 0;
}

static int commit(struct service_index *index, const struct slice_record *rec, size_t size,
		  uint32_t old)
{
	uint32_t ref;
	int r;

	r = ref_table_reserve(&index->names, 1);
	if (!r)
		r = ref_table_reserve(&index->uids, rec->n_uids);
	if (!r)
		r = slab_alloc(&index->records, size, &ref);
	if (r)
		return r;
	memcpy(record_at(index, ref), rec, size);
	if (old)
		unlink_record(index, old);
	link_record(index, ref);
	tell(index, record_at(index, old), record_at(index, ref));
	if (old) {
		release_strings(index, record_at(index, old));
		slab_free(&index->records, old);
	}
	return 0;
}

static bool same_record(const struct slice_record *a, const struct slice_record *b)
{
	return a->service == b->service && a->n_uids == b->n_uids &&
	       !memcmp(a->uids, b->uids, 16 * (size_t)a->n_uids);
}

int service_index_put_view(struct service_index *index, const struct endpoint_slice_view *view,
			   uint32_t generation)
{
	struct slice_record *rec, *before;
	size_t size, endpoints;
	uint32_t old;
	int r;

	if (!kept_is_name(view->meta.name) || !kept_is_name(view->meta.ns))
		return -EBADMSG;
	old = find(index, &view->meta);
	before = record_at(index, old);
	if (before)
		before->generation = generation;
	r = draft(index, view, &rec);
	if (r == -ENOSPC) {
		index->refused++;
		return 0;
	}
	if (r)
		return r;
	rec->generation = generation;
	size = sizeof(*rec) + 16 * (size_t)rec->n_uids + rec->name_len + 1;
	endpoints = index->endpoints + rec->n_uids - (before ? before->n_uids : 0);
	if (before && same_record(before, rec)) {
		release_strings(index, rec);
		return 0;
	}
	if ((!before && index->names.count >= index->max_slices) ||
	    endpoints > index->max_endpoints) {
		index->refused++;
		release_strings(index, rec);
		return 0;
	}
	r = commit(index, rec, size, old);
	if (r)
		release_strings(index, rec);
	return r;
}

static void forget(struct service_index *index, uint32_t ref)
{
	struct slice_record *rec = record_at(index, ref);

	unlink_record(index, ref);
	tell(index, rec, NULL);
	release_strings(index, rec);
	slab_free(&index->records, ref);
}

int service_index_remove_view(struct service_index *index, const struct meta_view *meta)
{
	uint32_t ref;

	if (!kept_is_name(meta->name) || !kept_is_name(meta->ns))
		return -EBADMSG;
	ref = find(index, meta);
	if (ref)
		forget(index, ref);
	ref_table_trim(&index->names);
	ref_table_trim(&index->uids);
	return 0;
}

int service_index_put(void *arg, const struct kube_item *item, uint32_t generation)
{
	struct service_index *index = arg;
	int r = kube_decode_endpoint_slice(item, &index->view);

	return r ? r : service_index_put_view(index, &index->view, generation);
}

int service_index_remove(void *arg, const struct kube_item *item)
{
	struct service_index *index = arg;
	int r = kube_decode_meta(item, &index->view.meta);

	return r ? r : service_index_remove_view(index, &index->view.meta);
}

int service_index_replaced(void *arg, uint32_t generation)
{
	struct service_index *index = arg;
	uint32_t ref;

	for (uint32_t i = 0; i < index->names.size;) {
		ref = ref_table_slot(&index->names, i);
		if (ref && record_at(index, ref)->generation != generation)
			forget(index, ref); /* the slot may have another record */
		else
			i++;
	}
	ref_table_trim(&index->names);
	ref_table_trim(&index->uids);
	return 0;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

size_t service_index_find(const struct service_index *index, const char *ns, const uint8_t uid[16],
			  const char *ret[], size_t max)
{
	interned key = intern_find(index->intern, ns, strlen(ns));
	uint64_t hash = hash_uid(index, key, uid);
	uint32_t pos = REF_TABLE_START, ref;
	const char *names[SAME_MAX];
	size_t n = 0, out = 0;

	while (key && n < SAME_MAX && (ref = ref_table_next(&index->uids, hash, &pos))) {
		const struct slice_record *rec = record_of(index, ref);

		if (!memcmp(slab_at(&index->records, ref), uid, 16) && rec->ns == key &&
		    rec->service)
			names[n++] = intern_text(index->intern, rec->service, NULL);
	}
	qsort(names, n, sizeof(*names), compare_names);
	for (size_t i = 0; i < n && out < max; i++)
		if (!i || names[i] != names[i - 1]) /* interned: equal names are one */
			ret[out++] = names[i];
	return out;
}

void service_index_read_stats(const struct service_index *index, struct service_index_stats *ret)
{
	*ret = (struct service_index_stats){
	    .slices = index->names.count,
	    .endpoints = index->endpoints,
	    .bytes = sizeof(*index) + slab_bytes(&index->records) + ref_table_bytes(&index->names) +
		     ref_table_bytes(&index->uids),
	    .refused = index->refused,
	    .cut = index->cut,
	};
}
