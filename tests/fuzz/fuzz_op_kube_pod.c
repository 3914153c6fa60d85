/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as an object, through every decoder; the first byte says in which encoding. What is
 * seen lies inside the object or its scratch, and is the same the second time.
 */
#include "operator/kube/decode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct pod_view pod;
static struct meta_view meta;
static struct endpoint_slice_view slices;
static struct status_view status;
static uint64_t hash;

static void see(const struct kube_item *item, struct slice s)
{
	const uint8_t *p = (const uint8_t *)s.p;

	if (s.n == 0)
		return;
	if (!(p >= item->bytes && p + s.n <= item->bytes + item->len) &&
	    !(item->scratch && p >= item->scratch && p + s.n <= item->scratch + item->len))
		abort();
	hash = hash_bytes(p, s.n, hash);
}

static void see_pairs(const struct kube_item *item, const struct slice_pair *pairs, size_t n)
{
	if (n > VIEW_PAIRS_MAX)
		abort();
	for (size_t i = 0; i < n; i++) {
		if (!pairs[i].key.p || !pairs[i].value.p)
			abort();
		see(item, pairs[i].key);
		see(item, pairs[i].value);
	}
}

static void see_meta(const struct kube_item *item, const struct meta_view *m)
{
	see(item, m->name);
	see(item, m->ns);
	see(item, m->uid);
	see(item, m->resource_version);
	hash = mix64(hash ^ (uint64_t)m->generation ^ (uint64_t)m->created ^ m->deleting);
	see_pairs(item, m->labels, m->n_labels);
	see_pairs(item, m->annotations, m->n_annotations);
	if (m->n_owners > VIEW_OWNERS_MAX)
		abort();
	for (size_t i = 0; i < m->n_owners; i++) {
		see(item, m->owners[i].kind);
		see(item, m->owners[i].name);
		see(item, m->owners[i].uid);
	}
}

static void see_pod(const struct kube_item *item)
{
	see_meta(item, &pod.meta);
	see(item, pod.node_name);
	see(item, pod.phase);
	see(item, pod.pod_ip);
	see(item, pod.hostname);
	if (pod.n_containers > VIEW_CONTAINERS_MAX)
		abort();
	for (size_t i = 0; i < pod.n_containers; i++) {
		see(item, pod.containers[i].name);
		see(item, pod.containers[i].image);
		see(item, pod.containers[i].id);
		see(item, pod.containers[i].image_id);
		hash = mix64(hash ^ pod.containers[i].restart_count);
		if (i > 0 && pod.containers[i].type < pod.containers[i - 1].type)
			abort();
	}
}

static uint64_t decode_all(const struct kube_item *item)
{
	struct slice rv;
	bool end;

	hash = 0;
	if (kube_decode_pod(item, &pod) == 0)
		see_pod(item);
	if (kube_decode_meta(item, &meta) == 0)
		see_meta(item, &meta);
	if (kube_decode_endpoint_slice(item, &slices) == 0) {
		see_meta(item, &slices.meta);
		if (slices.n_pods > VIEW_ENDPOINTS_MAX)
			abort();
		for (size_t i = 0; i < slices.n_pods; i++) {
			see(item, slices.pod_uids[i]);
			see(item, slices.pod_names[i]);
		}
	}
	if (kube_decode_status(item, &status) == 0) {
		see(item, status.status);
		see(item, status.message);
		see(item, status.reason);
		hash = mix64(hash ^ (uint64_t)status.code);
	}
	if (kube_decode_bookmark(item, &rv, &end) == 0) {
		see(item, rv);
		hash = mix64(hash ^ end);
	}
	return hash;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_free_ uint8_t *bytes = NULL, *scratch = NULL;
	struct kube_item item;
	uint64_t first;

	if (size < 2)
		return 0;
	bytes = malloc(size - 1);
	scratch = malloc(size - 1);
	if (!bytes || !scratch)
		return 0;
	memcpy(bytes, data + 1, size - 1);
	item = (struct kube_item){.encoding = data[0] & 1 ? KUBE_JSON : KUBE_PROTOBUF,
				  .bytes = bytes,
				  .len = size - 1,
				  .scratch = scratch};
	first = decode_all(&item);
	if (decode_all(&item) != first || memcmp(bytes, data + 1, size - 1) != 0)
		abort();
	item.scratch = NULL;
	(void)decode_all(&item);
	return 0;
}
