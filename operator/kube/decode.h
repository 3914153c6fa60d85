/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The few fields of an object that the operator keeps, as slices into the encoded bytes. Nothing is
 * copied, except JSON strings with escapes, which are unescaped into the item's scratch. Both
 * encodings give the same view: an empty string is absent, except the value of a pair, which is
 * never NULL. Values are not trusted: they are not NUL-terminated and may have any bytes; lists
 * longer than their cap are cut and set meta.cut.
 */
#pragma once

#include "operator/kube/stream.h"

struct slice {
	const char *p; /* NULL: absent */
	uint32_t n;
};
struct slice_pair {
	struct slice key, value;
};

enum {
	VIEW_PAIRS_MAX = 256,
	VIEW_OWNERS_MAX = 8,
	VIEW_CONTAINERS_MAX = 64,
	VIEW_ENDPOINTS_MAX = 1024
};

struct owner_view {
	struct slice kind, name, uid;
	bool controller;
};

struct meta_view {
	struct slice name, ns, uid, resource_version;
	int64_t generation, created; /* seconds since the epoch */
	bool deleting;
	struct slice_pair labels[VIEW_PAIRS_MAX], annotations[VIEW_PAIRS_MAX];
	size_t n_labels, n_annotations;
	struct owner_view owners[VIEW_OWNERS_MAX];
	size_t n_owners;
	bool cut;
};

enum container_type { CONTAINER_APP, CONTAINER_INIT, CONTAINER_EPHEMERAL };
struct container_view {
	enum container_type type;
	struct slice name, image; /* of the spec */
	/* Of its status; absent until the kubelet has reported it. */
	struct slice id; /* "containerd://64 hex digits" */
	struct slice image_id;
	uint32_t restart_count;
};

struct pod_view {
	struct meta_view meta;
	struct slice node_name, phase, pod_ip, hostname;
	bool host_network;
	struct container_view containers[VIEW_CONTAINERS_MAX]; /* app, init, ephemeral */
	size_t n_containers;
};

struct endpoint_slice_view {
	struct meta_view meta; /* label kubernetes.io/service-name names the service */
	struct slice pod_uids[VIEW_ENDPOINTS_MAX],
	    pod_names[VIEW_ENDPOINTS_MAX]; /* of targetRefs to pods */
	size_t n_pods;
};

struct status_view { /* meta.k8s.io/v1 Status, of errors */
	struct slice status, message, reason;
	int code;
};

/*
 * -EBADMSG: not such an object; -ENOBUFS: see kube_item.scratch. The views are large: keep them
 * static or on the heap, not on deep stacks; after a failure they hold nothing of use, and array
 * elements past their count are never written.
 */
int kube_decode_meta(const struct kube_item *item, struct meta_view *ret) _must_check_;
int kube_decode_pod(const struct kube_item *item, struct pod_view *ret) _must_check_;
int kube_decode_endpoint_slice(const struct kube_item *item,
			       struct endpoint_slice_view *ret) _must_check_;
int kube_decode_status(const struct kube_item *item, struct status_view *ret) _must_check_;
/* Only metadata.resourceVersion, and whether the bookmark ends a WatchList's initial events
 * (annotation k8s.io/initial-events-end). */
int kube_decode_bookmark(const struct kube_item *item, struct slice *ret_resource_version,
			 bool *ret_initial_end) _must_check_;
