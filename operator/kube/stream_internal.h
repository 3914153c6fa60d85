/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of a stream. The encodings are two push parsers: each takes what it can of a piece and
 * keeps its place in its own state. Only for stream*.c.
 */
#pragma once

#include "lib/buf.h"
#include "operator/kube/json_scan.h"
#include "operator/kube/stream.h"
#include "operator/kube/wire.h"

enum {
	STREAM_KEEP = 1 << 20,	      /* memory kept from one object to the next */
	STREAM_HEAD_MAX = 64 << 10,   /* TypeMeta, ListMeta, a JSON list without its items */
	STREAM_ENVELOPE_MAX = 4 << 10 /* around an object in a watch event */
};

struct proto_stream {
	enum {
		PROTO_MAGIC,  /* of a list: "k8s\0" */
		PROTO_TAG,    /* a field of Unknown, or of the list inside it */
		PROTO_LENGTH, /* the field's length */
		PROTO_VARINT, /* the field's value, of no interest */
		PROTO_SKIP,   /* WANT bytes of no interest */
		PROTO_TAKE,   /* WANT bytes that are collected */
		PROTO_FRAME,  /* of a watch: 4 bytes of length */
		PROTO_EVENT,  /* WANT bytes of a frame */
	} at;
	bool in_list; /* inside Unknown.raw, of which LEFT bytes are to come */
	bool list_seen;
	bool is_status; /* a Status came in place of the list */
	bool kind_known;
	uint64_t left;
	uint64_t varint; /* as far as it has come */
	unsigned int shift;
	uint32_t field, type;
	size_t want;
};

struct json_stream {
	enum {
		JSON_BEFORE, /* the first bracket, or between watch events */
		JSON_HEAD,   /* of a list: what is not an item, kept in HEAD */
		JSON_ITEMS,  /* between items */
		JSON_ITEM,   /* an item, or a watch event */
		JSON_AFTER,  /* the list is whole */
	} at;
	struct json_cut cut;
	bool comma_due;
	bool skipping; /* the item is too large */
	/* Of the head: the last string at depth 1, which is a key until a value follows. */
	struct buf head;
	uint32_t depth;
	bool in_string, backslash, value; /* value: after the colon of a member at depth 1 */
	size_t key_start, key_end;
};

struct kube_stream {
	enum kube_stream_mode mode;
	struct kube_stream_ops ops;
	void *arg;
	bool started;
	bool meta_told; /* or a Status in its place */
	enum kube_encoding encoding;
	int error;	   /* error that ended the stream */
	struct buf object; /* the part of an object that came in earlier pieces */
	uint8_t *scratch;
	size_t scratch_size;
	struct proto_stream proto;
	struct json_stream json;
};

/* Negative, or 0 when all of IN is taken. */
int proto_stream_feed(struct kube_stream *s, struct cursor *in);
int json_stream_feed(struct kube_stream *s, struct cursor *in);
/* True when the body may end here. */
bool proto_stream_may_end(const struct kube_stream *s);
bool json_stream_may_end(const struct kube_stream *s);

/*
 * Collects WANT contiguous bytes. 1: *RET points to them, into IN itself when it has them all; call
 * stream_taken() when done with them. 0: more bytes must come.
 */
int stream_take(struct kube_stream *s, struct cursor *in, size_t want, const uint8_t **ret);
void stream_taken(struct kube_stream *s);

int stream_item(struct kube_stream *s, enum kube_event_type type, enum kube_encoding encoding,
		const uint8_t *p, size_t n, bool escapes);
/* Reports an object that is too large. 0: skip it; -E2BIG: the stream ends. */
int stream_too_large(struct kube_stream *s);
int stream_list_meta(struct kube_stream *s, struct slice resource_version,
		     struct slice continue_token);
int stream_event_type(struct slice name, enum kube_event_type *ret);
/* -EBADMSG: KIND is neither a list nor a Status. */
int stream_check_kind(struct slice kind, bool *ret_is_status);
/* Room for N bytes to unescape into. */
int stream_scratch(struct kube_stream *s, size_t n);
