/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The walk of PHP frames (7.4 to 8.6), on top of bpf/unwind.h; for BPF and for the host
 * (docs/unwinding/php.md).
 *
 * PHP's frames are a chain of zend_execute_data, the innermost in executor_globals. A native frame
 * of execute_ex(), the interpreter's loop, stands for all up to the one that it was entered with,
 * which is marked (ZEND_CALL_TOP). Internal functions have a frame as well, but no loop: theirs
 * come with the frames that called them. Compiled code runs in the native frame of execute_ex(),
 * which it was jumped to from.
 *
 * At the leaf the loop has the frame and the instruction in registers, which are ahead of memory.
 * Everywhere else memory is right: the instruction is written back before anything is called.
 *
 * Two functions call execute_ex() for frames that are in the chain before the loop is entered:
 * zend_execute(), which runs a file, and zend_generator_resume(). What the loop has not shown when
 * their native frames come is shown there, so that no frame is lost.
 *
 * The stack of a fiber ends in make_fcontext(); from there the walk goes on with the stack of what
 * has resumed the fiber.
 *
 * All that is read is foreign: a chain that turns back on itself is found by Brent's method, any
 * other is bounded.
 */
#pragma once

#include "agent/runtime/php/walker_data.h"

enum {
	/* zend_execute_data */
	PHP_FRAME_OPLINE = 0, /* in words */
	PHP_FRAME_FUNC = 3,
	PHP_FRAME_THIS = 4,
	PHP_FRAME_INFO = 5,
	PHP_FRAME_PREVIOUS = 6,
	PHP_FRAME_WORDS = 7,
	/* Its This.u1.type_info (zend_compile.h, ZEND_CALL_*) */
	PHP_INFO_CODE = 1 << 16,
	PHP_INFO_TOP = 1 << 17,
	PHP_INFO_CLOSURE = 1 << 22,
	PHP_INFO_FAKE_CLOSURE = 1 << 23,
	PHP_INFO_GENERATOR = 1 << 24,
	/* zend_function.type */
	PHP_TYPE_INTERNAL = 1,
	PHP_TYPE_USER = 2,
	PHP_TYPE_EVAL = 4,
	PHP_ACC_TRAMPOLINE = 1 << 18, /* zend_function.fn_flags: ZEND_ACC_CALL_VIA_TRAMPOLINE */
	/* zend_op */
	PHP_OP_BYTES = 32,
	PHP_OP_LINE = 24,
	/* In words of the scratch, behind the zend_execute_data. */
	PHP_AT_FUNC = 8,   /* type and flags, name, scope */
	PHP_AT_PLACE = 11, /* file, line */
	PHP_AT_HASH = 13,
	PHP_AT_LINE = 15,
	PHP_REGEX_FRAME_MAX = 1 << 17, /* bytes; what it needs to try again is elsewhere */
	PHP_NO_OPLINE = 1,	       /* no address: the line is not known */
	PHP_CONTEXT_STACK = 32,	       /* zend_fiber_context.stack; its handle is its first word */
	PHP_CANARY_STEPS = 48, /* words above the stack pointer that compiled code may have used */
};

/* What w->cursor holds. */
enum {
	PHP_NEXT,     /* the next frame; 0: the chain is at its end */
	PHP_OPLINE,   /* where that is, if not where it says itself */
	PHP_STATE,    /* see below */
	PHP_TORTOISE, /* a frame seen earlier */
	PHP_LAST,     /* the frame that was shown last */
	PHP_FIBER,    /* the context of the fiber whose native stack is walked; 0: not asked yet */
};

/* PHP_STATE: frames looked at in the low half, and */
#define PHP_STARTED	    (1ULL << 32)
#define PHP_RESUMED	    (1ULL << 33) /* the last group ended with a generator's frame */
#define PHP_MAIN_STACK	    (1ULL << 34) /* there is no fiber, or none any more */
#define PHP_FILES	    (1ULL << 40) /* files shown less native frames of zend_execute(), + 128 */
#define PHP_FILES_OF(state) ((int)((state) >> 40 & 255) - 128)

