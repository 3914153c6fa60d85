/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * A part of walker.h: what the walk keeps between two native frames, and the stacks of contexts.
 */
#pragma once

#include "agent/runtime/perl/walker_data.h"

/* What w->cursor holds. */
enum {
	PERL_BASE,    /* the interpreter's state and PERL_BEGUN; 0: not begun */
	PERL_STACK,   /* the struct stackinfo at hand */
	PERL_CONTEXT, /* its next context */
	PERL_COUNTS,  /* how many contexts are left in it, enum perl_flags, how many contexts and
		       * stacks were seen in this sample (24 bits), si_type of the stack */
	PERL_COP,     /* where the next frame is */
	PERL_ENV,     /* the newest JMPENV that is older than the native frame at hand */
};

enum { PERL_BEGUN = 1, PERL_TYPE_SHIFT = 56, PERL_ENVS = 8 };

enum perl_flags {
	PERL_LEFT = (1 << 23) - 1, /* how many contexts */
	PERL_NEWEST = 1 << 23,	   /* no frame was found */
	PERL_FIRST = 1 << 24,	   /* no context was looked at */
	PERL_OPEN = 1 << 25,	   /* contexts of this stack are of the native frame at hand */
	PERL_TWO = 1 << 26,	   /* the newest group has no native frame */
	PERL_PLAIN = 1 << 27,	   /* the last group was entered without a JMPENV */
	PERL_OVER = 1 << 28,
	PERL_DONE = 1 << 29, /* the group is done, unless the next context says no */
	PERL_CODE = 1 << 30, /* the stack is of C code that runs code which is no sub */
};
enum { PERL_NO_CONTEXT = 256 }; /* as the type of a context */

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

/* si_type of the stack at hand. */
KILN_INLINE uint32_t perl_stack_type(const struct kiln_walk *w)
{
	return (uint32_t)(w->cursor.words[PERL_COUNTS] >> PERL_TYPE_SHIFT);
}

KILN_INLINE uint64_t perl_base(const struct kiln_walk *w)
{
	return w->cursor.words[PERL_BASE] & ~(uint64_t)PERL_BEGUN;
}

/* There are no more frames. */
KILN_INLINE int perl_stop(struct kiln_walk *w, enum kiln_missing why)
{
	perl_set(w, PERL_OVER);
	if (why)
		walk_missing(w, why);
	return 1;
}

/* Is a stack of this si_type of C code that calls Perl again and again, by its oldest context? */
KILN_INLINE int perl_calls_again(uint32_t type)
{
	return type == PERL_SI_SORT || type == PERL_SI_MULTICALL;
}

/* TYPE is that of the oldest context of such a stack: is it for code that is no sub? */
KILN_INLINE int perl_runs_code(uint32_t type)
{
	uint32_t kind = type & PERL_CXT_MASK;

	return kind == PERL_CXT_NULL || (kind == PERL_CXT_SUB && (type & PERL_CXP_SUB_RE));
}

/* Makes STACK, a struct stackinfo, the one at hand. Non-zero: it is none. */
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

/* From the stack at hand to the one before it. Non-zero: there is none. */
KILN_INLINE int perl_leave_stack(struct kiln_walk *w)
{
	uint64_t stack = w->cursor.words[PERL_STACK];

	w->cursor.words[PERL_COUNTS] += PERL_SEEN_ONE;
	return perl_enter_stack(w->slot, perl_word(stack + PERL_SI_PREV));
}

/* The context at hand, into the scratch. Non-zero: there is none. */
KILN_INLINE int perl_read_context(struct kiln_walk *w)
{
	return !perl_left(w) ||
	       env_read(w->scratch, KILN_PERL_CONTEXT_BYTES, w->cursor.words[PERL_CONTEXT]);
}

/* Fields of a context in the scratch, by their offsets. */
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
