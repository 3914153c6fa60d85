/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * A part of walker.h: finds the newest context that belongs to the native frame nearest to the
 * leaf.
 *
 * The thread may have been interrupted while C code enters or leaves Perl, or between two calls of
 * the code of a sort, of a regular expression or of a function like those of List::Util (MULTICALL
 * of cop.h); these keep their context between the calls. PL_op tells the cases apart:
 *
 *   NULL                         the loop of ops has come to its end, or has returned
 *   on the C stack               call_sv() calls a sub, or looks up a method
 *   pp_leavesub()'s              the sub may be left already
 *   the first op of the newest   its loop may not have begun
 *     context's code
 *   that of a caller             the code of the newest context was not called yet
 */
#pragma once

#include "agent/runtime/perl/walker_emit.h"

/* Numbers of enum opcode minus OP_ENTERSUB; the same from 5.26 to 5.44. */
enum { PERL_LEAVESUB = 1, PERL_LEAVESUBLV = 2, PERL_RETURN = 21 };

enum {
	PERL_CALLER_BYTES = 4096,   /* bytes above the loop's frame in which call_sv()'s frame is */
	PERL_NEXTSTATE_BYTES = 256, /* largest size of pp_nextstate()'s code */
};

/* The pc of the frame that the frame in w->regs has called. */
KILN_INLINE uint64_t perl_callee(struct kiln_walk *w)
{
	uint64_t *words = env_words(w);
	uint32_t i = w->at + w->n - 1;

	if (!words || !w->n)
		return 0;
	asm volatile("" : "+r"(i));
	return words[i & (KILN_RECORD_WORDS - 1)] & KILN_FRAME_PC_MASK;
}

/* The state of the interpreter at the leaf. */
struct perl_leaf {
	uint64_t op;	  /* PL_op */
	uint32_t in_loop; /* the leaf is in the loop itself, not in the function of an op */
	uint32_t kind;	  /* kind of the newest context, or PERL_NO_CONTEXT */
	uint32_t begun;	  /* the code of the newest context has begun a statement */
	uint32_t called; /* the newest context is a sub that C code called and that has not begun */
	uint32_t between; /* the newest context is of C code that calls Perl repeatedly */
};

/* Skips the newest stack: its contexts belong to no native frame, because C code is between two
 * calls. */
KILN_INLINE int perl_skip_stack(struct kiln_walk *w)
{
	const struct kiln_perl *p = perl_data(w);
	uint64_t oldest =
	    w->cursor.words[PERL_CONTEXT] - (uint64_t)(perl_left(w) - 1) * p->context_size;

	w->cursor.words[PERL_COP] = perl_word(oldest + PERL_CX_OLDCOP);
	perl_clear(w, PERL_NEWEST | PERL_FIRST);
	return perl_leave_stack(w);
}

/* A word of the body of the CV of the context in the scratch. */
KILN_INLINE uint64_t perl_cv_word(const struct kiln_walk *w, uint32_t offset)
{
	uint64_t cv = perl_context_word(w, perl_data(w)->sub_cv);

	return cv ? perl_word(perl_word(cv + PERL_SV_ANY) + offset) : 0;
}

/*
 * Has the current op, which leaves a sub, already left a sub that C code called? RETURNS: the op is
 * a `return`. The op first clears the CV in the sub's context, then sets PL_curcop back to the
 * caller's, at last pops the context. Before that, the op of a sub without `return` is the root of
 * its CV.
 */
KILN_INLINE int perl_has_left(struct kiln_walk *w, const struct perl_leaf *leaf, int returns)
{
	uint64_t at = w->cursor.words[PERL_CONTEXT], op = leaf->op;

	if (leaf->kind == PERL_CXT_SUB && perl_context_word(w, perl_data(w)->sub_cv)) {
		if (!returns && perl_cv_word(w, PERL_CV_ROOT) == op)
			return 0;
		at += perl_data(w)->context_size;
	} else if (leaf->kind != PERL_CXT_SUB) {
		at += perl_data(w)->context_size;
	}
	if (leaf->kind == PERL_CXT_DEFER || perl_has(w, PERL_CODE) ||
	    env_read(w->scratch, KILN_PERL_CONTEXT_BYTES, at))
		return 0;
	/* A context that was popped there earlier had another statement as its caller. */
	if (returns && w->scratch[PERL_CX_OLDCOP / 8] != w->cursor.words[PERL_COP])
		return 0;
	return !perl_context_word(w, perl_data(w)->sub_cv) && !w->scratch[PERL_CX_RETOP / 8];
}

