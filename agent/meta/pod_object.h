/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct pod_object: one pod, policy or destination as the table keeps it: made from its protobuf
 * message in one piece of memory, never changed, counted by references. Part of the pod table.
 *
 * What a message has beyond the limits of pods.h is left out and counted; what cannot be used at
 * all (no uid, a rate of 0) makes no object. Plain functions; only the reference counts are shared
 * between threads.
 */
#pragma once

#include <stdatomic.h>

#include "agent/meta/pods.h"
#include "kiln/node/v1/node.pb-c.h"

enum pod_object_kind { POD_OBJECT_POD, POD_OBJECT_POLICY, POD_OBJECT_DESTINATION };

struct pod_object {
	atomic_uint refs;
	unsigned int held; /* by tables; loop thread */
	enum pod_object_kind kind;
	uint64_t digest[2];  /* of the message: the same contents, the same digest */
	size_t size;	     /* bytes of this block */
	const uint8_t *wire; /* the message without secrets, as it goes to disk */
	size_t wire_len;
	const void *key; /* uid, id of a policy (8 bytes), id of a destination */
	size_t key_len;
	union {
		struct pod_entry pod;
		struct pod_policy policy;
		struct pod_destination destination;
	};
};

/*
 * FROM_DISK: a destination that had secrets is incomplete. -EINVAL: unusable, counted in COUNTERS;
 * -ENOMEM.
 */
int pod_object_pod(const Kiln__Node__V1__Pod *message, struct pod_counters *counters,
		   struct pod_object **ret) _must_check_;
int pod_object_policy(const Kiln__Node__V1__Policy *message, struct pod_counters *counters,
		      struct pod_object **ret) _must_check_;
int pod_object_destination(const Kiln__Node__V1__Destination *message, bool from_disk,
			   struct pod_counters *counters, struct pod_object **ret) _must_check_;

static inline struct pod_object *pod_object_ref(struct pod_object *o)
{
	atomic_fetch_add_explicit(&o->refs, 1, memory_order_relaxed);
	return o;
}
struct pod_object *pod_object_unref(struct pod_object *o); /* NULL is fine */
DEFINE_CLEANUP(struct pod_object *, pod_object_unref)

static inline bool pod_object_same(const struct pod_object *a, const struct pod_object *b)
{
	return a->digest[0] == b->digest[0] && a->digest[1] == b->digest[1];
}
