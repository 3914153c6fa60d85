/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Protobuf framing by hand, where a message is put together from parts that are encoded already
 * (https://protobuf.dev/programming-guides/encoding/). Plain functions, any thread.
 */
#pragma once

#include "lib/buf.h"

enum { FRAME_VARINT_MAX = 10 };

static inline void frame_varint(struct buf *b, uint64_t v)
{
	uint8_t bytes[FRAME_VARINT_MAX];
	size_t n = 0;

	for (; v >= 0x80; v >>= 7)
		bytes[n++] = (uint8_t)(v | 0x80);
	bytes[n++] = (uint8_t)v;
	buf_append(b, bytes, n);
}

static inline void frame_number(struct buf *b, unsigned int field, uint64_t v)
{
	frame_varint(b, field << 3);
	frame_varint(b, v);
}

static inline void frame_bytes(struct buf *b, unsigned int field, const void *data, size_t len)
{
	frame_varint(b, field << 3 | 2);
	frame_varint(b, len);
	buf_append(b, data, len);
}

static inline void frame_fixed64(struct buf *b, unsigned int field, uint64_t v)
{
	uint8_t bytes[8];

	frame_varint(b, field << 3 | 1);
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(v >> 8 * i);
	buf_append(b, bytes, sizeof(bytes));
}
