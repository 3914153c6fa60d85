/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct cursor: the one way to read foreign bytes. It never reads outside [data, data + size).
 * A read past the end returns 0 and sets `bad`, which stays set; parsers read on and check once at
 * the points where a wrong value could do harm (loops, allocation). Little-endian values, as in the
 * files of the architectures that Kiln runs on.
 */
#pragma once

#include "lib/base.h"

struct cursor {
	const uint8_t *data;
	size_t size;
	size_t pos;
	bool bad;
};

static inline struct cursor cursor_of(const void *data, size_t size)
{
	return (struct cursor){.data = data, .size = size};
}

static inline size_t cursor_left(const struct cursor *c)
{
	return c->bad ? 0 : c->size - c->pos;
}

static inline const uint8_t *cursor_bytes(struct cursor *c, size_t n)
{
	const uint8_t *p;

	if (c->bad || n > c->size - c->pos) {
		c->bad = true;
		return NULL;
	}
	p = c->data + c->pos;
	c->pos += n;
	return p;
}

static inline void cursor_seek(struct cursor *c, size_t pos)
{
	if (pos > c->size)
		c->bad = true;
	else
		c->pos = pos;
}

static inline void cursor_skip(struct cursor *c, size_t n)
{
	(void)cursor_bytes(c, n);
}

/* A cursor over the next N bytes, which are skipped in C. Bad when there are fewer. */
static inline struct cursor cursor_sub(struct cursor *c, size_t n)
{
	const uint8_t *p = cursor_bytes(c, n);

	return (struct cursor){.data = p, .size = p ? n : 0, .bad = !p};
}

#define CURSOR_READ(name, type)                                                                    \
	static inline type cursor_##name(struct cursor *c)                                         \
	{                                                                                          \
		type v = 0;                                                                        \
		const uint8_t *p = cursor_bytes(c, sizeof(v));                                     \
		if (p)                                                                             \
			memcpy(&v, p, sizeof(v));                                                  \
		return v;                                                                          \
	}
CURSOR_READ(u8, uint8_t)
CURSOR_READ(u16, uint16_t)
CURSOR_READ(u32, uint32_t)
CURSOR_READ(u64, uint64_t)
CURSOR_READ(i8, int8_t)
CURSOR_READ(i16, int16_t)
CURSOR_READ(i32, int32_t)
CURSOR_READ(i64, int64_t)
#undef CURSOR_READ

/* DWARF 5 §7.6 variable-length integers; bits past 64 are dropped, at most 10 bytes are taken. */
static inline uint64_t cursor_uleb(struct cursor *c)
{
	uint64_t v = 0;
	unsigned int shift = 0;
	uint8_t b;

	do {
		b = cursor_u8(c);
		if (shift < 64)
			v |= (uint64_t)(b & 0x7f) << shift;
		shift += 7;
	} while ((b & 0x80) && shift < 70);
	if (b & 0x80)
		c->bad = true;
	return v;
}

static inline int64_t cursor_sleb(struct cursor *c)
{
	uint64_t v = 0;
	unsigned int shift = 0;
	uint8_t b;

	do {
		b = cursor_u8(c);
		if (shift < 64)
			v |= (uint64_t)(b & 0x7f) << shift;
		shift += 7;
	} while ((b & 0x80) && shift < 70);
	if (b & 0x80)
		c->bad = true;
	if (shift < 64 && (b & 0x40))
		v |= ~0ULL << shift;
	return (int64_t)v;
}

/*
 * Skips the value of a protobuf field whose wire type is TYPE (protobuf.dev, "Encoding", message
 * structure). For a length-delimited field (message, string, bytes) *RET_BYTES is set to its
 * content; for other types it is not changed.
 */
static inline void cursor_protobuf_value(struct cursor *c, uint64_t type, struct cursor *ret_bytes)
{
	uint64_t len;

	switch (type) {
	case 0:
		(void)cursor_uleb(c);
		break;
	case 1:
		cursor_skip(c, 8);
		break;
	case 2:
		len = cursor_uleb(c);
		*ret_bytes = cursor_sub(c, len > SIZE_MAX ? SIZE_MAX : (size_t)len);
		break;
	case 5:
		cursor_skip(c, 4);
		break;
	default:
		c->bad = true;
	}
}

/* A NUL-terminated string inside the bytes; NULL (and bad) when there is no NUL before the end. */
static inline const char *cursor_str(struct cursor *c)
{
	const uint8_t *p, *end;

	if (c->bad)
		return NULL;
	p = c->data + c->pos;
	end = c->pos < c->size ? memchr(p, 0, c->size - c->pos) : NULL;
	if (!end) {
		c->bad = true;
		return NULL;
	}
	c->pos += (size_t)(end - p) + 1;
	return (const char *)p;
}
