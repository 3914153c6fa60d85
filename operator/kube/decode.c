/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decoding an item: selects the encoding, and has the code that both encodings share, so that both
 * match containers and statuses in the same way. Pure functions, any thread.
 */
#include "operator/kube/decode_internal.h"

int kube_decode_meta(const struct kube_item *item, struct meta_view *ret)
{
	return item->encoding == KUBE_JSON ? json_decode_meta(item, ret)
					   : proto_decode_meta(item, ret);
}

int kube_decode_pod(const struct kube_item *item, struct pod_view *ret)
{
	return item->encoding == KUBE_JSON ? json_decode_pod(item, ret)
					   : proto_decode_pod(item, ret);
}

int kube_decode_endpoint_slice(const struct kube_item *item, struct endpoint_slice_view *ret)
{
	return item->encoding == KUBE_JSON ? json_decode_endpoint_slice(item, ret)
					   : proto_decode_endpoint_slice(item, ret);
}

int kube_decode_status(const struct kube_item *item, struct status_view *ret)
{
	struct status_view v = {0};
	int r = item->encoding == KUBE_JSON ? json_decode_status(item, &v)
					    : proto_decode_status(item, &v);

	if (r == 0)
		*ret = v;
	return r;
}

int kube_decode_bookmark(const struct kube_item *item, struct slice *ret_resource_version,
			 bool *ret_initial_end)
{
	struct slice rv = {0};
	bool end = false;
	int r = item->encoding == KUBE_JSON ? json_decode_bookmark(item, &rv, &end)
					    : proto_decode_bookmark(item, &rv, &end);

	if (r < 0)
		return r;
	*ret_resource_version = rv;
	*ret_initial_end = end;
	return 0;
}

/* Clears the scalars and counts only: clearing the arrays would cost more than decoding. */
void view_init_meta(struct meta_view *m)
{
	m->name = m->ns = m->uid = m->resource_version = (struct slice){0};
	m->generation = m->created = 0;
	m->deleting = m->cut = false;
	m->n_labels = m->n_annotations = m->n_owners = 0;
}

void view_init_pod(struct pod_view *v)
{
	view_init_meta(&v->meta);
	v->node_name = v->phase = v->pod_ip = v->hostname = (struct slice){0};
	v->host_network = false;
	v->n_containers = 0;
}

void view_add_container(struct pod_view *v, enum container_type type, struct slice name,
			struct slice image)
{
	if (v->n_containers == VIEW_CONTAINERS_MAX) {
		v->meta.cut = true;
		return;
	}
	v->containers[v->n_containers++] =
	    (struct container_view){.type = type, .name = name, .image = image};
}

void view_set_status(struct pod_view *v, enum container_type type,
		     const struct container_status *status)
{
	for (size_t i = 0; i < v->n_containers; i++) {
		struct container_view *c = &v->containers[i];

		if (c->type == type && slice_equal(c->name, status->name)) {
			c->id = status->id;
			c->image_id = status->image_id;
			c->restart_count = status->restart_count;
			return;
		}
	}
}

void view_add_target(struct endpoint_slice_view *v, struct slice uid, struct slice name)
{
	if (v->n_pods == VIEW_ENDPOINTS_MAX) {
		v->meta.cut = true;
		return;
	}
	v->pod_uids[v->n_pods] = uid;
	v->pod_names[v->n_pods++] = name;
}

/*
 * Sorts containers by type, stable: protobuf has app containers first, JSON init containers. They
 * are few, so insertion sort will do.
 */
void view_order_containers(struct pod_view *v)
{
	for (size_t i = 1; i < v->n_containers; i++) {
		struct container_view moved = v->containers[i];
		size_t to = i;

		for (; to > 0 && v->containers[to - 1].type > moved.type; to--)
			v->containers[to] = v->containers[to - 1];
		if (to != i)
			v->containers[to] = moved;
	}
}

/* Limits a decoded restart count to 0..INT32_MAX: it is an int32, never negative. */
uint32_t view_restart_count(int64_t n)
{
	return n < 0 ? 0 : (uint32_t)MIN(n, INT32_MAX);
}
