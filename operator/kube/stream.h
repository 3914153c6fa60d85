/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct kube_stream: cuts the body of a list or a watch into objects while it arrives, in protobuf
 * or JSON as the server answered, so that one object is in memory and not one page. Bytes come in
 * pieces of any size. Sources: list envelope, watch frames and field numbers were read off a real
 * server (docs/kubernetes-wire.md says which); k8s.io/apimachinery pkg/runtime/generated.proto and
 * pkg/apis/meta/v1/generated.proto have the same.
 */
#pragma once

#include "lib/base.h"

enum kube_encoding { KUBE_JSON, KUBE_PROTOBUF };
enum kube_stream_mode { KUBE_LIST, KUBE_WATCH };
enum kube_event_type { KUBE_ADDED, KUBE_MODIFIED, KUBE_DELETED, KUBE_BOOKMARK, KUBE_ERROR };
enum { KUBE_OBJECT_MAX = 8 << 20 }; /* bytes of one object; longer: -E2BIG, the stream ends */

struct kube_item {
	enum kube_event_type type; /* KUBE_ADDED for items of a list */
	enum kube_encoding encoding;
	const uint8_t *bytes; /* the object itself, without envelope; valid during the call */
	size_t len;
};

struct kube_stream_ops {
	/* Negative ends the stream with that error. */
	int (*item)(void *arg, const struct kube_item *item);
	/*
	 * Of a list, once, when known; in JSON it may come after the items. Valid during the call;
	 * CONTINUE_TOKEN "" at the last page.
	 */
	int (*list_meta)(void *arg, const char *resource_version, const char *continue_token);
};

struct kube_stream;
int kube_stream_new(enum kube_stream_mode mode, const struct kube_stream_ops *ops, void *arg,
		    struct kube_stream **ret) _must_check_;
struct kube_stream *kube_stream_free(struct kube_stream *s);
DEFINE_CLEANUP(struct kube_stream *, kube_stream_free)
/* CONTENT_TYPE decides at the first bytes. -EBADMSG: not what it should be; -E2BIG; item()'s. */
int kube_stream_feed(struct kube_stream *s, const char *content_type, const void *bytes,
		     size_t len) _must_check_;
/* The body has ended: -EBADMSG when it ended inside an object or a list. */
int kube_stream_end(struct kube_stream *s) _must_check_;