enum php_place {
	PHP_IN_LOOP,
	PHP_IN_COMPILED,
	PHP_IN_OTHER, /* other code without a file */
	PHP_IN_RESUME,
	PHP_IN_ROOT,
	PHP_AT_FIBERS_END,
};

KILN_INLINE const struct kiln_php *php_data(const struct kiln_walk *w)
{
	return (const struct kiln_php *)w->runtime.data;
}

/* The word at ADDRESS; 0 when it cannot be read. */
KILN_INLINE uint64_t php_word(uint64_t address)
{
	uint64_t v = 0;

	return address && !env_read(&v, 8, address) ? v : 0;
}

KILN_INLINE int php_stop(struct kiln_walk *w, enum kiln_missing why)
{
	w->cursor.words[PHP_NEXT] = 0;
	walk_missing(w, why);
	return 1;
}

/* Counts FRAME. Non-zero: the chain has come back to it, or has no end. */
KILN_INLINE int php_count(struct kiln_walk *w, uint64_t frame)
{
	uint32_t n = (uint32_t)w->cursor.words[PHP_STATE] + 1;

	if (n > PHP_DEPTH_MAX)
		return php_stop(w, KILN_MISSING_BUDGET);
	if (frame == w->cursor.words[PHP_TORTOISE])
		return php_stop(w, KILN_MISSING_BROKEN);
	if (!(n & (n - 1)))
		w->cursor.words[PHP_TORTOISE] = frame;
	w->cursor.words[PHP_STATE]++;
	return 0;
}

/* ---- one frame ------------------------------------------------------------------------------- */

/* The line of the instruction at OPLINE into the scratch; 0: not known. Non-zero: it cannot be
 * read. */
KILN_INLINE int php_read_line(struct kiln_walk *w, uint64_t opline)
{
	const struct kiln_php *p = php_data(w);

	w->scratch[PHP_AT_LINE] = 0;
	if (!opline || opline == PHP_NO_OPLINE)
		return 0;
	/* While an exception is on its way the frame has this in place of its instruction. */
	if (p->before_exception && opline - p->globals - p->exception_op < 3 * PHP_OP_BYTES)
		opline = php_word(p->globals + p->before_exception);
	return env_read(&w->scratch[PHP_AT_LINE], 4, opline + PHP_OP_LINE);
}

KILN_INLINE uint64_t php_capped(uint64_t line, uint64_t max)
{
	line &= 0xffffffffULL;
	return line > max ? 0 : line;
}

/*
 * Makes the file of the code that has called FRAME's, and the line, those of the place in the
 * scratch. Non-zero: no such code has.
 */
KILN_INLINE int php_read_caller(struct kiln_walk *w, uint64_t previous)
{
	uint64_t line = w->scratch[PHP_AT_LINE], func = php_word(previous + PHP_FRAME_FUNC * 8);
	int r = -1;

	if (func && !env_read(&w->scratch[PHP_AT_FUNC], 8, func) &&
	    (w->scratch[PHP_AT_FUNC] & 255) != PHP_TYPE_INTERNAL &&
	    !php_read_line(w, php_word(previous + PHP_FRAME_OPLINE * 8))) {
		w->scratch[PHP_AT_PLACE] = php_word(func + php_data(w)->filename);
		w->scratch[PHP_AT_PLACE + 1] = w->scratch[PHP_AT_LINE];
		r = 0;
	}
	w->scratch[PHP_AT_LINE] = line;
	return r;
}

/* Emits the frame of code that has no zend_function of its own. Non-zero: as php_emit(). */
KILN_INLINE int php_emit_place(struct kiln_walk *w, enum php_kind kind)
{
	uint64_t file, start, rest;

	if (env_read(&w->scratch[PHP_AT_PLACE], 16,
		     w->scratch[PHP_FRAME_FUNC] + php_data(w)->filename))
		return php_stop(w, KILN_MISSING_READ);
	if (kind == PHP_EVAL && php_read_caller(w, w->scratch[PHP_FRAME_PREVIOUS]))
		kind = PHP_MAIN;
	file = w->scratch[PHP_AT_PLACE];
	start = php_capped(w->scratch[PHP_AT_PLACE + 1], PHP_LINE_MAX);
	if (!file || env_read(&w->scratch[PHP_AT_HASH], 8, file + 8))
		return php_stop(w, KILN_MISSING_READ);
	rest = php_string_cookie(w->scratch[PHP_AT_HASH], PHP_LONG_COOKIE_BITS);
	if (kind == PHP_CLOSURE || kind == PHP_EVAL)
		rest = PHP_REST(start, php_string_cookie(w->scratch[PHP_AT_HASH], PHP_COOKIE_BITS));
	return walk_emit(w, kind, file,
			 PHP_PLACE(php_capped(w->scratch[PHP_AT_LINE], PHP_LINE_MAX), rest));
}

