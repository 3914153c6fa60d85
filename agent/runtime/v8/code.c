/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code objects and their tables. Nothing in a process tells which code an address is in without
 * walking V8's heap, so the beginning is searched for backwards: the header in front of the
 * instructions has the map of its kind of object. Loop thread; keeps nothing.
 *
 * Sources: V8 src/codegen/source-position-table.cc (pairs of variable-length integers: code offset
 * delta, negative for expressions or from V8 14 on above two flags, and position delta),
 * src/codegen/source-position.h (position + 1 in 30 bits from bit 1 on, inlining id + 1 in 16 bits
 * from bit 31 on), src/objects/code.h, src/baseline/bytecode-offset-iterator.h,
 * src/interpreter/bytecodes.h.
 */
#include "agent/runtime/v8/code.h"

enum {
	HEADERS_MAX = 64,    /* that look like one and are not */
	CODE_ALIGNMENT = 32, /* V8 src/common/globals.h kCodeAlignment: 32 or 64 */
	HEADER_MAX = 256,
	BYTECODE_HOPS = 3, /* from a function to its bytecode */
	PREFIX_WIDE = 0,   /* src/interpreter/bytecodes.h: Wide, ExtraWide, DebugBreak... of both */
	PREFIX_MAX = 3,
	INLINING_POSITION_SIZE = 16, /* src/codegen/source-position.h: position, function id */
};

/* ---- finding code ----------------------------------------------------------------------------
 */

static int code_header(const struct v8_heap *h, uint64_t start, uint64_t pc, struct v8_code *ret)
{
	const struct v8_layout *l = h->layout;
	struct v8_code c = {.start = start};
	uint32_t size, flags;
	uint64_t at;

	if (l->stream_header) {
		/* The instruction stream knows its Code, and that where its instructions are. */
		if (v8_field(h, (start - (uint64_t)l->stream_header) | 1, 8, l->type_code,
			     &c.object) < 0 ||
		    v8_word(h, c.object, l->code_start, &at) < 0 || at != start)
			return -EFAULT;
	} else {
		c.object = (start - (uint64_t)l->code_start) | 1;
		if (v8_type(h, c.object) != l->type_code)
			return -EFAULT;
	}
	if (v8_read(h, c.object, l->code_size, &size, sizeof(size)) < 0 ||
	    v8_read(h, c.object, l->code_flags, &flags, sizeof(flags)) < 0)
		return -EFAULT;
	if (pc - start >= size)
		return -ENOENT;
	c.size = size;
	c.baseline = (int32_t)(flags & (uint32_t)l->code_kind_mask) == l->code_baseline;
	*ret = c;
	return 0;
}

int v8_code_find(const struct v8_heap *h, uint64_t pc, uint64_t *hint, struct v8_code *ret)
{
	const struct v8_layout *l = h->layout;
	uint64_t header = (uint64_t)(l->stream_header ? l->stream_header : l->code_start);
	uint64_t start = pc & ~(uint64_t)(CODE_ALIGNMENT - 1), chunk_at = UINT64_MAX, map;
	uint8_t chunk[V8_CHUNK];
	int r, tries = 0;

	if (header > HEADER_MAX)
		return -EFAULT;
	for (uint64_t back = 0; back < V8_CODE_MAX && start > header; back += CODE_ALIGNMENT) {
		uint64_t at = start - header;

		if ((at & ~(uint64_t)(V8_CHUNK - 1)) != chunk_at) {
			chunk_at = at & ~(uint64_t)(V8_CHUNK - 1);
			if (target_read(h->memory, chunk_at, chunk, V8_CHUNK) < 0)
				return -EFAULT;
		}
		memcpy(&map, chunk + (at - chunk_at), sizeof(map));
		if ((map & 3) == 1 && map >> 47 == 0 && (map == *hint || tries < HEADERS_MAX)) {
			tries += map != *hint;
			r = code_header(h, start, pc, ret);
			if (r == 0) {
				*hint = map;
				return 0;
			}
			/* A function that ends before PC: what follows is none. */
			if (r == -ENOENT)
				return r;
		}
		start -= CODE_ALIGNMENT;
	}
	return -ENOENT;
}

/* ---- position tables -------------------------------------------------------------------------
 */