/* Is the current op, which begins a statement, the first op of the newest context's code, and has
 * it not run yet? If so, the loop has called another function than that of the op. */
KILN_INLINE int perl_is_about_to(struct kiln_walk *w, const struct perl_leaf *leaf)
{
	const struct kiln_perl *p = perl_data(w);
	uint64_t first = 0;

	if (leaf->kind == PERL_CXT_SUB)
		first = perl_cv_word(w, PERL_CV_START);
	else if (leaf->between && leaf->kind == PERL_CXT_NULL)
		first = perl_word(perl_base(w) + p->at.sortcop);
	return first == leaf->op &&
	       perl_callee(w) - perl_word(first + PERL_OP_PPADDR) >= PERL_NEXTSTATE_BYTES;
}

/* perl_align() for a PL_op that points to a real op. */
KILN_INLINE int perl_align_op(struct kiln_walk *w, const struct perl_leaf *leaf)
{
	const struct kiln_perl *p = perl_data(w);
	uint32_t type = (uint32_t)perl_word(leaf->op + PERL_OP_TYPE) & PERL_OP_TYPE_MASK;
	uint32_t from_entersub = type - p->entersub;
	int caller;

	if (from_entersub == PERL_LEAVESUB || from_entersub == PERL_LEAVESUBLV ||
	    from_entersub == PERL_RETURN)
		return perl_has_left(w, leaf, from_entersub == PERL_RETURN);
	if (leaf->in_loop)
		return 0;
	if (type == p->nextstate) {
		if ((!leaf->called && !leaf->between) || !perl_is_about_to(w, leaf))
			return 0;
		if (leaf->between)
			return perl_skip_stack(w);
		perl_set(w, PERL_TWO);
		return 0;
	}
	caller = perl_stack_type(w) == PERL_SI_SORT ? type == p->sort : !leaf->begun;
	return leaf->between && caller ? perl_skip_stack(w) : 0;
}

/*
 * Finds the first context of the native frame in w->regs, which is the interpreter's first native
 * frame in this walk. Returns 0 if the current context is the one; non-zero if the native frame has
 * no contexts.
 */
KILN_GLOBAL int perl_align(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	struct perl_leaf leaf = {.kind = PERL_NO_CONTEXT, .begun = 1};
	uint64_t low;

	if (!w)
		return 1;
	leaf.op = perl_word(perl_base(w) + perl_data(w)->at.op);
	leaf.in_loop = w->exact && w->leaf_valid;
	leaf.between = perl_calls_again(perl_stack_type(w)) && perl_left(w) == 1;
	if (!perl_read_context(w)) {
		leaf.kind = perl_type(w) & PERL_CXT_MASK;
		leaf.begun = w->scratch[PERL_CX_OLDCOP / 8] != w->cursor.words[PERL_COP];
		leaf.called = !leaf.begun && leaf.kind == PERL_CXT_SUB &&
			      !w->scratch[PERL_CX_RETOP / 8] && perl_cv_word(w, PERL_CV_START);
	}
	if (!leaf.op && leaf.in_loop)
		return !leaf.between && leaf.kind != PERL_CXT_DEFER;
	if (!leaf.op)
		return leaf.between ? perl_skip_stack(w) : 0;
	low = w->leaf[ARCH_REG_SP] - KILN_RED_ZONE;
	if (!leaf.in_loop && leaf.op >= low && leaf.op < w->regs.sp) {
		/* call_sv() was called by code that this loop runs. */
		if (leaf.called)
			perl_set(w, PERL_TWO);
		return 0;
	}
	if (leaf.op - w->regs.sp < PERL_CALLER_BYTES)
		return !leaf.called; /* call_sv() has called this loop */
	return perl_align_op(w, &leaf);
}
