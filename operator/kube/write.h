/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operator's reads and writes of single objects, each one call of kube_client. OBJECT is only
 * used during the function. DONE as in kube_request; RET may be NULL when the call is never
 * cancelled.
 */
#pragma once

#include <cjson/cJSON.h>

#include "operator/kube/client.h"

#define KUBE_FIELD_MANAGER	  "kiln-operator"
#define KUBE_FIELD_MANAGER_STATUS "kiln-operator-status"

typedef void kube_done_fn(void *arg, const struct kube_answer *answer);

/* Server-side apply with our field manager and force (we own what we render). */
int kube_apply(struct kube_client *client, enum kube_kind kind, const char *ns, const char *name,
	       const cJSON *object, kube_done_fn *done, void *arg,
	       struct kube_call **ret) _must_check_;
/* Server-side apply of .status by the status manager. */
int kube_apply_status(struct kube_client *client, enum kube_kind kind, const char *ns,
		      const char *name, const cJSON *object, kube_done_fn *done, void *arg,
		      struct kube_call **ret) _must_check_;
/* UID NULL: whatever has the name; else only that object (a precondition). Background deletion. */
int kube_delete(struct kube_client *client, enum kube_kind kind, const char *ns, const char *name,
		const char *uid, kube_done_fn *done, void *arg,
		struct kube_call **ret) _must_check_;
int kube_get(struct kube_client *client, enum kube_kind kind, const char *ns, const char *name,
	     kube_done_fn *done, void *arg, struct kube_call **ret) _must_check_;
/* Reads from the API server's cache: the object may be a moment old, and etcd is not asked. */
int kube_get_recent(struct kube_client *client, enum kube_kind kind, const char *ns,
		    const char *name, kube_done_fn *done, void *arg,
		    struct kube_call **ret) _must_check_;
int kube_create(struct kube_client *client, enum kube_kind kind, const char *ns,
		const cJSON *object, kube_done_fn *done, void *arg,
		struct kube_call **ret) _must_check_;
/* PUT: the object's resourceVersion decides, 409 when it is stale. */
int kube_update(struct kube_client *client, enum kube_kind kind, const char *ns, const char *name,
		const cJSON *object, kube_done_fn *done, void *arg,
		struct kube_call **ret) _must_check_;

/* TokenReview: who a token belongs to, for AUDIENCE. */
struct kube_token_review {
	bool authenticated;
	const char *error; /* why not; "" */
	const char *username;
	/* From the extra fields authentication.kubernetes.io/{pod-name,pod-uid,node-name,node-uid}.
	 */
	const char *pod_name, *pod_uid, *node_name, *node_uid; /* "" when absent */
};
int kube_review_token(struct kube_client *client, const char *token, const char *audience,
		      void (*done)(void *arg, const struct kube_token_review *review,
				   const struct kube_answer *answer),
		      void *arg, struct kube_call **ret) _must_check_;

/* An event of events.k8s.io/v1 about OBJECT. TYPE "Normal" or "Warning". */
struct kube_event {
	enum kube_kind kind;
	const char *ns, *name, *uid; /* of what it is about; ns "" for cluster scope */
	const char *type, *reason, *action, *note;
	const char *instance; /* which operator: the pod's name */
};
int kube_emit_event(struct kube_client *client, const struct kube_event *event,
		    int64_t now_us) _must_check_;