/* Emits the frame of a function whose zend_function is a copy. As php_emit(). */
KILN_INLINE int php_emit_borrowed(struct kiln_walk *w, uint64_t name, uint64_t scope)
{
	uint64_t cookie = php_string_cookie(w->scratch[PHP_AT_HASH], PHP_BORROWED_COOKIE_BITS);
	uint64_t line = php_capped(w->scratch[PHP_AT_LINE], PHP_BORROWED_LINE_MAX);

	return walk_emit(w, PHP_BORROWED, PHP_BORROWED_WORD(name, cookie),
			 PHP_BORROWED_WORD(scope, line));
}

/* Emits the frame whose zend_execute_data is in the scratch. Non-zero: nothing comes after it. */
KILN_GLOBAL int php_emit(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t func, name, opline;
	uint32_t type, info;

	if (!w)
		return 1;
	func = w->scratch[PHP_FRAME_FUNC];
	info = (uint32_t)w->scratch[PHP_FRAME_INFO];
	opline = w->cursor.words[PHP_OPLINE];
	if (!opline)
		opline = w->scratch[PHP_FRAME_OPLINE];
	w->cursor.words[PHP_OPLINE] = 0;
	if (env_read(&w->scratch[PHP_AT_FUNC], 24, func))
		return php_stop(w, KILN_MISSING_READ);
	type = w->scratch[PHP_AT_FUNC] & 255;
	name = w->scratch[PHP_AT_FUNC + 1];
	w->scratch[PHP_AT_LINE] = 0;
	if (type == PHP_TYPE_USER || type == PHP_TYPE_EVAL) {
		(void)php_read_line(w, opline);
		if (!name)
			return php_emit_place(w, type == PHP_TYPE_EVAL		  ? PHP_EVAL
						 : w->scratch[PHP_FRAME_PREVIOUS] ? PHP_INCLUDE
										  : PHP_MAIN);
		if ((info & (PHP_INFO_CLOSURE | PHP_INFO_FAKE_CLOSURE)) == PHP_INFO_CLOSURE)
			return php_emit_place(w, PHP_CLOSURE);
	} else if (type != PHP_TYPE_INTERNAL) {
		return php_stop(w, KILN_MISSING_BROKEN);
	} else if (!name) {
		return 0; /* where a fiber begins; nothing that a program has called */
	}
	/* What calls __call() for a method that there is not: it has that name for a moment. */
	if (w->scratch[PHP_AT_FUNC] >> 32 & PHP_ACC_TRAMPOLINE)
		return 0;
	w->scratch[PHP_AT_HASH] = 0;
	/* The memory of a function may be as it was while that of its name is another's. */
	if ((type != PHP_TYPE_INTERNAL || info & PHP_INFO_FAKE_CLOSURE) &&
	    env_read(&w->scratch[PHP_AT_HASH], 8, name + 8))
		return php_stop(w, KILN_MISSING_READ);
	if (info & PHP_INFO_FAKE_CLOSURE)
		return php_emit_borrowed(w, name, w->scratch[PHP_AT_FUNC + 2]);
	return walk_emit(w, PHP_FUNCTION, func,
			 php_capped(w->scratch[PHP_AT_LINE], PHP_LINE_MAX) |
			     (uint64_t)php_function_cookie(type, name, w->scratch[PHP_AT_HASH],
							   w->scratch[PHP_AT_FUNC + 2])
				 << 32);
}

/* ---- generators ------------------------------------------------------------------------------ */

