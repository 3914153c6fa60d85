/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams in JSON. A list's items are cut out one by one; everything else of the outer object is
 * kept in `head`, with an empty array in place of the items, and read when it is complete: so
 * metadata and kind may come before or after the items. A watch is a sequence of objects
 * {"type":...,"object":{...}} with blanks or nothing between them.
 *
 * Blanks may be anywhere: servers write one line, or indent for clients that they take for people.
 * Owned by the loop's thread.
 */
#include "operator/kube/stream_internal.h"

static bool is_blank(uint8_t b)
{
	return b == ' ' || b == '\n' || b == '\t' || b == '\r';
}

static void read_list_meta(struct json *j, struct slice *rv, struct slice *token)
{
	struct slice key;

	if (!json_enter(j, JSON_OBJECT))
		return;
	while (json_key(j, &key)) {
		if (SLICE_IS(key, "resourceVersion"))
			*rv = json_text(j);
		else if (SLICE_IS(key, "continue"))
			*token = json_text(j);
		else
			json_skip(j);
	}
}

/* The outer object is complete: a list, or a Status in its place. */
static int on_head(struct kube_stream *s)
{
	const struct buf *head = &s->json.head;
	struct slice key, kind = {0}, rv = {0}, token = {0};
	bool is_status = false, has_meta = false;
	struct json j;
	int r = stream_scratch(s, head->len);

	if (r < 0)
		return r;
	j = json_of((const uint8_t *)head->data, head->len, s->scratch);
	if (!json_enter(&j, JSON_OBJECT))
		return -EBADMSG;
	while (json_key(&j, &key)) {
		if (SLICE_IS(key, "kind")) {
			kind = json_text(&j);
		} else if (SLICE_IS(key, "metadata")) {
			read_list_meta(&j, &rv, &token);
			has_meta = true;
		} else {
			json_skip(&j);
		}
	}
	r = json_error(&j);
	if (r == 0)
		r = stream_check_kind(kind, &is_status);
	if (r < 0)
		return r;
	if (is_status) {
		s->meta_told = true;
		return stream_item(s, KUBE_ERROR, KUBE_JSON, (const uint8_t *)head->data, head->len,
				   true);
	}
	return has_meta ? stream_list_meta(s, rv, token) : -EBADMSG;
}

/* A byte inside a string of the head. */
static void head_string(struct json_stream *st, uint8_t b)
{
	if (st->backslash) {
		st->backslash = false;
	} else if (b == '\\') {
		st->backslash = true;
	} else if (b == '"') {
		st->in_string = false;
		if (st->depth == 1 && !st->value)
			st->key_end = st->head.len;
	}
}

static bool key_is_items(const struct json_stream *st)
{
	static const char items[] = "\"items\"";

	return st->value && st->key_end - st->key_start == sizeof(items) - 1 &&
	       memcmp(st->head.data + st->key_start, items, sizeof(items) - 1) == 0;
}

/* A byte of the head, already in it; 1 when it ended the outer object. */
static int head_byte(struct json_stream *st, uint8_t b)
{
	if (st->in_string) {
		head_string(st, b);
		return 0;
	}
	switch (b) {
	case '"':
		st->in_string = true;
		if (st->depth == 1 && !st->value)
			st->key_start = st->head.len - 1;
		break;
	case ':':
		st->value |= st->depth == 1;
		break;
	case ',':
		st->value &= st->depth != 1;
		break;
	case '[':
		if (st->depth == 1 && key_is_items(st)) {
			st->at = JSON_ITEMS;
			st->comma_due = false;
			return buf_append(&st->head, "]", 1);
		}
		st->depth++;
		break;
	case '{':
		st->depth++;
		break;
	case ']':
	case '}':
		return --st->depth == 0;
	}
	return 0;
}

static int feed_head(struct kube_stream *s, struct cursor *in)
{
	struct json_stream *st = &s->json;
	int r = 0;

	while (st->at == JSON_HEAD && cursor_left(in)) {
		const uint8_t *b = cursor_bytes(in, 1);

		r = buf_append(&st->head, b, 1);
		if (r == 0)
			r = head_byte(st, *b);
		if (r < 0)
			return r;
		if (r > 0) {
			st->at = JSON_AFTER;
			return on_head(s);
		}
	}
	return 0;
}

