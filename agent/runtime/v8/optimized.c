/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Optimized code has a table of source positions, and for each inlined function the position of its
 * call. Turbofan's are those of the calls. Maglev has one for every instruction, but those of a
 * loop whose first round it has peeled off are wrong from then on: in the rest of the loop, and of
 * the calls inlined there, they stay where the loop begins. What V8 itself goes by is right: the
 * deoptimization data, which has the bytecode offsets of all functions, for each call that is not
 * inlined and for each check. So callers in Maglev's code are told from that: by the safepoint of
 * the call where there is one, else by the checks of the inlined function that the code is in.
 * When V8 gives up code that is on the stack, it changes the return address to where the code is
 * left; the deoptimization data tells the call.
 *
 * Loop thread; keeps nothing.
 *
 * Sources: V8 13.6 src/codegen/source-position.h (InliningPosition),
 * src/execution/frames.cc (OptimizedJSFrame::Summarize),
 * src/maglev/maglev-graph-builder.h (UpdateSourceAndBytecodePosition goes forward only),
 * src/deoptimizer/x64/deoptimizer-x64.cc (size of an exit).
 */
#include "agent/runtime/v8/optimized.h"
#include "agent/runtime/v8/positions.h"

enum {
	INLINING_POSITION_SIZE = 16, /* position, function id */
	JUMP_IF_SIZE = 6,	     /* 0f 8x, and a distance of 4 bytes */
};

struct inlining {
	uint64_t position; /* of the call, as struct SourcePosition */
	int32_t function;
};

/* A place in optimized code. */
struct spot {
	const struct v8_heap *heap;
	const struct v8_code *code;
	uint64_t table;	 /* of positions */
	uint64_t deopt;	 /* DeoptimizationData */
	uint64_t shared; /* the function that the code is of */
	uint32_t offset;
};

/* ---- position tables -------------------------------------------------------------------------
 */

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

/* What the tables say. *RET_ID is that of the innermost function. */
static size_t table_places(const struct spot *s, struct v8_place ret[V8_INLINE_MAX],
			   int32_t *ret_id)
{
	const struct v8_heap *h = s->heap;
	uint64_t value = 0;
	size_t n = 0;

	*ret_id = -1;
	if (v8_position_at(h, s->table, s->offset, &value) < 0) {
		ret[0] = (struct v8_place){.shared = s->shared, .position = -1};
		return 1;
	}
	*ret_id = v8_inlining_id(value);
	for (int i = 0; v8_inlining_id(value) >= 0 && i + 1 < V8_INLINE_MAX; i++) {
		struct inlining call;
		uint64_t callee;

		if (inlining_at(h, s->deopt, v8_inlining_id(value), &call) < 0)
			break;
		/* What is left of a function that cannot be told is its caller. */
		if (v8_deopt_function(h, s->deopt, call.function, &callee) == 0)
			ret[n++] = (struct v8_place){callee, v8_script_position(value)};
		value = call.position;
	}
	ret[n++] = (struct v8_place){s->shared, v8_script_position(value)};
	return n;
}

/* ---- deoptimization data ---------------------------------------------------------------------
 */

static int32_t frame_position(const struct v8_heap *h, const struct v8_deopt_frame *f)
{
	uint64_t array;

	if (f->offset < 0 || v8_bytecode_of(h, f->shared, &array) < 0)
		return -1;
	return v8_bytecode_position(h, array, (uint32_t)f->offset);
}

/* Where the call is that has the frames at place INDEX. 0: not known. */
static size_t call_places(const struct spot *s, struct v8_deopt *d, uint32_t index,
			  struct v8_place ret[V8_INLINE_MAX])
{
	struct v8_deopt_frame frames[V8_DEOPT_FRAMES_MAX];
	int n = v8_deopt_frames(d, index, frames);

	if (n <= 0 || frames[0].shared != s->shared)
		return 0;
	for (int i = 0; i < n; i++)
		ret[i] = (struct v8_place){frames[n - 1 - i].shared,
					   frame_position(s->heap, &frames[n - 1 - i])};
	return (size_t)n;
}

/* Are the outermost frames at place INDEX those of the functions in PLACES? Then FRAMES has them.
 */
static bool same_functions(struct v8_deopt *d, uint32_t index, const struct v8_place *places,
			   size_t n, struct v8_deopt_frame frames[V8_DEOPT_FRAMES_MAX])
{
	int depth = v8_deopt_frames(d, index, frames);

	if (depth < (int)n)
		return false;
	for (size_t i = 0; i < n; i++)
		if (frames[i].shared != places[n - 1 - i].shared)
			return false;
	return true;
}