/* The generator that is N steps from GENERATOR towards the one that it gets its values from. */
KILN_INLINE uint64_t php_generator_at(const struct kiln_php *p, uint64_t generator, int n)
{
	for (int i = 0; i < PHP_GENERATORS_MAX && i < n; i++)
		generator = php_word(generator + p->generator_parent);
	return generator;
}

/*
 * The frame at FAKE, which has no function, stands for all generators between the one that runs,
 * whose frame was shown last, and the one that was asked for a value: each yields from the one
 * before. Only the other direction is linked. Non-zero: nothing comes after them.
 */
KILN_GLOBAL int php_generators(uint32_t slot, uint64_t fake)
{
	struct kiln_walk *w = env_walk(slot);
	const struct kiln_php *p;
	uint64_t first, frame;
	int n = 0;

	if (!w)
		return 1;
	p = php_data(w);
	first = fake - p->generator_fake;
	/* 7.4 makes such a frame for a function that no instruction calls (dummy_execute_data). */
	if (w->scratch[PHP_FRAME_THIS] != first)
		return 0;
	for (int i = 1; i <= PHP_GENERATORS_MAX; i++) {
		uint64_t generator = php_generator_at(p, first, i);

		if (!generator)
			break;
		n = i;
		if (php_word(generator + p->generator_frame) == w->cursor.words[PHP_LAST])
			break;
		if (i == PHP_GENERATORS_MAX)
			walk_missing(w, KILN_MISSING_BUDGET);
	}
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
 * Shows the frame at hand and goes on to the one before. 0: that belongs to the same native frame;
 * 1: it does not, or there is none.
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
	if (!w->scratch[PHP_FRAME_FUNC])
		return php_generators(w->slot, frame);
	if (php_emit(w->slot))
		return 1;
	w->cursor.words[PHP_LAST] = frame;
	/* An internal function that another one has called is marked too. */
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
		if (php_frame(w->slot))
			break;
	}
	return 0;
}

/* Is the instruction at OPLINE one of the function of FRAME? */
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

/* Takes OPLINE for that of FRAME, the next one, if it is. */
KILN_INLINE int php_take_opline(struct kiln_walk *w, uint64_t frame, uint64_t opline)
{
	if (!php_has_opline(w->slot, frame, opline))
		return 0;
	w->cursor.words[PHP_OPLINE] = opline;
	return 1;
}

/* As php_take_opline(), of what FRAME has in memory: that may be of a function that was there
 * before. */
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
 * The loop has called a function for FRAME, and need not have written back where it is. What it has
 * called leaves r14 and r15 as they are, or begins by pushing them, one behind the other.
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
		if (!env_read(w->scratch, sizeof(w->scratch), w->regs.sp - sizeof(w->scratch))) {
			for (uint32_t i = 15; i-- > 0;) {
				if (w->scratch[i & 15] == frame &&
				    php_take_opline(w, frame, w->scratch[(i + 1) & 15]))
					return 0;
			}
		}
	}
	php_take_memory(w, frame);
	return 0;
}

/* The first frame of the sample. In the loop itself, or in compiled code, registers tell it. */
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

/* Is ADDRESS right behind a call? */
KILN_INLINE int php_is_called_from(uint64_t address)
{
	uint64_t code = php_word(address - 8);

	if ((code >> 24 & 0xff) == 0xe8 || (code >> 16 & 0xffff) == 0x15ff)
		return 1; /* call d; call *d(%rip) */
	/* call *r; call *(r); call *d(r) */
	return (code >> 48 & 0x38ff) == 0x10ff || (code >> 40 & 0x38ff) == 0x10ff;
}

/*
 * Compiled code runs in the frame of execute_ex(), with the registers that this has saved in their
 * places; some of it uses more stack while it calls. Takes the frame for one of execute_ex().
 */
