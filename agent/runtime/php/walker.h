/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The walk of PHP frames (7.4 to 8.6), on top of bpf/unwind.h; for BPF and for the host
 * (docs/unwinding/php.md).
 *
 * PHP's frames are a chain of zend_execute_data; executor_globals points to the innermost. A native
 * frame of execute_ex(), the interpreter's loop, stands for all frames up to the one with which it
 * was entered, which is marked (ZEND_CALL_TOP). Internal functions have a frame as well, but no
 * loop: their frames come with those that called them. Compiled code runs in the native frame of
 * execute_ex(), which has jumped to it.
 *
 * At the leaf the loop has the frame and the instruction in registers, which are ahead of memory.
 * Everywhere else memory is right: the instruction is written back before anything is called.
 *
 * Two functions call execute_ex() for a frame that they have put into the chain before: they are
 * zend_execute(), which runs a file, and zend_generator_resume(). If the loop has not shown that
 * frame, it is shown at their native frames, so that no frame is lost.
 *
 * The stack of a fiber ends in make_fcontext(); from there the walk goes on with the stack of the
 * code that has resumed the fiber.
 *
 * All that is read is foreign: a chain that turns back on itself is found by Brent's method, any
 * other is bounded.
 */
#pragma once

#include "agent/runtime/php/frame.h"
#include "agent/runtime/php/native.h"

enum php_place {
	PHP_IN_LOOP,
	PHP_IN_COMPILED,
	PHP_IN_OTHER, /* other code without a file */
	PHP_IN_RESUME,
	PHP_IN_ROOT,
	PHP_AT_FIBERS_END,
};

/* ---- generators ------------------------------------------------------------------------------ */

/* The generator that is N steps from GENERATOR towards the one from which it gets its values. */
KILN_INLINE uint64_t php_generator_at(const struct kiln_php *p, uint64_t generator, int n)
{
	for (int i = 0; i < PHP_GENERATORS_MAX && i < n; i++)
		generator = php_word(generator + p->generator_parent);
	return generator;
}

/*
 * Emits the frames of generators. The frame at w->value, which has no function, stands for all
 * generators between the one that runs, whose frame was emitted last, and the one that was asked
 * for a value; each of them yields from the one before. They are linked in the other direction
 * only. Non-zero: the walk of PHP frames ends.
 */
KILN_GLOBAL int php_generators(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	const struct kiln_php *p;
	uint64_t first, generator, frame;
	int n = 0;

	if (!w)
		return 1;
	p = php_data(w);
	first = w->value - p->generator_fake;
	/* 7.4 makes such a frame for a function that no instruction calls (dummy_execute_data). */
	if (w->scratch[PHP_FRAME_THIS] != first)
		return 0;
	generator = first;
	for (int i = 0; i < PHP_GENERATORS_MAX; i++) {
		generator = php_word(generator + p->generator_parent);
		if (!generator)
			break;
		n++;
		if (php_word(generator + p->generator_frame) == w->cursor.words[PHP_LAST]) {
			generator = 0;
			break;
		}
	}
	if (generator)
		walk_missing(w, KILN_MISSING_BUDGET);
	for (int i = PHP_GENERATORS_MAX - 1; i >= 0; i--) {
		if (i >= n)
			continue;
		frame = php_word(php_generator_at(p, first, i) + p->generator_frame);
		if (!frame || env_read(w->scratch, PHP_FRAME_WORDS * 8, frame))
			return php_stop(w, KILN_MISSING_READ);
		if (php_emit(w->slot))
			return 1;
	}
	return 0;
}

/* ---- groups ---------------------------------------------------------------------------------- */

/*
 * Emits the next frame of the chain. Returns 0 if the frame after it belongs to the same native
 * frame; 1 if it does not, or there is none; PHP_GENERATORS if this frame stands for several, which
 * php_generators() emits.
 */
KILN_GLOBAL int php_frame(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t frame, info;

	if (!w)
		return 1;
	frame = w->cursor.words[PHP_NEXT];
	if (!frame || php_count(w, frame))
		return 1;
	if (env_read(w->scratch, PHP_FRAME_WORDS * 8, frame))
		return php_stop(w, KILN_MISSING_READ);
	info = w->scratch[PHP_FRAME_INFO];
	w->cursor.words[PHP_NEXT] = w->scratch[PHP_FRAME_PREVIOUS];
	if (!w->scratch[PHP_FRAME_FUNC]) {
		w->value = frame;
		return PHP_GENERATORS;
	}
	if (php_emit(w->slot))
		return 1;
	w->cursor.words[PHP_LAST] = frame;
	/* The frame of an internal function that an internal function has called is marked too. */
	if (!(info & PHP_INFO_TOP) || (w->scratch[PHP_AT_FUNC] & 255) == PHP_TYPE_INTERNAL)
		return 0;
	if (info & PHP_INFO_GENERATOR)
		w->cursor.words[PHP_STATE] |= PHP_RESUMED;
	if (info & PHP_INFO_CODE)
		w->cursor.words[PHP_STATE] += PHP_FILES;
	return 1;
}

