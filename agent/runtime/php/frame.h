/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Emits one PHP frame as two words (walker_data.h): its function and its place. A part of walker.h;
 * also has the constants and helpers that all parts of the walker share.
 */
#pragma once

#include "agent/runtime/php/walker_data.h"

enum {
	/* zend_execute_data */
	PHP_FRAME_OPLINE = 0, /* offsets in words */
	PHP_FRAME_FUNC = 3,
	PHP_FRAME_THIS = 4,
	PHP_FRAME_INFO = 5,
	PHP_FRAME_PREVIOUS = 6,
	PHP_FRAME_WORDS = 7,
	/* Bits of zend_execute_data.This.u1.type_info (zend_compile.h, ZEND_CALL_*) */
	PHP_INFO_CODE = 1 << 16,
	PHP_INFO_TOP = 1 << 17,
	PHP_INFO_CLOSURE = 1 << 22,
	PHP_INFO_FAKE_CLOSURE = 1 << 23,
	PHP_INFO_GENERATOR = 1 << 24,
	/* zend_function.type */
	PHP_TYPE_INTERNAL = 1,
	PHP_TYPE_USER = 2,
	PHP_TYPE_EVAL = 4,
	/* zend_function.fn_flags */
	PHP_ACC_IMMUTABLE = 1 << 7,    /* in opcache's memory */
	PHP_ACC_TRAMPOLINE = 1 << 18,  /* ZEND_ACC_CALL_VIA_TRAMPOLINE */
	PHP_STRING_PERMANENT = 1 << 8, /* zend_string.gc.u.type_info: IS_STR_PERMANENT */
	/* zend_op */
	PHP_OP_BYTES = 32,
	PHP_OP_LINE = 24,
	/* Indices of words in the scratch, behind the zend_execute_data. */
	PHP_AT_FUNC = 8,    /* of the zend_function: type and flags, name, scope */
	PHP_AT_PLACE = 11,  /* file, line */
	PHP_AT_STRING = 13, /* of the file's name: flags, hash */
	PHP_AT_HASH = 14,
	PHP_AT_LINE = 15,
	PHP_STACK_WORDS = 16, /* words of the native stack that are copied to the scratch */
	PHP_REGEX_FRAME_MAX = 1 << 17, /* bytes; backtracking data is not in the frame */
	PHP_GENERATORS = 2,	       /* result of php_frame() for the frame of generators */
	PHP_NO_OPLINE = 1,	       /* in place of an address: the line is not known */
	PHP_CONTEXT_STACK = 32,	       /* zend_fiber_context.stack; its handle is its first word */
	PHP_CANARY_STEPS = 48, /* words above the stack pointer that compiled code may have used */
};

/* Words of w->cursor. */
enum {
	PHP_NEXT,   /* the next frame; 0: end of the chain */
	PHP_OPLINE, /* the next frame's instruction, if the frame's own opline is not right; or 0 */
	PHP_STATE,  /* see below */
	PHP_TORTOISE, /* a frame seen earlier, to find cycles of the chain */
	PHP_LAST,     /* the frame that was emitted last */
	PHP_FIBER,    /* context of the fiber whose native stack is walked; 0: not known yet */
};

/* PHP_STATE: the number of frames read in the low half, and: */
#define PHP_STARTED	    (1ULL << 32)
#define PHP_RESUMED	    (1ULL << 33) /* the last group ended with a generator's frame */
#define PHP_FILES	    (1ULL << 40) /* files shown less native frames of zend_execute(), + 128 */
#define PHP_FILES_OF(state) ((int)((state) >> 40 & 255) - 128)

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

/* Counts FRAME. Non-zero: the chain has a cycle, or is too long. */
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

/* Reads the line of the instruction at OPLINE into the scratch; 0 if it is not known. Non-zero: the
 * instruction cannot be read. */
KILN_INLINE int php_read_line(struct kiln_walk *w, uint64_t opline)
{
	const struct kiln_php *p = php_data(w);

	w->scratch[PHP_AT_LINE] = 0;
	if (!opline || opline == PHP_NO_OPLINE)
		return 0;
	/* While an exception is thrown, the frame's opline points into exception_op, and its own
	 * instruction is in opline_before_exception. */
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
 * Sets the place in the scratch to the file and line of the caller, the frame PREVIOUS. Non-zero:
 * the caller is not code with a file.
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

/* Emits the frame of code that is shown by its file: it has no zend_function that lasts. Returns
 * the same as php_emit(). */
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
	if (!file || env_read(&w->scratch[PHP_AT_STRING], 16, file))
		return php_stop(w, KILN_MISSING_READ);
	rest = php_string_cookie(w->scratch[PHP_AT_HASH], PHP_LONG_COOKIE_BITS);
	if (kind == PHP_CLOSURE || kind == PHP_EVAL)
		rest = PHP_REST(start, php_string_cookie(w->scratch[PHP_AT_HASH], PHP_COOKIE_BITS));
	if (!(w->scratch[PHP_AT_STRING] >> 32 & PHP_STRING_PERMANENT))
		walk_hurry(w, file, rest);
	return walk_emit(w, kind, file,
			 PHP_PLACE(php_capped(w->scratch[PHP_AT_LINE], PHP_LINE_MAX), rest));
}

/* Emits the frame of a function whose zend_function is a copy. Returns the same as php_emit(). */
KILN_INLINE int php_emit_borrowed(struct kiln_walk *w, uint64_t name, uint64_t scope)
{
	uint64_t cookie = php_string_cookie(w->scratch[PHP_AT_HASH], PHP_BORROWED_COOKIE_BITS);
	uint64_t line = php_capped(w->scratch[PHP_AT_LINE], PHP_BORROWED_LINE_MAX);

	return walk_emit(w, PHP_BORROWED, PHP_BORROWED_WORD(name, cookie),
			 PHP_BORROWED_WORD(scope, line));
}

/* Emits the frame whose zend_execute_data is in the scratch. Non-zero: the walk of PHP ends. */
KILN_GLOBAL int php_emit(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t func, name, opline;
	uint32_t type, info, cookie;

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
		return 0; /* the frame with which a fiber begins; the program has not called it */
	}
	/* The trampoline that calls __call() for a missing method; its name is temporary. */
	if (w->scratch[PHP_AT_FUNC] >> 32 & PHP_ACC_TRAMPOLINE)
		return 0;
	w->scratch[PHP_AT_HASH] = 0;
	/* The memory of a freed function may be unchanged while that of its name has been reused:
	 * so the cookie covers the name's hash. */
	if ((type != PHP_TYPE_INTERNAL || info & PHP_INFO_FAKE_CLOSURE) &&
	    env_read(&w->scratch[PHP_AT_HASH], 8, name + 8))
		return php_stop(w, KILN_MISSING_READ);
	cookie =
	    php_function_cookie(type, name, w->scratch[PHP_AT_HASH], w->scratch[PHP_AT_FUNC + 2]);
	if (type != PHP_TYPE_INTERNAL && !(w->scratch[PHP_AT_FUNC] >> 32 & PHP_ACC_IMMUTABLE))
		walk_hurry(w, func, cookie);
	if (info & PHP_INFO_FAKE_CLOSURE)
		return php_emit_borrowed(w, name, w->scratch[PHP_AT_FUNC + 2]);
	return walk_emit(
	    w, PHP_FUNCTION, func,
	    PHP_FUNCTION_WORD(php_capped(w->scratch[PHP_AT_LINE], PHP_LINE_MAX), cookie));
}
