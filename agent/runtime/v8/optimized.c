/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Optimized code has a table of source positions, and for each inlined function the position of its
 * call.
 *
 * Turbofan has positions of calls only. Maglev has a position of each instruction. But when Maglev
 * has peeled the first round off a loop, the positions in the rest of the loop, and those of the
 * calls inlined there, stay where the loop begins. V8 itself does not use these positions but the
 * deoptimization data, which is right: it has the bytecode offset of each function, inlined ones
 * too, for each call that is not inlined and for each check. So the positions of callers in
 * Maglev's code are taken from the deoptimization data: by the safepoint of the call where there is
 * one, else by a check of the inlined function that the code is in.
 *
 * When V8 deoptimizes code that is on the stack, it changes the return address to the address of a
 * deoptimization exit. The deoptimization data tells which call the exit belongs to.
 *
 * Loop thread; keeps nothing.
 *
 * Sources: V8 13.6 src/codegen/source-position.h (InliningPosition), src/execution/frames.cc
 * (OptimizedJSFrame::Summarize), src/maglev/maglev-graph-builder.h (UpdateSourceAndBytecodePosition
 * goes forward only), src/deoptimizer/x64/deoptimizer-x64.cc (size of an exit).
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

/*
 * Finds the places at S by the position tables, innermost first. Returns how many. *RET_ID: the
 * inlining id of the innermost function; -1: it is not inlined.
 */
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
		/* A function that cannot be found is left out; its caller is not. */
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

/*
 * Finds the places of the call that place INDEX of the deoptimization data belongs to. Returns how
 * many; 0: not known.
 */
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

/* Do the N outermost frames at place INDEX have the same functions as PLACES? Then they are in
 * FRAMES. */
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

/*
 * Finds the first check in [FROM, TO) of CODE whose frames have the same functions as PLACES. Its
 * frames are in FRAMES then.
 */
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

/*
 * Finds any check in the code of the inlined function ID, whose places are PLACES. The check's
 * frames are in FRAMES then.
 */
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
	/*
	 * Code behind the last entry is out of line, and may be any function's: it is not searched.
	 */
	while (!found && v8_positions_next(&p) && p.at <= (int64_t)s->code->size) {
		if (inside)
			found = find_check(d, code, from, p.at, places, n, frames);
		inside = v8_inlining_id(p.value) == id && p.at >= 0;
		from = p.at;
	}
	return found;
}

/*
 * Without a check, corrects the positions of callers in PLACES: if the deoptimization data has only
 * one position for a call between these functions, the call is there.
 */
static void only_calls(struct v8_deopt *d, struct v8_place *places, size_t n)
{
	struct v8_deopt_frame frames[V8_DEOPT_FRAMES_MAX];
	/* Keep the table's position: it is among those found, or these differ. */
	bool settled[V8_INLINE_MAX] = {0};
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

/* Corrects the positions of PLACES but that of the innermost function: all others are at a call. */
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
	/* V8 has deoptimized this code: the return address is the call's deoptimization exit. */
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