KILN_GLOBAL int php_group(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);

	if (!w)
		return 0;
	w->cursor.words[PHP_STATE] &= ~PHP_RESUMED;
	for (int i = 0; i < KILN_MAX_USER_FRAMES + 1; i++) {
		int r = php_frame(w->slot);

		if (r == PHP_GENERATORS)
			r = php_generators(w->slot);
		if (r)
			break;
	}
	return 0;
}

/* Does the function of FRAME have the instruction at OPLINE? */
KILN_GLOBAL int php_has_opline(uint32_t slot, uint64_t frame, uint64_t opline)
{
	struct kiln_walk *w = env_walk(slot);
	const struct kiln_php *p;
	uint64_t func, opcodes, last = 0;

	if (!w)
		return 0;
	p = php_data(w);
	func = php_word(frame + PHP_FRAME_FUNC * 8);
	if (!func || !opline || env_read(&last, 4, func + p->last))
		return 0;
	opcodes = php_word(func + p->opcodes);
	return opline >= opcodes && opline - opcodes < (last & 0xffffffffULL) * PHP_OP_BYTES;
}

/* Makes OPLINE the instruction of FRAME, the next frame, if its function has it. Returns 1 then. */
KILN_INLINE int php_take_opline(struct kiln_walk *w, uint64_t frame, uint64_t opline)
{
	if (!php_has_opline(w->slot, frame, opline))
		return 0;
	w->cursor.words[PHP_OPLINE] = opline;
	return 1;
}

/* The same with the opline in FRAME's memory, which may be left over from an earlier function; the
 * line is not known then. */
KILN_INLINE void php_take_memory(struct kiln_walk *w, uint64_t frame)
{
	const struct kiln_php *p = php_data(w);
	uint64_t opline = php_word(frame + PHP_FRAME_OPLINE * 8);

	if (!php_word(frame + PHP_FRAME_FUNC * 8) || php_take_opline(w, frame, opline) ||
	    opline - p->globals - p->exception_op < 3 * PHP_OP_BYTES)
		return;
	w->cursor.words[PHP_OPLINE] = PHP_NO_OPLINE;
}

/*
 * Finds the instruction of FRAME if the loop has called a function, and may not have written the
 * instruction back. The called function leaves r14 (the frame) and r15 (the instruction) as they
 * are, or begins by pushing them one after the other.
 */
KILN_GLOBAL int php_find_opline(uint32_t slot, uint64_t frame)
{
	struct kiln_walk *w = env_walk(slot);
	const uint32_t r14 = 14, r15 = 15;

	if (!w)
		return 0;
	if ((php_data(w)->flags & PHP_HAS_REGISTERS)) {
		if (w->leaf[r14] == frame && php_take_opline(w, frame, w->leaf[r15]))
			return 0;
		if (!env_read(w->scratch, PHP_STACK_WORDS * 8, w->regs.sp - PHP_STACK_WORDS * 8)) {
			for (uint32_t i = PHP_STACK_WORDS - 1; i-- > 0;) {
				uint32_t k = i;

				/* Hides the loop from the compiler, which would make the index a
				 * negative offset: the verifier of Linux 7.2 refuses those. */
				asm volatile("" : "+r"(k));
				if (w->scratch[k & (PHP_STACK_WORDS - 1)] == frame &&
				    php_take_opline(w, frame,
						    w->scratch[(k + 1) & (PHP_STACK_WORDS - 1)]))
					return 0;
			}
		}
	}
	php_take_memory(w, frame);
	return 0;
}

/* Finds the first frame of the sample. If the leaf is in the loop or in compiled code, registers
 * have it. Returns 1 if the loop is about to return, so that its frames are gone, else 0. */
