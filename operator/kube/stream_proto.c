/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams in protobuf. A list is "k8s\0", Unknown{1 typeMeta 2 raw} and inside raw the list
 * {1 ListMeta 2 items}, which is the same for every kind; fields are entered as they come, and only
 * the one that is wanted is ever in memory. A watch is frames: 4 bytes of length, big-endian, then
 * WatchEvent{1 type 2 RawExtension{1 raw}}, whose raw is an envelope of its own.
 *
 * ListMeta{2 resourceVersion 3 continue}. Numbers: k8s.io/apimachinery v0.37.2 generated.proto of
 * pkg/runtime and pkg/apis/meta/v1, and docs/kubernetes-wire.md. Owned by the loop's thread.
 */
#include "operator/kube/stream_internal.h"

enum { STEP_MORE = 0, STEP_ON = 1 };

/* One more byte of a varint: 1 when it is whole, 0 when it goes on. */
static int varint_byte(struct proto_stream *p, uint8_t b)
{
	if (p->shift == 0)
		p->varint = 0;
	p->varint |= (uint64_t)(b & 0x7f) << p->shift;
	p->shift += 7;
	if (b & 0x80)
		return p->shift < 70 ? 0 : -EBADMSG;
	p->shift = 0;
	return 1;
}

/* Counts N bytes as read from the list. -EBADMSG: the list has fewer left. */
static int count_list(struct proto_stream *p, uint64_t n)
{
	if (!p->in_list)
		return 0;
	if (n > p->left)
		return -EBADMSG;
	p->left -= n;
	return 0;
}

static int step_varint(struct proto_stream *p, struct cursor *in)
{
	int r;

	if (cursor_left(in) == 0)
		return 0;
	r = count_list(p, 1);
	return r < 0 ? r : varint_byte(p, cursor_u8(in));
}

static int on_tag(struct proto_stream *p)
{
	p->field = (uint32_t)(p->varint >> 3);
	p->type = p->varint & 7;
	if (p->varint >> 32 || p->field == 0)
		return -EBADMSG;
	switch (p->type) {
	case WIRE_BYTES:
		p->at = PROTO_LENGTH;
		return 0;
	case WIRE_VARINT:
		p->at = PROTO_VARINT;
		return 0;
	case WIRE_FIXED64:
	case WIRE_FIXED32:
		p->want = p->type == WIRE_FIXED64 ? 8 : 4;
		p->at = PROTO_SKIP;
		return count_list(p, p->want);
	default:
		return -EBADMSG;
	}
}

static int on_length(struct kube_stream *s)
{
	struct proto_stream *p = &s->proto;
	size_t max = SIZE_MAX;
	int r;

	if (!p->in_list && p->field == 2) {
		if (p->list_seen || !p->kind_known)
			return -EBADMSG;
		p->list_seen = true;
		if (!p->is_status) {
			p->in_list = true;
			p->left = p->varint;
			p->at = PROTO_TAG;
			return 0;
		}
	}
	p->at = PROTO_SKIP;
	if (p->field <= 2) {
		max = p->field == 1 ? STREAM_HEAD_MAX : KUBE_OBJECT_MAX;
		p->at = PROTO_TAKE;
	}
	r = count_list(p, p->varint);
	if (r < 0)
		return r;
	p->want = p->varint;
	if (p->varint <= max)
		return 0;
	p->at = PROTO_SKIP;
	return p->in_list && p->field == 2 ? stream_too_large(s) : -E2BIG;
}

static int on_list_meta(struct kube_stream *s, const uint8_t *p, size_t n)
{
	struct cursor c = cursor_of(p, n);
	struct slice rv = {0}, token = {0};
	struct wire_field f;

	while (wire_next(&c, &f)) {
		if (f.number == 2)
			rv = wire_text(&c, &f);
		else if (f.number == 3)
			token = wire_text(&c, &f);
	}
	return c.bad ? -EBADMSG : stream_list_meta(s, rv, token);
}

/* TypeMeta, whose message is P itself: wrapped as a field for wire_kind(). */
static int on_type_meta(struct proto_stream *st, const uint8_t *p, size_t n)
{
	const struct wire_field f = {.number = 1, .type = WIRE_BYTES, .p = p, .n = n};
	struct cursor c = cursor_of(p, n);
	struct slice kind = wire_kind(&c, &f);

	st->kind_known = true;
	return c.bad ? -EBADMSG : stream_check_kind(kind, &st->is_status);
}

