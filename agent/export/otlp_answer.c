/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers of OTLP receivers.
 *
 * A reader of protobuf fields over a cursor, no more than two small messages need: unknown fields
 * are skipped, groups are refused. Field numbers: opentelemetry-proto v1.10.0
 * (collector/profiles/v1development/profiles_service.proto), googleapis google/rpc/status.proto and
 * error_details.proto, protobuf google/protobuf/{any,duration}.proto.
 */
#include "agent/export/otlp_answer.h"

#include <ctype.h>

#include "lib/cursor.h"

enum wire_type { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

struct field {
	uint32_t number;
	enum wire_type type;
	uint64_t value;	     /* not WIRE_BYTES */
	struct cursor bytes; /* WIRE_BYTES */
};

/* The next field; false at the end and when the bytes are no fields (then c->bad). */
static bool field_next(struct cursor *c, struct field *ret)
{
	uint64_t key, len;

	if (cursor_left(c) == 0)
		return false;
	key = cursor_uleb(c);
	*ret = (struct field){.number = (uint32_t)(key >> 3), .type = key & 7};
	if (key >> 3 == 0 || key >> 32 != 0)
		c->bad = true;
	switch (ret->type) {
	case WIRE_VARINT:
		ret->value = cursor_uleb(c);
		break;
	case WIRE_FIXED64:
		ret->value = cursor_u64(c);
		break;
	case WIRE_FIXED32:
		ret->value = cursor_u32(c);
		break;
	case WIRE_BYTES:
		len = cursor_uleb(c);
		ret->bytes = cursor_sub(c, len > SIZE_MAX ? SIZE_MAX : (size_t)len);
		break;
	default:
		c->bad = true;
	}
	return !c->bad;
}

static bool is(const struct field *f, uint32_t number, enum wire_type type)
{
	return f->number == number && f->type == type;
}

void otlp_words(const void *text, size_t len, char ret[OTLP_MESSAGE_MAX])
{
	const unsigned char *p = text;
	size_t i, n = MIN(len, (size_t)OTLP_MESSAGE_MAX - 1);

	for (i = 0; i < n; i++)
		ret[i] = p[i] < 0x20 || p[i] == 0x7f ? ' ' : (char)p[i];
	/* Not in the middle of a UTF-8 sequence. */
	while (n < len && n > 0 && (p[n] & 0xc0) == 0x80)
		n--;
	ret[n] = 0;
}

int otlp_response_parse(const void *data, size_t len, struct otlp_partial *ret)
{
	struct cursor c = cursor_of(data, len), sub;
	struct otlp_partial partial = {0};
	struct field f, g;

	while (field_next(&c, &f)) {
		if (!is(&f, 1, WIRE_BYTES))
			continue;
		sub = f.bytes;
		while (field_next(&sub, &g)) {
			if (is(&g, 1, WIRE_VARINT))
				partial.rejected = (int64_t)g.value;
			else if (is(&g, 2, WIRE_BYTES))
				otlp_words(g.bytes.data, g.bytes.size, partial.message);
		}
		if (sub.bad)
			return -EBADMSG;
	}
	if (c.bad || partial.rejected < 0)
		return -EBADMSG;
	*ret = partial;
	return 0;
}

/* google.protobuf.Duration as milliseconds, rounded up; negative ones are no wait. */
static bool duration_parse(struct cursor c, uint64_t *ret_ms)
{
	int64_t seconds = 0, nanos = 0;
	struct field f;

	while (field_next(&c, &f)) {
		if (is(&f, 1, WIRE_VARINT))
			seconds = (int64_t)f.value;
		else if (is(&f, 2, WIRE_VARINT))
			nanos = (int32_t)f.value;
	}
	if (c.bad || seconds > INT64_C(315576000000) || nanos > 999999999)
		return false;
	*ret_ms = 0;
	if (seconds >= 0 && nanos >= 0)
		*ret_ms = (uint64_t)seconds * 1000 + ((uint64_t)nanos + 999999) / 1000000;
	return true;
}

static bool retry_info_parse(struct cursor any, uint64_t *ret_ms)
{
	static const char name[] = "/google.rpc.RetryInfo";
	struct cursor value = cursor_of(NULL, 0);
	bool named = false;
	struct field f;

	while (field_next(&any, &f)) {
		if (is(&f, 1, WIRE_BYTES))
			named = f.bytes.size >= sizeof(name) - 1 &&
				memcmp(f.bytes.data + f.bytes.size - (sizeof(name) - 1), name,
				       sizeof(name) - 1) == 0;
		else if (is(&f, 2, WIRE_BYTES))
			value = f.bytes;
	}
	if (any.bad || !named)
		return false;
	*ret_ms = 0;
	while (field_next(&value, &f)) {
		if (is(&f, 1, WIRE_BYTES) && !duration_parse(f.bytes, ret_ms))
			return false;
	}
	return !value.bad;
}

int otlp_status_parse(const void *data, size_t len, struct otlp_status *ret)
{
	struct cursor c = cursor_of(data, len);
	struct otlp_status status = {0};
	struct field f;

	while (field_next(&c, &f)) {
		if (is(&f, 1, WIRE_VARINT))
			status.code = (int)(int32_t)f.value;
		else if (is(&f, 2, WIRE_BYTES))
			otlp_words(f.bytes.data, f.bytes.size, status.message);
		else if (is(&f, 3, WIRE_BYTES) && retry_info_parse(f.bytes, &status.retry_ms))
			status.has_retry = true;
	}
	if (c.bad)
		return -EBADMSG;
	*ret = status;
	return 0;
}

bool otlp_body_words(const void *body, size_t len, char ret[OTLP_MESSAGE_MAX])
{
	const unsigned char *p = body;
	struct otlp_status status;
	size_t first = 0;

	if (len == 0)
		return false;
	if (otlp_status_parse(body, len, &status) == 0 && status.message[0]) {
		memcpy(ret, status.message, sizeof(status.message));
		return true;
	}
	while (len > 0 && strchr(" \t\r\n", p[len - 1]) && p[len - 1])
		len--;
	while (first < len && strchr(" \t\r\n", p[first]) && p[first])
		first++;
	if (first == len || p[first] == '<')
		return false;
	for (size_t i = first; i < len && i < first + OTLP_MESSAGE_MAX; i++)
		if (p[i] == 0x7f || (p[i] < 0x20 && !strchr("\t\r\n", p[i])) || p[i] == 0)
			return false;
	otlp_words(p + first, len - first, ret);
	return true;
}
