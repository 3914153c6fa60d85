/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct service_index: which services a pod backs, from endpoint slices. Joined by the uid that a
 * slice's targetRef names and by namespace, so that nobody can name a service for the pods of
 * another namespace. Fits struct informer_ops. Loop thread only.
 */
#pragma once

#include "operator/cache/intern.h"
#include "operator/kube/decode.h"

enum {
	SERVICE_NAMES_MAX = 16,	       /* of one pod; further ones are left out */
	SERVICE_SLICE_PODS_MAX = 1000, /* of one slice: the most that kube-controller-manager can be
					* told by --max-endpoints-per-slice */
};

struct service_index_options {
	struct intern *intern;
	size_t max_slices, max_endpoints; /* in all; more are counted and left out */
	/* The services of the pod UID may have changed. Must not change the index. */
	void (*changed)(void *arg, const uint8_t uid[16]);
	void *arg;
};

struct service_index_stats {
	size_t slices, endpoints, bytes;
	uint64_t refused; /* slices beyond the caps, or without room for their strings */
	uint64_t cut;	  /* endpoints left out of their slice, or that too many slices have */
};

struct service_index;
int service_index_new(const struct service_index_options *options,
		      struct service_index **ret) _must_check_;
struct service_index *service_index_free(struct service_index *index);
DEFINE_CLEANUP(struct service_index *, service_index_free)

int service_index_put(void *index, const struct kube_item *item, uint32_t generation);
int service_index_remove(void *index, const struct kube_item *item);
int service_index_replaced(void *index, uint32_t generation);
/* -EBADMSG: names that no API server accepts. */
int service_index_put_view(struct service_index *index, const struct endpoint_slice_view *view,
			   uint32_t generation);
int service_index_remove_view(struct service_index *index, const struct meta_view *meta);

/*
 * The names of the pod's services, without duplicates, in alphabetical order; valid until the next
 * change. At most MAX are returned, the first ones.
 */
size_t service_index_find(const struct service_index *index, const char *ns, const uint8_t uid[16],
			  const char *ret[], size_t max);
void service_index_read_stats(const struct service_index *index, struct service_index_stats *ret);