static int on_taken(struct kube_stream *s, const uint8_t *p)
{
	struct proto_stream *st = &s->proto;

	if (st->in_list)
		return st->field == 1
			   ? on_list_meta(s, p, st->want)
			   : stream_item(s, KUBE_ADDED, KUBE_PROTOBUF, p, st->want, false);
	if (st->field == 1)
		return on_type_meta(st, p, st->want);
	s->meta_told = true;
	return stream_item(s, KUBE_ERROR, KUBE_PROTOBUF, p, st->want, false);
}

/* Passes on a WatchEvent, with its object taken out of the envelope. */
static int on_event(struct kube_stream *s, const uint8_t *p, size_t n)
{
	struct cursor c = cursor_of(p, n), object = {0};
	struct slice type = {0}, raw = {0};
	enum kube_event_type event;
	struct wire_unknown u;
	struct wire_field f;
	int r;

	while (wire_next(&c, &f)) {
		if (f.number == 1)
			type = wire_text(&c, &f);
		else if (f.number == 2)
			object = wire_message(&c, &f);
	}
	while (wire_next(&object, &f)) {
		if (f.number == 1)
			raw = wire_slice(&object, &f);
	}
	if (c.bad || object.bad)
		return -EBADMSG;
	r = stream_event_type(type, &event);
	if (r < 0)
		return r;
	r = wire_open_unknown((const uint8_t *)raw.p, raw.n, &u);
	if (r < 0)
		return r;
	return stream_item(s, event, KUBE_PROTOBUF, u.raw, u.len, false);
}

/* Collects WANT bytes and handles them; STEP_MORE when more must come. */
static int step_take(struct kube_stream *s, struct cursor *in)
{
	struct proto_stream *st = &s->proto;
	const uint8_t *p;
	int r = stream_take(s, in, st->want, &p);

	if (r <= 0)
		return r;
	switch (st->at) {
	case PROTO_MAGIC:
		r = wire_is_magic(p) ? 0 : -EBADMSG;
		st->at = PROTO_TAG;
		break;
	case PROTO_FRAME:
		st->want = (size_t)p[0] << 24 | (size_t)p[1] << 16 | (size_t)p[2] << 8 | p[3];
		st->at = PROTO_EVENT;
		r = st->want > KUBE_OBJECT_MAX + STREAM_ENVELOPE_MAX ? -E2BIG : 0;
		break;
	case PROTO_EVENT:
		r = on_event(s, p, st->want);
		st->at = PROTO_FRAME;
		break;
	default:
		r = on_taken(s, p);
		st->at = PROTO_TAG;
	}
	stream_taken(s);
	return r < 0 ? r : STEP_ON;
}

/* One step: STEP_ON, or STEP_MORE when the piece is used up. */
static int step(struct kube_stream *s, struct cursor *in)
{
	struct proto_stream *p = &s->proto;
	size_t n;
	int r;

	switch (p->at) {
	case PROTO_TAG:
		if (p->in_list && p->left == 0 && p->shift == 0) {
			p->in_list = false;
			return STEP_ON;
		}
		r = step_varint(p, in);
		if (r <= 0)
			return r < 0 ? r : cursor_left(in) ? STEP_ON : STEP_MORE;
		r = on_tag(p);
		return r < 0 ? r : STEP_ON;
	case PROTO_LENGTH:
		r = step_varint(p, in);
		if (r <= 0)
			return r < 0 ? r : cursor_left(in) ? STEP_ON : STEP_MORE;
		r = on_length(s);
		return r < 0 ? r : STEP_ON;
	case PROTO_VARINT:
		r = step_varint(p, in);
		if (r <= 0)
			return r < 0 ? r : cursor_left(in) ? STEP_ON : STEP_MORE;
		p->at = PROTO_TAG;
		return STEP_ON;
	case PROTO_SKIP:
		n = MIN(p->want, cursor_left(in));
		cursor_skip(in, n);
		p->want -= n;
		if (p->want)
			return STEP_MORE;
		p->at = PROTO_TAG;
		return STEP_ON;
	case PROTO_MAGIC:
	case PROTO_FRAME:
		p->want = WIRE_MAGIC_SIZE; /* a frame's length has four bytes too */
		return step_take(s, in);
	case PROTO_TAKE:
	case PROTO_EVENT:
		return step_take(s, in);
	}
	return -EBADMSG;
}

int proto_stream_feed(struct kube_stream *s, struct cursor *in)
{
	int r;

	do {
		r = step(s, in);
	} while (r == STEP_ON);
	return r;
}

bool proto_stream_may_end(const struct kube_stream *s)
{
	const struct proto_stream *p = &s->proto;

	if (s->mode == KUBE_WATCH)
		return p->at == PROTO_FRAME && s->object.len == 0;
	return p->at == PROTO_TAG && p->shift == 0 && !p->in_list && p->list_seen;
}
