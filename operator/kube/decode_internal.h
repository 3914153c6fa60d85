/* SPDX-License-Identifier: Apache-2.0 */
/* The two decoders behind decode.c, and what they share. Only for decode*.c. */
#pragma once

#include "operator/kube/decode.h"

#define KUBE_INITIAL_EVENTS_END "k8s.io/initial-events-end"

int proto_decode_meta(const struct kube_item *item, struct meta_view *ret);
int proto_decode_pod(const struct kube_item *item, struct pod_view *ret);
int proto_decode_endpoint_slice(const struct kube_item *item, struct endpoint_slice_view *ret);
int proto_decode_status(const struct kube_item *item, struct status_view *ret);
int proto_decode_bookmark(const struct kube_item *item, struct slice *ret_rv, bool *ret_end);

int json_decode_meta(const struct kube_item *item, struct meta_view *ret);
int json_decode_pod(const struct kube_item *item, struct pod_view *ret);
int json_decode_endpoint_slice(const struct kube_item *item, struct endpoint_slice_view *ret);
int json_decode_status(const struct kube_item *item, struct status_view *ret);
int json_decode_bookmark(const struct kube_item *item, struct slice *ret_rv, bool *ret_end);

static inline bool slice_equal(struct slice a, struct slice b)
{
	return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

/* A ContainerStatus, before its container is looked up by name. */
struct container_status {
	struct slice name, id, image_id;
	uint32_t restart_count;
};

void view_init_meta(struct meta_view *m);
void view_init_pod(struct pod_view *v);
/* An element beyond a cap is left out and sets meta.cut. */
void view_add_container(struct pod_view *v, enum container_type type, struct slice name,
			struct slice image);
/* The status of a container that is not in the spec is ignored. */
void view_set_status(struct pod_view *v, enum container_type type,
		     const struct container_status *status);
void view_order_containers(struct pod_view *v);
void view_add_target(struct endpoint_slice_view *v, struct slice uid, struct slice name);
uint32_t view_restart_count(int64_t n);