/* {"type":"ADDED","object":{...}}, in either order. */
static int on_event(struct kube_stream *s, const uint8_t *p, size_t n)
{
	struct slice key, type = {0};
	const uint8_t *object = NULL;
	enum kube_event_type event;
	size_t start, len = 0;
	struct json j = json_of(p, n, NULL);
	int r;

	if (!json_enter(&j, JSON_OBJECT))
		return -EBADMSG;
	while (json_key(&j, &key)) {
		if (SLICE_IS(key, "type")) {
			type = json_text(&j);
		} else if (SLICE_IS(key, "object") && json_peek(&j) == JSON_OBJECT) {
			start = j.c.pos;
			json_skip(&j);
			object = p + start;
			len = j.c.pos - start;
		} else {
			json_skip(&j);
		}
	}
	if (j.c.bad || !object)
		return -EBADMSG;
	r = stream_event_type(type, &event);
	if (r < 0)
		return r;
	return stream_item(s, event, KUBE_JSON, object, len, s->json.cut.any_backslash);
}

/* Skips the bytes of an item that is too large. */
static int skip_item(struct kube_stream *s)
{
	struct json_stream *st = &s->json;
	int r;

	if (!st->skipping) {
		r = stream_too_large(s);
		if (r < 0)
			return r;
		st->skipping = true;
		stream_taken(s);
	}
	if (st->cut.depth == 0) {
		st->skipping = false;
		st->at = JSON_ITEMS;
	}
	return 0;
}

static int feed_item(struct kube_stream *s, struct cursor *in)
{
	struct json_stream *st = &s->json;
	size_t left = cursor_left(in), n;
	const uint8_t *p = in->data + in->pos;
	int r;

	n = json_cut(&st->cut, p, left);
	cursor_skip(in, n);
	if (st->skipping || s->object.len + n > KUBE_OBJECT_MAX + STREAM_ENVELOPE_MAX)
		return skip_item(s);
	if (st->cut.depth || s->object.len) {
		r = buf_append(&s->object, p, n);
		if (r < 0)
			return r;
	}
	if (st->cut.depth)
		return 0;
	if (s->object.len) {
		p = (const uint8_t *)s->object.data;
		n = s->object.len;
	}
	if (s->mode == KUBE_WATCH) {
		st->at = JSON_BEFORE;
		r = on_event(s, p, n);
	} else {
		st->at = JSON_ITEMS;
		r = stream_item(s, KUBE_ADDED, KUBE_JSON, p, n, st->cut.any_backslash);
	}
	stream_taken(s);
	return r;
}

/* Between items, and around the outer object: one byte that is not blank, or nothing. */
static int feed_between(struct kube_stream *s, struct cursor *in)
{
	struct json_stream *st = &s->json;
	uint8_t b;

	while (cursor_left(in) && is_blank(in->data[in->pos]))
		in->pos++;
	if (cursor_left(in) == 0)
		return 0;
	b = in->data[in->pos];
	if (st->at == JSON_ITEMS && b == ']') {
		cursor_skip(in, 1);
		st->at = JSON_HEAD;
		return 0;
	}
	if (st->at == JSON_ITEMS && b == ',' && st->comma_due) {
		cursor_skip(in, 1);
		st->comma_due = false;
		return 0;
	}
	if (b != '{' || st->at == JSON_AFTER || (st->at == JSON_ITEMS && st->comma_due))
		return -EBADMSG;
	if (st->at == JSON_BEFORE && s->mode == KUBE_LIST) {
		st->at = JSON_HEAD;
		return 0;
	}
	st->at = JSON_ITEM;
	st->comma_due = true;
	st->cut = (struct json_cut){0};
	return 0;
}

int json_stream_feed(struct kube_stream *s, struct cursor *in)
{
	int r = 0;

	while (r == 0 && cursor_left(in)) {
		if (s->json.at == JSON_HEAD)
			r = feed_head(s, in);
		else if (s->json.at == JSON_ITEM)
			r = feed_item(s, in);
		else
			r = feed_between(s, in);
	}
	return r;
}

bool json_stream_may_end(const struct kube_stream *s)
{
	return s->json.at == (s->mode == KUBE_WATCH ? JSON_BEFORE : JSON_AFTER);
}
