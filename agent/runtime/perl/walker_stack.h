/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * A part of walker.h: the walk's state between two native frames, and the stacks of contexts.
 */
#pragma once

#include "agent/runtime/perl/walker_data.h"

/* Words of w->cursor. */
enum {
	PERL_BASE,    /* address of the interpreter's state | PERL_BEGUN; 0: not begun */
	PERL_STACK,   /* the current struct stackinfo */
	PERL_CONTEXT, /* its next context */
	PERL_COUNTS,  /* from the low bits on: contexts left in the stack, enum perl_flags, contexts
		       * and stacks seen in this sample (24 bits), si_type of the stack */
	PERL_COP,     /* the COP of the next frame */
	PERL_ENV,     /* the newest JMPENV that is older than the current native frame */
};

enum { PERL_BEGUN = 1, PERL_TYPE_SHIFT = 56, PERL_ENVS = 8 };

enum perl_flags {
	PERL_LEFT = (1 << 23) - 1, /* mask: contexts left in the stack */
	PERL_NEWEST = 1 << 23,	   /* no frame was found yet */
	PERL_FIRST = 1 << 24,	   /* no context was read yet */
	PERL_OPEN = 1 << 25,	   /* contexts of this stack are of the current native frame */
	PERL_TWO = 1 << 26,	   /* the newest group has no native frame */
	PERL_PLAIN = 1 << 27,	   /* the last group was entered without a JMPENV */
	PERL_OVER = 1 << 28,
	PERL_DONE = 1 << 29, /* the group ends here, unless the next context belongs to it */
	PERL_CODE = 1 << 30, /* on this stack, C code runs code that is not a sub */
};
enum { PERL_NO_CONTEXT = 256 }; /* in place of a context's type: there is none */

#define PERL_SEEN_ONE  (1ULL << 32)
#define PERL_SEEN_MASK (0xffffffULL << 32)

KILN_INLINE const struct kiln_perl *perl_data(const struct kiln_walk *w)
{
	return (const struct kiln_perl *)w->runtime.data;
}

/* The word at ADDRESS; 0 when it cannot be read. */
KILN_INLINE uint64_t perl_word(uint64_t address)
{
	uint64_t v = 0;

	return env_read(&v, 8, address) ? 0 : v;
}

KILN_INLINE int perl_has(const struct kiln_walk *w, uint32_t flag)
{
	return (w->cursor.words[PERL_COUNTS] & flag) != 0;
}

KILN_INLINE void perl_set(struct kiln_walk *w, uint32_t flag)
{
	w->cursor.words[PERL_COUNTS] |= flag;
}

KILN_INLINE void perl_clear(struct kiln_walk *w, uint32_t flag)
{
	w->cursor.words[PERL_COUNTS] &= ~(uint64_t)flag;
}

KILN_INLINE uint32_t perl_left(const struct kiln_walk *w)
{
	return (uint32_t)w->cursor.words[PERL_COUNTS] & PERL_LEFT;
}

/* si_type of the current stack. */
KILN_INLINE uint32_t perl_stack_type(const struct kiln_walk *w)
{
	return (uint32_t)(w->cursor.words[PERL_COUNTS] >> PERL_TYPE_SHIFT);
}

KILN_INLINE uint64_t perl_base(const struct kiln_walk *w)
{
	return w->cursor.words[PERL_BASE] & ~(uint64_t)PERL_BEGUN;
}

/* Ends the walk of Perl frames. WHY: KILN_MISSING_NONE if the frames are complete. */
KILN_INLINE int perl_stop(struct kiln_walk *w, enum kiln_missing why)
{
	perl_set(w, PERL_OVER);
	if (why)
		walk_missing(w, why);
	return 1;
}

/* Is a stack of this si_type made by C code that calls Perl repeatedly, with the stack's oldest
 * context? */
KILN_INLINE int perl_calls_again(uint32_t type)
{
	return type == PERL_SI_SORT || type == PERL_SI_MULTICALL;
}

/* Is the oldest context of such a stack, of type TYPE, for code that is not a sub? */
KILN_INLINE int perl_runs_code(uint32_t type)
{
	uint32_t kind = type & PERL_CXT_MASK;

	return kind == PERL_CXT_NULL || (kind == PERL_CXT_SUB && (type & PERL_CXP_SUB_RE));
}

/* Makes STACK, a struct stackinfo, the current one. Non-zero: STACK is not valid. */
KILN_GLOBAL int perl_enter_stack(uint32_t slot, uint64_t stack)
{
	struct kiln_walk *w = env_walk(slot);
	const struct kiln_perl *p;
	uint64_t counts, type;
	int32_t last, max;

	if (!w)
		return -1;
	p = perl_data(w);
	if (!stack || env_read(w->scratch, PERL_SI_WORDS * 8, stack))
		return perl_stop(w, KILN_MISSING_READ);
	last = (int32_t)w->scratch[PERL_SI_CXIX / 8];
	max = (int32_t)(w->scratch[PERL_SI_CXIX / 8] >> 32);
	if (last < -1 || last > max || max > PERL_LEFT)
		return perl_stop(w, KILN_MISSING_BROKEN);
	type = w->scratch[5] >> (p->stackinfo_type & 4 ? 32 : 0) & 0xff;
	counts = w->cursor.words[PERL_COUNTS] & ~((0xffULL << PERL_TYPE_SHIFT) | PERL_LEFT);
	w->cursor.words[PERL_COUNTS] = counts | type << PERL_TYPE_SHIFT | (uint32_t)(last + 1);
	w->cursor.words[PERL_STACK] = stack;
	w->cursor.words[PERL_CONTEXT] =
	    w->scratch[PERL_SI_CXSTACK / 8] + (uint64_t)(uint32_t)last * p->context_size;
	perl_clear(w, PERL_OPEN | PERL_CODE);
	if (last < 0)
		return 0;
	perl_set(w, PERL_OPEN);
	if (perl_calls_again((uint32_t)type) &&
	    perl_runs_code((uint32_t)perl_word(w->scratch[PERL_SI_CXSTACK / 8])))
		perl_set(w, PERL_CODE);
	return 0;
}

/* Goes to the stack before the current one. Non-zero: there is none. */
KILN_INLINE int perl_leave_stack(struct kiln_walk *w)
{
	uint64_t stack = w->cursor.words[PERL_STACK];

	w->cursor.words[PERL_COUNTS] += PERL_SEEN_ONE;
	return perl_enter_stack(w->slot, perl_word(stack + PERL_SI_PREV));
}

/* Reads the current context into the scratch. Non-zero: there is none, or it cannot be read. */
KILN_INLINE int perl_read_context(struct kiln_walk *w)
{
	return !perl_left(w) ||
	       env_read(w->scratch, KILN_PERL_CONTEXT_BYTES, w->cursor.words[PERL_CONTEXT]);
}

/* The word at OFFSET of the context in the scratch. */
KILN_INLINE uint64_t perl_context_word(const struct kiln_walk *w, uint32_t offset)
{
	uint32_t i = offset >> 3 & 15;

	asm volatile("" : "+r"(i));
	return w->scratch[i & 15];
}

KILN_INLINE uint32_t perl_type(const struct kiln_walk *w)
{
	return (uint32_t)w->scratch[0] & 0xff;
}
