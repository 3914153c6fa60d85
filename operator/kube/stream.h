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
	/*
	 * JSON: room for LEN bytes, where decoders unescape a string at the offset it has in BYTES,
	 * so that slices stay plain and BYTES stays JSON. Streams give it when the object has a
	 * '\\'; NULL: decoding a string that needs it fails with -ENOBUFS.
	 */
	uint8_t *scratch;
};

struct kube_stream_ops {
	/* Negative ends the stream with that error. No call may free the stream. */
	int (*item)(void *arg, const struct kube_item *item);
	/*
	 * Called once for a list: in protobuf before the items, in JSON after them. The strings are
	 * valid during the call; CONTINUE_TOKEN is "" at the last page. A Status in place of a list
	 * is passed to item() with type KUBE_ERROR instead.
	 */
	int (*list_meta)(void *arg, const char *resource_version, const char *continue_token);
	/*
	 * An object of a list was too large and is left out. If NULL, such an object ends the
	 * stream with -E2BIG, as one in a watch always does.
	 */
	void (*too_large)(void *arg);
};

struct kube_stream;
int kube_stream_new(enum kube_stream_mode mode, const struct kube_stream_ops *ops, void *arg,
		    struct kube_stream **ret) _must_check_;
struct kube_stream *kube_stream_free(struct kube_stream *s);
DEFINE_CLEANUP(struct kube_stream *, kube_stream_free)
/*
 * The CONTENT_TYPE of the first bytes decides the encoding. -EBADMSG: malformed, or neither
 * encoding; -E2BIG; or the error of item().
 */
int kube_stream_feed(struct kube_stream *s, const char *content_type, const void *bytes,
		     size_t len) _must_check_;
/* The body has ended: -EBADMSG when it ended inside an object or a list. */
int kube_stream_end(struct kube_stream *s) _must_check_;

/*
 * A body that is one object (GET, errors) as an item of type KUBE_ADDED, taken out of the protobuf
 * envelope. SCRATCH: LEN bytes, or NULL. -EBADMSG: neither encoding, or a broken envelope.
 */
int kube_item_of(const char *content_type, const uint8_t *bytes, size_t len, uint8_t *scratch,
		 struct kube_item *ret) _must_check_;
