/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a key occurs twice, the first label counts. The order is: OpenTelemetry's trace context, its
 * attributes, then the pairs (custom-labels-v1.md says the same of pairs). Pairs trace_id and
 * span_id that look like W3C ids (32 and 16 hex digits) become the trace context if there is no
 * other; one without the other does not. Stateless.
 */
#include "agent/labels/decode.h"

#include "agent/labels/text.h"
#include "lib/cursor.h"

enum { TRACE_DIGITS = 32, SPAN_DIGITS = 16 };

/* Attribute keys that the agent itself sets on samples: labels must not use them. */
static const char *const own_keys[] = {"thread.name", "thread.id", "process.pid",
				       "process.executable.name", "process.executable.path"};

static const char *add_text(struct label_list *l, const void *bytes, size_t len)
{
	char *text = l->bytes + l->used;

	if (len + 1 > sizeof(l->bytes) - l->used)
		return NULL;
	label_text_copy(text, bytes, len);
	l->used += strlen(text) + 1;
	return text;
}

static const char *add_hex(struct label_list *l, const uint8_t *bytes, size_t n)
{
	static const char digits[] = "0123456789abcdef";
	char *text = l->bytes + l->used;

	if (2 * n + 1 > sizeof(l->bytes) - l->used)
		return NULL;
	for (size_t i = 0; i < n; i++) {
		text[2 * i] = digits[bytes[i] >> 4];
		text[2 * i + 1] = digits[bytes[i] & 15];
	}
	text[2 * n] = '\0';
	l->used += 2 * n + 1;
	return text;
}

static const char *find(const struct label_list *l, const char *key)
{
	for (size_t i = 0; i < l->n; i++)
		if (streq(l->labels[i].key, key))
			return l->labels[i].value;
	return NULL;
}

static void add_label(struct label_list *l, const char *key, const char *value)
{
	if (!key || !value || !key[0] || l->n == LABEL_LIST_MAX || find(l, key))
		return;
	for (size_t i = 0; i < ARRAY_SIZE(own_keys); i++)
		if (streq(key, own_keys[i]))
			return;
	l->labels[l->n++] = (struct batch_label){key, value};
}

static bool is_zero(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i])
			return false;
	return true;
}

static int decode_attributes(struct cursor c, const struct label_context *context,
			     struct label_list *ret)
{
	while (cursor_left(&c)) {
		uint8_t index = cursor_u8(&c), len = cursor_u8(&c);
		const uint8_t *value = cursor_bytes(&c, len);

		/* OTEP 4947: an incomplete entry must not be read. */
		if (c.bad)
			return -EBADMSG;
		if (!context || index >= context->n)
			ret->unresolved = true;
		else
			add_label(ret, context->keys[index], add_text(ret, value, len));
	}
	return 0;
}

static int decode_pairs(struct cursor c, struct label_list *ret)
{
	while (cursor_left(&c)) {
		uint8_t key_len = cursor_u8(&c), value_len = cursor_u8(&c);
		const uint8_t *key = cursor_bytes(&c, key_len);
		const uint8_t *value = cursor_bytes(&c, value_len);

		if (c.bad)
			return -EBADMSG;
		add_label(ret, add_text(ret, key, key_len), add_text(ret, value, value_len));
	}
	return 0;
}

static bool is_id(const char *text, size_t digits)
{
	size_t n = strspn(text, "0123456789abcdef");

	return n == digits && !text[n] && strspn(text, "0") != digits;
}

/* Moves the label KEY to the place AT. */
static void move_label(struct label_list *l, const char *key, size_t at)
{
	size_t i = at;

	while (i < l->n && !streq(l->labels[i].key, key))
		i++;
	if (i < l->n) {
		struct batch_label moved = l->labels[i];

		memmove(&l->labels[at + 1], &l->labels[at], (i - at) * sizeof(moved));
		l->labels[at] = moved;
	}
}

static void find_trace(struct label_list *l)
{
	const char *trace = find(l, "trace_id"), *span = find(l, "span_id");

	if (!trace || !span || !is_id(trace, TRACE_DIGITS) || !is_id(span, SPAN_DIGITS))
		return;
	move_label(l, "trace_id", 0);
	move_label(l, "span_id", 1);
	l->has_trace = true;
}

int label_decode(const struct kiln_labels *record, size_t size, const struct label_context *context,
		 struct label_list *ret)
{
	size_t left = size - MIN(size, sizeof(*record));
	int r;

	ret->n = ret->used = 0;
	ret->has_trace = ret->unresolved = false;
	if (size < sizeof(*record) || record->n_attributes > left ||
	    record->n_pairs > left - record->n_attributes)
		return -EBADMSG;
	if (!is_zero(record->trace_id, sizeof(record->trace_id)) &&
	    !is_zero(record->span_id, sizeof(record->span_id))) {
		add_label(ret, "trace_id", add_hex(ret, record->trace_id, 16));
		add_label(ret, "span_id", add_hex(ret, record->span_id, 8));
	}
	r = decode_attributes(cursor_of(record->bytes, record->n_attributes), context, ret);
	if (!r)
		r = decode_pairs(cursor_of(record->bytes + record->n_attributes, record->n_pairs),
				 ret);
	find_trace(ret);
	return r;
}
