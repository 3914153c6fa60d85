/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * A part of walker.h: which of the newest contexts are of the native frame nearest to the leaf.
 *
 * The thread may have been interrupted while C code enters Perl or leaves it, or between two calls
 * of the code of a sort, of a regular expression or of a function as List::Util has (MULTICALL of
 * cop.h); these keep their context meanwhile. What PL_op is tells:
 *
 *   NULL                         the loop of ops has come to its end, or has returned
 *   on the C stack               call_sv() calls a sub, or has a method looked up
 *   pp_leavesub()'s              the sub may be left already
 *   the first op of the newest   its loop may not have begun
 *     context's code
 *   that of a caller             the code of the newest context was not called yet
 */
#pragma once

#include "agent/runtime/perl/walker_emit.h"

/* Of enum opcode, from OP_ENTERSUB on; the same from 5.26 to 5.44. */
enum { PERL_LEAVESUB = 1, PERL_LEAVESUBLV = 2, PERL_RETURN = 21 };

enum {
	PERL_CALLER_BYTES = 4096,   /* of call_sv()'s frame */
	PERL_NEXTSTATE_BYTES = 256, /* of pp_nextstate(), at most */
};

/* The pc in the frame that the one in w->regs has called. */
KILN_INLINE uint64_t perl_callee(struct kiln_walk *w)
{
	uint64_t *words = env_words(w);
	uint32_t i = w->at + w->n - 1;

	if (!words || !w->n)
		return 0;
	asm volatile("" : "+r"(i));
	return words[i & (KILN_RECORD_WORDS - 1)] & KILN_FRAME_PC_MASK;
}

/* What is known of the leaf. */
struct perl_leaf {
	uint64_t op;
	uint32_t in_loop; /* the native frame is the leaf, not a function of an op */
	uint32_t kind;	  /* of the newest context, or PERL_NO_CONTEXT */
	uint32_t begun;	  /* ... whose code has begun a statement */
	uint32_t called;  /* ... is a sub that C code has called, and has not begun */
	uint32_t between; /* it is that of C code that calls Perl again and again */
};

/* The contexts of the newest stack are of no native frame: C code is between two calls. */
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
 * Has the op at hand, which leaves a sub, left one that C code called? Its CV is taken out of its
 * context, then PL_curcop is its caller's again, at last the context is taken off. Until then a sub
 * without `return` has the op as its root.
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
	/* What was left there earlier has returned to another statement. */
	if (returns && w->scratch[PERL_CX_OLDCOP / 8] != w->cursor.words[PERL_COP])
		return 0;
	return !perl_context_word(w, perl_data(w)->sub_cv) && !w->scratch[PERL_CX_RETOP / 8];
}

/* Is the op at hand, which begins a statement, the first one of the code of the newest context, and
 * not run yet? Then the loop has called another function than the op's. */
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

/* As perl_align(), by an op that is one. */
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
 * Finds the first context that is of the native frame in w->regs, the first of the interpreter. 0:
 * the walk goes on with the context at hand; non-zero: it has none.
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
		/* call_sv() is younger than this loop. */
		if (leaf.called)
			perl_set(w, PERL_TWO);
		return 0;
	}
	if (leaf.op - w->regs.sp < PERL_CALLER_BYTES)
		return !leaf.called; /* it has made this loop */
	return perl_align_op(w, &leaf);
}
