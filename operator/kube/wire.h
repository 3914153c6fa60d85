/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Protobuf's wire format, one field at a time over a struct cursor: no schema, no copies. A message
 * is read by `while (wire_next(&c, &f)) switch (f.number)`, and judged once afterwards by c.bad.
 * Format: protobuf.dev/programming-guides/encoding. Groups are refused: Kubernetes has none.
 */
#pragma once

#include "lib/cursor.h"
#include "operator/kube/decode.h"

enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

struct wire_field {
	uint32_t number;
	uint32_t type;
	uint64_t value;	  /* WIRE_VARINT */
	const uint8_t *p; /* WIRE_BYTES */
	size_t n;
};

/* The rest of a varint whose first byte was FIRST, with its high bit set. */
uint64_t wire_varint_rest(struct cursor *c, uint8_t first);

static inline uint64_t wire_varint(struct cursor *c)
{
	uint8_t first = cursor_u8(c);

	return first < 0x80 ? first : wire_varint_rest(c, first);
}

/* False at the end of the message and when it is bad. Inlined: it is most of what decoding does. */
__attribute__((always_inline)) static inline bool wire_next(struct cursor *c, struct wire_field *f)
{
	uint64_t tag;

	if (cursor_left(c) == 0)
		return false;
	tag = wire_varint(c);
	*f = (struct wire_field){.number = (uint32_t)(tag >> 3), .type = tag & 7};
	if (tag >> 32 || f->number == 0)
		c->bad = true;
	if (f->type == WIRE_BYTES) {
		f->n = wire_varint(c);
		f->p = cursor_bytes(c, f->n);
	} else if (f->type == WIRE_VARINT) {
		f->value = wire_varint(c);
	} else if (f->type == WIRE_FIXED64) {
		cursor_skip(c, 8);
	} else if (f->type == WIRE_FIXED32) {
		cursor_skip(c, 4);
	} else {
		c->bad = true;
	}
	return !c->bad;
}

/* The message in a field. A field of another wire type does not match the schema: C becomes bad. */
static inline struct cursor wire_message(struct cursor *c, const struct wire_field *f)
{
	if (f->type != WIRE_BYTES) {
		c->bad = true;
		return (struct cursor){.bad = true};
	}
	return cursor_of(f->p, f->n);
}

/* Never NULL unless bad. */
static inline struct slice wire_slice(struct cursor *c, const struct wire_field *f)
{
	if (f->type != WIRE_BYTES || f->n > UINT32_MAX) {
		c->bad = true;
		return (struct slice){0};
	}
	return (struct slice){.p = (const char *)f->p, .n = (uint32_t)f->n};
}

/* "" is absent: Kubernetes writes empty strings out. */
static inline struct slice wire_text(struct cursor *c, const struct wire_field *f)
{
	struct slice s = wire_slice(c, f);

	return s.n ? s : (struct slice){0};
}

/* int32, int64 and bool alike: negative numbers are ten bytes of two's complement. */
static inline int64_t wire_int(struct cursor *c, const struct wire_field *f)
{
	if (f->type != WIRE_VARINT) {
		c->bad = true;
		return 0;
	}
	return (int64_t)f->value;
}

/* The envelope of every object: "k8s\0" and runtime.Unknown. Slices into the input. */
enum { WIRE_MAGIC_SIZE = 4 };
struct wire_unknown {
	struct slice kind, content_type;
	const uint8_t *raw;
	size_t len;
};
bool wire_is_magic(const uint8_t *p);
/* The kind of a TypeMeta{1 apiVersion 2 kind}. */
struct slice wire_kind(struct cursor *c, const struct wire_field *f);
/*
 * -EBADMSG: no magic, malformed, or with a contentEncoding (compression), which is not supported.
 */
int wire_open_unknown(const uint8_t *p, size_t n, struct wire_unknown *ret) _must_check_;