/* 7 bits a byte, lowest first; the lowest bit turns the rest over (zig-zag). */
static int64_t cursor_vlq(struct cursor *c)
{
	uint64_t v = cursor_uleb(c);

	return (int64_t)(v >> 1 ^ -(v & 1));
}

/* How far the code of an entry is from that of the one before. */
static int64_t cursor_code_delta(struct cursor *c, const struct v8_layout *l)
{
	uint32_t flags = v8_position_flags(l);
	int64_t code;

	if (flags)
		return (int64_t)(cursor_uleb(c) >> flags);
	code = cursor_vlq(c);
	/* Of -1 - n the sign says that it is an expression. */
	return code < 0 ? -(code + 1) : code;
}

/* The last entry at or before OFFSET: as struct SourcePosition's bits. -ENOENT: none. */
static int position_at(const struct v8_heap *h, uint64_t table, uint32_t offset, uint64_t *ret)
{
	_cleanup_free_ uint8_t *bytes = NULL;
	int64_t at = -1, position = 0; /* from "before the first instruction" on */
	bool found = false;
	struct cursor c;
	size_t n;
	int r = v8_bytes(h, table, V8_TABLE_MAX, &bytes, &n);

	if (r < 0)
		return r;
	c = cursor_of(bytes, n);
	while (cursor_left(&c)) {
		int64_t code = cursor_code_delta(&c, h->layout), source = cursor_vlq(&c);

		at += code;
		position += source;
		if (c.bad || at > offset)
			break;
		*ret = (uint64_t)position;
		found = true;
	}
	return found ? 0 : -ENOENT;
}

static int32_t script_position(uint64_t bits)
{
	/* The lowest bit: of a place outside of JavaScript. */
	return bits & 1 ? -1 : (int32_t)(bits >> 1 & 0x3fffffff) - 1;
}

static int32_t inlining_id(uint64_t bits)
{
	return (int32_t)(bits >> 31 & 0xffff) - 1;
}

int32_t v8_bytecode_position(const struct v8_heap *h, uint64_t array, uint32_t offset)
{
	uint64_t table, bits = 0;

	if (v8_word(h, array, h->layout->bytecode_positions, &table) < 0 ||
	    position_at(h, table, offset, &bits) < 0)
		return -1;
	return script_position(bits);
}

/* ---- bytecode --------------------------------------------------------------------------------
 */

int v8_bytecode_of(const struct v8_heap *h, uint64_t shared, uint64_t *ret)
{
	const struct v8_layout *l = h->layout;
	uint64_t v, next;
	int r = v8_word(h, shared, l->shared_data, &v);

	for (int i = 0; r == 0 && i < BYTECODE_HOPS; i++) {
		if (v8_type(h, v) == l->type_bytecode_array) {
			*ret = v;
			return 0;
		}
		/*
		 * Baseline code has it in place of the deoptimization data; InterpreterData
		 * and 9.4's BaselineData in their first or second field.
		 */
		if (v8_type(h, v) == l->type_code) {
			r = v8_word(h, v, l->code_deopt, &v);
			continue;
		}
		if (v8_field(h, v, 16, l->type_bytecode_array, ret) == 0)
			return 0;
		r = v8_word(h, v, 8, &next);
		if (r == 0 && v8_type(h, next) != l->type_bytecode_array)
			r = v8_word(h, v, 16, &next);
		v = next;
	}
	return -EFAULT;
}

/* The length of the bytecode at C, with its prefix. */
static uint32_t bytecode_size(const struct v8_bytecodes *sizes, struct cursor c)
{
	uint32_t scale = 0, prefix = 0;
	uint8_t code = cursor_u8(&c);

	if (code <= PREFIX_MAX) {
		scale = code % 2 == PREFIX_WIDE ? 1 : 2;
		prefix = 1;
		code = cursor_u8(&c);
	}
	if (c.bad || code >= sizes->n || !sizes->sizes[scale][code])
		return 0;
	return prefix + sizes->sizes[scale][code];
}