KILN_GLOBAL int php_begin(uint32_t slot, uint32_t place)
{
	struct kiln_walk *w = env_walk(slot);
	const uint32_t r14 = 14, r15 = 15;
	const struct kiln_php *p;
	uint64_t at, frame = 0;

	if (!w)
		return 0;
	p = php_data(w);
	w->cursor.words[PHP_STATE] = PHP_STARTED | 128 * PHP_FILES;
	if (env_read(&frame, 8, p->globals + p->current)) {
		walk_missing(w, KILN_MISSING_READ);
		return 0;
	}
	w->cursor.words[PHP_NEXT] = frame;
	if (!w->leaf_valid || !(p->flags & PHP_HAS_REGISTERS) || place > PHP_IN_COMPILED)
		return 0;
	at = w->regs.pc - p->loop;
	if (place == PHP_IN_LOOP && at < p->entered)
		return 0;
	if (place == PHP_IN_LOOP && at - p->left_from < p->left_to - p->left_from)
		return 1;
	if (!w->leaf[r14] || (w->leaf[r14] & 7))
		return 0;
	w->cursor.words[PHP_NEXT] = w->leaf[r14];
	if (place == PHP_IN_COMPILED)
		w->cursor.words[PHP_OPLINE] = PHP_NO_OPLINE;
	else if (!php_take_opline(w, w->leaf[r14], w->leaf[r15]))
		php_take_memory(w, w->leaf[r14]);
	return 0;
}

/* ---- native frames --------------------------------------------------------------------------- */

KILN_INLINE enum php_place php_place_of(struct kiln_walk *w, const struct kiln_php *p)
{
	uint64_t pc = w->regs.pc - (w->exact ? 0 : 1);

	if (pc - p->loop < p->loop_size || pc - p->cold < p->cold_size)
		return PHP_IN_LOOP;
	if (pc - p->root < p->root_size)
		return PHP_IN_ROOT;
	if (pc - p->resume < p->resume_size)
		return PHP_IN_RESUME;
	if (pc - p->fiber < p->fiber_size)
		return PHP_AT_FIBERS_END;
	if ((pc < w->map_start || pc >= w->map_end) && walk_find_mapping(w->slot, pc))
		return PHP_IN_OTHER;
	return w->map_flags & KILN_MAPPING_CERTAIN ? PHP_IN_COMPILED : PHP_IN_OTHER;
}

/* Emits the frames of a file that zend_execute() runs, or of a generator that
 * zend_generator_resume() runs, if the loop has not emitted them. */
KILN_INLINE void php_catch_up(struct kiln_walk *w, enum php_place place)
{
	uint64_t info;

	if (place == PHP_IN_ROOT) {
		w->cursor.words[PHP_STATE] -= PHP_FILES;
		for (int i = 0; i < 64 && PHP_FILES_OF(w->cursor.words[PHP_STATE]) < 0 &&
				w->cursor.words[PHP_NEXT];
		     i++)
			(void)php_group(w->slot);
		return;
	}
	if (w->cursor.words[PHP_STATE] & PHP_RESUMED) {
		w->cursor.words[PHP_STATE] &= ~PHP_RESUMED;
		return;
	}
	if (w->cursor.words[PHP_NEXT]) {
		info = php_word(w->cursor.words[PHP_NEXT] + PHP_FRAME_INFO * 8);
		if (info & PHP_INFO_GENERATOR)
			(void)php_group(w->slot);
		w->cursor.words[PHP_STATE] &= ~PHP_RESUMED;
	}
}

/* Emits the frames of the native frame in w->regs. */
KILN_GLOBAL int php_walk(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	enum php_place place;
	uint64_t frame;
	int returns = 0, first;

	if (!w)
		return 0;
	place = php_place_of(w, php_data(w));
	first = !(w->cursor.words[PHP_STATE] & PHP_STARTED);
	if (first)
		returns = php_begin(w->slot, place);
	if (place == PHP_AT_FIBERS_END)
		return php_leave_fiber(w->slot);
	if (place == PHP_IN_OTHER)
		return php_leave_regex(w->slot);
	if (place == PHP_IN_LOOP || place == PHP_IN_COMPILED) {
		frame = w->cursor.words[PHP_NEXT];
		if (first && frame && !w->leaf_valid && place == PHP_IN_LOOP)
			(void)php_find_opline(w->slot, frame);
		/* Compiled code writes its instruction back only before it calls PHP code. */
		if (place == PHP_IN_COMPILED && frame && !w->cursor.words[PHP_OPLINE])
			php_take_memory(w, frame);
		if (!returns)
			(void)php_group(w->slot);
		if (place == PHP_IN_COMPILED)
			(void)php_leave_compiled(w->slot);
	} else {
		php_catch_up(w, place);
	}
	return 0;
}
