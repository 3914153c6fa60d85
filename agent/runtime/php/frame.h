/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * One PHP frame: what it is, and where it is, as two words (walker_data.h). A part of walker.h,
 * with what all of that shares.
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
	/* zend_function.fn_flags */
	PHP_ACC_IMMUTABLE = 1 << 7,    /* in opcache's memory */
	PHP_ACC_TRAMPOLINE = 1 << 18,  /* ZEND_ACC_CALL_VIA_TRAMPOLINE */
	PHP_STRING_PERMANENT = 1 << 8, /* zend_string.gc.u.type_info: IS_STR_PERMANENT */
	/* zend_op */
	PHP_OP_BYTES = 32,
	PHP_OP_LINE = 24,
	/* In words of the scratch, behind the zend_execute_data. */
	PHP_AT_FUNC = 8,    /* type and flags, name, scope */
	PHP_AT_PLACE = 11,  /* file, line */
	PHP_AT_STRING = 13, /* its flags, its hash */
	PHP_AT_HASH = 14,
	PHP_AT_LINE = 15,
	PHP_STACK_WORDS = 16,	       /* of the native stack that are looked at, in the scratch */
	PHP_REGEX_FRAME_MAX = 1 << 17, /* bytes; what it needs to try again is elsewhere */
	PHP_GENERATORS = 2,	       /* what php_frame() returns for them */
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