/* The first check in code [FROM, TO) whose frames are those of PLACES. */
static bool find_check(struct v8_deopt *d, const uint8_t *code, int64_t from, int64_t to,
		       const struct v8_place *places, size_t n,
		       struct v8_deopt_frame frames[V8_DEOPT_FRAMES_MAX])
{
	for (int64_t at = from; at + JUMP_IF_SIZE <= to; at++) {
		int32_t distance;
		uint32_t index;

		if (code[at] != 0x0f || (code[at + 1] & 0xf0) != 0x80)
			continue;
		memcpy(&distance, code + at + 2, sizeof(distance));
		if (v8_deopt_exit(d, at + JUMP_IF_SIZE + distance, &index) == 0 &&
		    same_functions(d, index, places, n, frames))
			return true;
	}
	return false;
}

/* The frames of some check in the code of the inlined function ID, which is at PLACES. */
static bool check_of(const struct spot *s, struct v8_deopt *d, int32_t id,
		     const struct v8_place *places, size_t n,
		     struct v8_deopt_frame frames[V8_DEOPT_FRAMES_MAX])
{
	_cleanup_free_ uint8_t *code = NULL, *table = NULL;
	struct v8_positions p;
	bool found = false, inside = false;
	int64_t from = 0;
	size_t size;

	if (s->code->size <= V8_CODE_MAX)
		code = malloc(s->code->size);
	if (!code || target_read(s->heap->memory, s->code->start, code, s->code->size) < 0 ||
	    v8_bytes(s->heap, s->table, V8_TABLE_MAX, &table, &size) < 0)
		return false;
	p = v8_positions_of(s->heap->layout, table, size);
	/* What comes after the last entry is out of line: code of all functions. */
	while (!found && v8_positions_next(&p) && p.at <= (int64_t)s->code->size) {
		if (inside)
			found = find_check(d, code, from, p.at, places, n, frames);
		inside = v8_inlining_id(p.value) == id && p.at >= 0;
		from = p.at;
	}
	return found;
}

/*
 * Calls between the functions in PLACES, when no check tells: what is the same in all frames of
 * these functions.
 */
static void only_calls(struct v8_deopt *d, struct v8_place *places, size_t n)
{
	struct v8_deopt_frame frames[V8_DEOPT_FRAMES_MAX];
	bool settled[V8_INLINE_MAX] = {0}; /* the table's is one of them, or there are several */
	int32_t found[V8_INLINE_MAX];

	for (size_t i = 0; i < n; i++)
		found[i] = -1;
	for (uint32_t i = 0; i < d->count && d->budget; i++) {
		if (!same_functions(d, i, places, n, frames))
			continue;
		for (size_t k = 1; k < n; k++) {
			int32_t position = frame_position(d->heap, &frames[n - 1 - k]);

			if (position < 0)
				continue;
			settled[k] = settled[k] || position == places[k].position ||
				     (found[k] >= 0 && found[k] != position);
			found[k] = position;
		}
	}
	for (size_t k = 1; k < n; k++)
		if (!settled[k] && found[k] >= 0)
			places[k].position = found[k];
}

/* Of the functions in PLACES, all but the innermost are at a call. */
static void inlined_calls(const struct spot *s, struct v8_deopt *d, int32_t id,
			  struct v8_place *places, size_t n)
{
	struct v8_deopt_frame frames[V8_DEOPT_FRAMES_MAX];

	if (!check_of(s, d, id, places, n, frames)) {
		only_calls(d, places, n);
		return;
	}
	for (size_t k = 1; k < n; k++)
		places[k].position = frame_position(s->heap, &frames[n - 1 - k]);
}

size_t v8_optimized_places(const struct v8_heap *h, const struct v8_code *code,
			   const struct v8_opcodes *opcodes, uint32_t offset, bool returns,
			   uint64_t shared, struct v8_place ret[V8_INLINE_MAX])
{
	struct spot s = {.heap = h, .code = code, .shared = shared, .offset = offset};
	_cleanup_(v8_deopt_done) struct v8_deopt d;
	uint32_t index;
	size_t n = 0;
	int32_t id;

	if (v8_word(h, code->object, h->layout->code_positions, &s.table) < 0 ||
	    v8_word(h, code->object, h->layout->code_deopt, &s.deopt) < 0)
		s.table = 0;
	if (v8_deopt_init(&d, h, opcodes, s.deopt) < 0)
		return table_places(&s, ret, &id);
	/* Of code that V8 has given up the return address is where it is left, at the next return.
	 */
	if (returns && v8_deopt_exit(&d, offset + 1LL, &index) == 0 &&
	    v8_deopt_is_call(&d, index)) {
		if (!code->maglev)
			s.offset = v8_deopt_call(&d, index, offset + 1) - 1;
		else
			n = call_places(&s, &d, index, ret);
	} else if (returns && code->maglev &&
		   v8_deopt_index(h, code->start + code->size, offset + 1, &index) == 0) {
		n = call_places(&s, &d, index, ret);
	}
	if (n)
		return n;
	n = table_places(&s, ret, &id);
	if (n > 1 && code->maglev)
		inlined_calls(&s, &d, id, ret, n);
	return n;
}
