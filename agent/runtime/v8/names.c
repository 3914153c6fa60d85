/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names of V8's frames. A function that was read before is kept by its address and cookie
 * (agent/runtime/functions.h), with its file, the number of its script's lines and the position
 * table of its bytecode. Then another interpreted frame of the function reads nothing from the
 * process, and a frame of machine code only the tables of its code. Loop thread.
 */
#include "agent/runtime/v8/names.h"

#include "agent/runtime/v8/function.h"
#include "agent/runtime/v8/optimized.h"
#include "agent/runtime/v8/positions.h"

/* One frame while it is named. */
struct naming {
	struct v8_state *state;
	struct v8_heap heap;
	struct v8_text text;
	struct symbol_result *ret;
};

/* ---- functions ------------------------------------------------------------------------------- */

/* Reads the cookie that the function SHARED has at this moment. */
static int read_cookie(const struct v8_heap *h, uint64_t shared, uint32_t *ret)
{
	uint64_t lengths, flags;

	if (v8_type(h, shared) != h->layout->type_shared ||
	    v8_word(h, shared, h->layout->shared_lengths, &lengths) < 0 ||
	    v8_word(h, shared, h->layout->shared_flags, &flags) < 0)
		return -EFAULT;
	*ret = v8_cookie(lengths, flags);
	return 0;
}

/* Is SHARED still the function with COOKIE? Another object may lie there by now. 0 or -EFAULT. */
static int check_cookie(const struct v8_heap *h, uint64_t shared, uint32_t cookie)
{
	uint32_t now;

	return read_cookie(h, shared, &now) < 0 || now != cookie ? -EFAULT : 0;
}

/*
 * Reads the function SHARED. Its `own` becomes the number of its script's lines. *RET_WHOLE is
 * false if the script's lines could not be read.
 */
static int read_function(struct naming *n, uint64_t shared, struct runtime_function *ret,
			 bool *ret_whole)
{
	const struct v8_lines *lines;
	struct v8_function f;
	int r = v8_function_read(&n->heap, shared, &n->text, &f);

	if (r < 0)
		return r;
	*ret = (struct runtime_function){.name = f.name, .file = ""};
	*ret_whole = true;
	if (!f.script)
		return 0;
	r = v8_script_name(&n->heap, f.script, &n->text, &ret->file);
	if (r < 0)
		return r;
	lines = v8_script_lines(&n->state->scripts, &n->heap, f.script);
	*ret_whole = lines;
	ret->own[0] = lines ? lines->number : 0;
	ret->start_line = v8_line_at(lines, f.start);
	return 0;
}

/*
 * Finds the function SHARED among those that were read before, and copies its strings to the text;
 * else reads and keeps it.
 */
static int find_function(struct naming *n, uint64_t shared, uint32_t cookie,
			 struct runtime_function *ret)
{
	bool whole = false;
	int r;

	if (!target_find_function(n->heap.memory, shared, cookie, ret) ||
	    (ret->own[0] && !v8_lines_numbered(&n->state->scripts, ret->own[0]))) {
		r = read_function(n, shared, ret, &whole);
		/* Lines that could not be read are tried again for the next frame. */
		if (r == 0 && whole)
			target_keep_function(n->heap.memory, shared, cookie, ret);
		return r;
	}
	r = v8_text_put(&n->text, ret->name, strlen(ret->name), &ret->name);
	return r < 0 ? r : v8_text_put(&n->text, ret->file, strlen(ret->file), &ret->file);
}

static void add_symbol(struct naming *n, const struct runtime_function *f, int32_t position)
{
	const struct v8_lines *lines = v8_lines_numbered(&n->state->scripts, f->own[0]);
	uint32_t line = v8_line_at(lines, position);

	/* V8 makes position tables only for functions where it has needed them. */
	n->ret->symbols[n->ret->n++] = (struct symbol){.name = f->name,
						       .system_name = f->name,
						       .file = f->file,
						       .start_line = f->start_line,
						       .line = line ? line : f->start_line};
}

/* ---- bytecode -------------------------------------------------------------------------------- */

static int32_t position_in(const struct naming *n, const void *table, size_t size, uint32_t offset)
{
	uint64_t bits;

	return v8_position_in(n->heap.layout, table, size, offset, &bits) < 0
		   ? -1
		   : v8_script_position(bits);
}

/*
 * Reads the position table of the bytecode of F, which lacks it, and keeps F with it. Returns the
 * position at OFFSET of the bytecode; -1: not known.
 */
static int32_t read_position(struct naming *n, uint64_t shared, uint32_t cookie, uint32_t offset,
			     struct runtime_function *f)
{
	_cleanup_free_ uint8_t *table = NULL;
	uint64_t array, object;
	size_t size;

	if (v8_bytecode_of(&n->heap, shared, &array) < 0 ||
	    v8_word(&n->heap, array, n->heap.layout->bytecode_positions, &object) < 0 ||
	    v8_bytes(&n->heap, object, V8_TABLE_MAX, &table, &size) < 0)
		return -1;
	if (size && size <= RUNTIME_FUNCTION_TABLE_MAX) {
		f->table = table;
		f->table_size = size;
		target_keep_function(n->heap.memory, shared, cookie, f);
	}
	return position_in(n, table, size, offset);
}