KILN_GLOBAL int php_leave_compiled(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	const struct kiln_php *p;
	uint64_t canary = 0, sp;

	if (!w)
		return 0;
	p = php_data(w);
	sp = w->regs.sp;
	if (p->canary && w->thread_pointer)
		canary = php_word(w->thread_pointer + 0x28);
	for (int i = 0; i < PHP_CANARY_STEPS && p->frame; i++) {
		uint64_t at = sp + (uint64_t)i * 8;

		/* Stale words are there too: both have to be right. */
		if (canary && php_word(at + p->canary) != canary)
			continue;
		if (php_is_called_from(php_word(at + p->frame - 8))) {
			w->regs.sp = at;
			break;
		}
	}
	w->regs.pc = p->loop + p->entered;
	w->exact = 1;
	w->hide_native = 1;
	return 0;
}

/*
 * A regular expression that PCRE has compiled has no fixed frame, but keeps in rbp the address of
 * its arguments (ARGUMENTS, src/pcre2_jit_compile.c in PCRE2 10.36 to 10.46), which lie on the
 * stack in the frame of pcre2_jit_match(), right above the return address. Below that it has pushed
 * rbx, r15, r14, r13 and rbp. Goes to the caller if what is found there is a return address of an
 * indirect call.
 */
KILN_GLOBAL int php_leave_regex(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t arguments, at, pc = 0, code = 0, saved[5] = {0, 0, 0, 0, 0};

	if (!w)
		return 0;
	arguments = w->regs.bp;
	if (arguments <= w->regs.sp || arguments - w->regs.sp > PHP_REGEX_FRAME_MAX ||
	    env_read(w->scratch, sizeof(w->scratch), arguments - sizeof(w->scratch)))
		return 0;
	for (uint32_t i = 16; i-- > 0;) {
		pc = w->scratch[i & 15];
		/* call *%rax .. *%rdi: ff d0 .. d7 */
		if (env_read(&code, 2, pc - 2) || (code & 0xf8ff) != 0xd0ff)
			continue;
		at = arguments - (16 - (uint64_t)i) * 8;
		if (at < w->regs.sp + sizeof(saved) ||
		    env_read(saved, sizeof(saved), at - sizeof(saved)))
			return 0;
		if (walk_emit(w, PHP_REGEX, 0, 0))
			return 0;
		(void)walk_enter(w, pc, at + 8, saved[0], saved[4]);
		w->hide_native = 1;
		w->stepped = 1;
		return 0;
	}
	return 0;
}

/* Is ADDRESS on the stack of the fiber's CONTEXT? The main one has none of its own. */
KILN_INLINE int php_is_stack_of(uint64_t context, uint64_t address)
{
	uint64_t stack[2] = {0, 0}; /* zend_fiber_stack: start, size */

	if (!context || env_read(stack, sizeof(stack), php_word(context + PHP_CONTEXT_STACK)))
		return 0;
	return address - stack[0] <= stack[1];
}

/*
 * At the end of a fiber's stack: goes on where the one that resumed it has called. A fiber that is
 * just leaving its stack has nobody to go on with: the stack is whole.
 */
KILN_GLOBAL int php_leave_fiber(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	const struct kiln_php *p;
	uint64_t context, next, main, saved, words[3] = {0, 0, 0};

	if (!w)
		return 0;
	p = php_data(w);
	w->hide_native = !w->exact;
	w->stepped = 1;
	w->regs.pc = 0;
	main = php_word(p->globals + p->main_context);
	context = w->cursor.words[PHP_FIBER];
	if (!context) {
		context = php_word(p->globals + p->current_context);
		/* It is set before the stack is left, and again after it was come back to. */
		if (!php_is_stack_of(context, w->regs.sp))
			context = php_word(context - p->fiber_context + p->fiber_caller);
		if (!php_is_stack_of(context, w->regs.sp))
			return 0;
	}
	next = context == main ? 0 : php_word(context - p->fiber_context + p->fiber_caller);
	saved = php_word(next);
	if (!saved || (next != main && !php_is_stack_of(next, saved)) ||
	    env_read(words, sizeof(words), saved + p->saved_bx))
		return 0;
	w->cursor.words[PHP_FIBER] = next;
	(void)walk_enter(w, words[2], saved + p->saved_bx + 24, words[1], words[0]);
	return 0;
}

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

/* zend_execute() has run a file, and zend_generator_resume() a generator: is that still to come? */
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

/* The frames of the native frame in w->regs. */
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
		/* Compiled code writes its instruction back for calls of PHP only. */
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
