/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sources: V8 src/codegen/source-position-table.cc (pairs of variable-length integers: the delta of
 * the code offset and the delta of the position; the delta of the code offset is negative for
 * expressions, and from V8 14 on has two flags below it instead), src/codegen/source-position.h
 * (position + 1 in 30 bits from bit 1 on, inlining id + 1 in 16 bits from bit 31 on).
 */
#include "agent/runtime/v8/positions.h"

/* Reads a zig-zag integer: 7 bits a byte, lowest first; the lowest bit inverts the others. */
static int64_t cursor_vlq(struct cursor *c)
{
	uint64_t v = cursor_uleb(c);

	return (int64_t)(v >> 1 ^ -(v & 1));
}

/* Reads how far the code offset of an entry is from that of the entry before. */
static int64_t cursor_code_delta(struct cursor *c, uint32_t flags)
{
	int64_t code;

	if (flags)
		return (int64_t)(cursor_uleb(c) >> flags);
	code = cursor_vlq(c);
	/* An expression at distance n is stored as -1 - n. */
	return code < 0 ? -(code + 1) : code;
}

struct v8_positions v8_positions_of(const struct v8_layout *l, const uint8_t *bytes, size_t n)
{
	/* Offsets count from -1, before the first instruction. */
	return (struct v8_positions){
	    .c = cursor_of(bytes, n), .flags = v8_position_flags(l), .at = -1};
}

bool v8_positions_next(struct v8_positions *p)
{
	int64_t code, source;

	if (!cursor_left(&p->c))
		return false;
	code = cursor_code_delta(&p->c, p->flags);
	source = cursor_vlq(&p->c);
	if (p->c.bad)
		return false;
	p->at += code;
	p->value += (uint64_t)source;
	return true;
}

int v8_position_in(const struct v8_layout *l, const uint8_t *bytes, size_t n, uint32_t offset,
		   uint64_t *ret)
{
	struct v8_positions p = v8_positions_of(l, bytes, n);
	bool found = false;

	while (v8_positions_next(&p) && p.at <= offset) {
		*ret = p.value;
		found = true;
	}
	return found ? 0 : -ENOENT;
}

int v8_position_at(const struct v8_heap *h, uint64_t table, uint32_t offset, uint64_t *ret)
{
	_cleanup_free_ uint8_t *bytes = NULL;
	size_t n;
	int r = v8_bytes(h, table, V8_TABLE_MAX, &bytes, &n);

	return r < 0 ? r : v8_position_in(h->layout, bytes, n, offset, ret);
}