/* Names an interpreted frame of SHARED. VALUE: the frame's bytecode offset, as V8 keeps it. */
static int name_bytecode(struct naming *n, uint64_t shared, uint32_t cookie, uint64_t value)
{
	/* V8's offset counts from the tagged pointer to the BytecodeArray. */
	uint64_t first = (uint64_t)n->heap.layout->bytecode_data - 1;
	uint32_t offset = value > first ? (uint32_t)(value - first) : 0;
	struct runtime_function f;
	int32_t position;
	int r;

	if (target_find_function(n->heap.memory, shared, cookie, &f) && f.table &&
	    (!f.own[0] || v8_lines_numbered(&n->state->scripts, f.own[0]))) {
		add_symbol(n, &f, position_in(n, f.table, f.table_size, offset));
		return 0;
	}
	r = check_cookie(&n->heap, shared, cookie);
	if (r == 0)
		r = find_function(n, shared, cookie, &f);
	if (r < 0)
		return r;
	position = read_position(n, shared, cookie, offset, &f);
	add_symbol(n, &f, position);
	return 0;
}

/* ---- machine code ---------------------------------------------------------------------------- */

/* Finds the places of machine code at PC, innermost first. Returns how many: at least one. */
static size_t code_places(struct v8_state *s, const struct v8_heap *h, uint64_t shared, uint64_t pc,
			  bool returns, struct v8_place places[V8_INLINE_MAX])
{
	struct v8_code code;
	uint64_t array;
	int32_t offset;

	places[0] = (struct v8_place){.shared = shared, .position = -1};
	if (v8_code_find(h, pc, &s->code_map, &code) < 0)
		return 1;
	if (!code.baseline)
		return v8_optimized_places(h, &code, &s->image->opcodes,
					   (uint32_t)(pc - code.start), returns, shared, places);
	if (v8_bytecode_of(h, shared, &array) < 0)
		return 1;
	offset =
	    v8_baseline_offset(h, &code, array, &s->image->bytecodes, (uint32_t)(pc - code.start));
	if (offset >= 0)
		places[0].position = v8_bytecode_position(h, array, (uint32_t)offset);
	return 1;
}

/* Finds a function that was inlined, whose cookie the walker has not read. */
static int find_inlined(struct naming *n, uint64_t shared, struct runtime_function *ret)
{
	uint32_t cookie;
	bool whole;

	return read_cookie(&n->heap, shared, &cookie) < 0 ? read_function(n, shared, ret, &whole)
							  : find_function(n, shared, cookie, ret);
}

static int name_code(struct naming *n, uint64_t shared, uint32_t cookie, uint64_t pc, bool returns)
{
	struct v8_place places[V8_INLINE_MAX];
	size_t count;
	int r = check_cookie(&n->heap, shared, cookie);

	if (r < 0)
		return r;
	count = code_places(n->state, &n->heap, shared, pc, returns, places);
	for (size_t i = 0; i < count && r == 0; i++) {
		struct runtime_function f;

		r = places[i].shared == shared ? find_function(n, shared, cookie, &f)
					       : find_inlined(n, places[i].shared, &f);
		if (r == 0)
			add_symbol(n, &f, places[i].position);
	}
	/* If the text is full, the names that fit are returned. */
	return n->ret->n && r == -ENOSPC ? 0 : r;
}

/* ---- frames ---------------------------------------------------------------------------------- */

static int name_stub(struct naming *n, uint64_t stub)
{
	const char *name = "(code)";

	if (stub == KILN_V8_WASM)
		name = "(WebAssembly)";
	else if (stub == KILN_V8_REGEXP)
		name = "(regular expression)";
	n->ret->symbols[0] = (struct symbol){.name = name, .system_name = name, .file = ""};
	n->ret->n = 1;
	return 0;
}

int v8_symbolize(void *state, const struct target_memory *memory, const uint64_t words[2],
		 char *scratch, size_t scratch_size, struct symbol_result *ret)
{
	struct v8_state *s = state;
	struct naming n = {
	    .state = s,
	    .heap = {.memory = memory, .layout = &s->image->layout, .types = &s->types},
	    .text = {.at = scratch, .left = scratch_size},
	    .ret = ret,
	};
	uint64_t address = words[0] & KILN_FRAME_PC_MASK, value = KILN_V8_VALUE(words[1]);
	uint32_t cookie = KILN_V8_COOKIE(words[1]);

	ret->type = FRAME_V8JS;
	ret->n = 0;
	switch (KILN_FRAME_FLAGS(words[0]) & KILN_V8_KIND_MASK) {
	case KILN_V8_STUB:
		return name_stub(&n, value);
	case KILN_V8_BYTECODE:
		return name_bytecode(&n, address, cookie, value);
	default:
		return name_code(&n, address, cookie, value,
				 KILN_FRAME_FLAGS(words[0]) & KILN_V8_RETURN);
	}
}