int32_t v8_baseline_offset(const struct v8_heap *h, const struct v8_code *code, uint64_t array,
			   const struct v8_bytecodes *sizes, uint32_t offset)
{
	const struct v8_layout *l = h->layout;
	_cleanup_free_ uint8_t *table = NULL, *bytecodes = NULL;
	uint64_t object, length, end;
	struct cursor t, b;
	int32_t ret = -1;
	size_t n;

	if (v8_word(h, code->object, l->code_positions, &object) < 0 ||
	    v8_bytes(h, object, V8_TABLE_MAX, &table, &n) < 0)
		return -1;
	if (v8_word(h, array, l->array_length, &length) < 0 || !v8_is_smi(length) ||
	    v8_smi(length) <= 0 || v8_smi(length) > V8_TABLE_MAX)
		return -1;
	length >>= 32;
	bytecodes = malloc(length);
	if (!bytecodes || v8_read(h, array, l->bytecode_data, bytecodes, length) < 0)
		return -1;
	t = cursor_of(table, n);
	b = cursor_of(bytecodes, length);
	/* The first entry ends the prologue, each further one a bytecode. */
	end = cursor_uleb(&t);
	while (end <= offset && cursor_left(&t) && cursor_left(&b)) {
		uint32_t size = bytecode_size(sizes, b);

		if (!size)
			return -1;
		ret = (int32_t)b.pos;
		cursor_skip(&b, size);
		end += cursor_uleb(&t);
	}
	return end > offset ? ret : -1;
}

/* ---- optimized code --------------------------------------------------------------------------
 */

/* The function with number ID among the literals of deoptimization data. */
static int inlined_function(const struct v8_heap *h, uint64_t deopt, int32_t id, uint64_t *ret)
{
	const struct v8_layout *l = h->layout;
	uint64_t literals, length, v;

	if (v8_word(h, deopt, l->array_data + 8 * l->deopt_literals, &literals) < 0 ||
	    v8_word(h, literals, l->array_length, &length) < 0 || !v8_is_smi(length) || id < 0 ||
	    id >= v8_smi(length) || v8_word(h, literals, l->array_data + 8LL * id, &v) < 0)
		return -EFAULT;
	if (l->type_shared_wrapper && v8_type(h, v) == l->type_shared_wrapper &&
	    v8_word(h, v, 8, &v) < 0)
		return -EFAULT;
	if (v8_type(h, v) != l->type_shared)
		return -EFAULT;
	*ret = (v & ~3ULL) | 1;
	return 0;
}

struct inlining {
	uint64_t position; /* of the call, as struct SourcePosition */
	int32_t function;
};

static int inlining_at(const struct v8_heap *h, uint64_t deopt, int32_t id, struct inlining *ret)
{
	const struct v8_layout *l = h->layout;
	uint8_t bytes[INLINING_POSITION_SIZE] = {0};
	uint64_t array, length;
	struct cursor c = cursor_of(bytes, sizeof(bytes));

	if (v8_word(h, deopt, l->array_data + 8 * l->deopt_inlining, &array) < 0 ||
	    v8_word(h, array, l->array_length, &length) < 0 || !v8_is_smi(length) || id < 0 ||
	    id >= v8_smi(length) / INLINING_POSITION_SIZE ||
	    v8_read(h, array, l->array_data + (int64_t)id * INLINING_POSITION_SIZE, bytes,
		    sizeof(bytes)) < 0)
		return -EFAULT;
	ret->position = cursor_u64(&c);
	ret->function = cursor_i32(&c);
	return 0;
}

size_t v8_optimized_places(const struct v8_heap *h, const struct v8_code *code, uint32_t offset,
			   uint64_t shared, struct v8_place ret[V8_INLINE_MAX])
{
	uint64_t table, deopt, bits = 0;
	size_t n = 0;

	if (v8_word(h, code->object, h->layout->code_positions, &table) < 0 ||
	    position_at(h, table, offset, &bits) < 0) {
		ret[0] = (struct v8_place){.shared = shared, .position = -1};
		return 1;
	}
	if (v8_word(h, code->object, h->layout->code_deopt, &deopt) < 0)
		deopt = 0;
	for (int i = 0; inlining_id(bits) >= 0 && i + 1 < V8_INLINE_MAX; i++) {
		struct inlining call;
		uint64_t callee;

		if (inlining_at(h, deopt, inlining_id(bits), &call) < 0)
			break;
		/* What is left of a function that cannot be told is its caller. */
		if (inlined_function(h, deopt, call.function, &callee) == 0)
			ret[n++] = (struct v8_place){callee, script_position(bits)};
		bits = call.position;
	}
	ret[n++] = (struct v8_place){shared, script_position(bits)};
	return n;
}
