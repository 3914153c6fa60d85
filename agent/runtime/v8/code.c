/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code objects and their tables. A process has no index from addresses to code but V8's heap
 * itself. So the beginning of the code is searched for backwards from the address: the object
 * header in front of the instructions has a map, which tells the kind of object. Loop thread; keeps
 * nothing.
 *
 * Sources: V8 src/objects/code.h, src/baseline/bytecode-offset-iterator.h,
 * src/interpreter/bytecodes.h.
 */
#include "agent/runtime/v8/code.h"
#include "agent/runtime/v8/positions.h"

enum {
	HEADERS_MAX = 64,    /* words that look like a header and are none */
	CODE_ALIGNMENT = 32, /* V8 src/common/globals.h kCodeAlignment: 32 or 64 */
	HEADER_MAX = 256,
	BYTECODE_HOPS = 3, /* objects on the way from a function to its bytecode */
	/* src/interpreter/bytecodes.h: Wide, ExtraWide, and DebugBreak... of each */
	PREFIX_WIDE = 0,
	PREFIX_MAX = 3,
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
		/* The InstructionStream points to its Code, and the Code to its instructions. */
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
	c.maglev = (int32_t)(flags & (uint32_t)l->code_kind_mask) == l->code_baseline + 1;
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

	if (header > HEADER_MAX || header % sizeof(map)) /* a word never spans two pages */
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
			/* This code ends before PC: PC is in no code. */
			if (r == -ENOENT)
				return r;
		}
		start -= CODE_ALIGNMENT;
	}
	return -ENOENT;
}

/* ---- bytecode --------------------------------------------------------------------------------
 */

int32_t v8_bytecode_position(const struct v8_heap *h, uint64_t array, uint32_t offset)
{
	uint64_t table, bits = 0;

	if (v8_word(h, array, h->layout->bytecode_positions, &table) < 0 ||
	    v8_position_at(h, table, offset, &bits) < 0)
		return -1;
	return v8_script_position(bits);
}

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
		 * Where the bytecode is: in baseline code, in place of the deoptimization data; in
		 * InterpreterData and 9.4's BaselineData, in the first or second field.
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

/* The length of the bytecode at C with its prefix; 0: not known. */
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
	/* Entries are lengths of machine code: first the prologue's, then one for each bytecode. */
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
