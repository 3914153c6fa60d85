/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The walk of Perl frames (5.26 to 5.44), on top of bpf/unwind.h; for BPF and for the host.
 *
 * Perl_runops_standard() runs one op after the other. Calls from Perl to Perl stay within it; each
 * time that C code calls Perl, a new native frame of it begins. Everything that was entered and not
 * left lies in stacks of contexts (PERL_CONTEXT), one stack for each struct stackinfo, newest
 * first: subs, formats, evals, files, and blocks and loops between them. A context that C code
 * entered has no op to return to, so it ends the group of contexts of one native frame. The place
 * from which a context was entered is its blk_oldcop; the place in the newest context is PL_curcop.
 * docs/unwinding/perl.md has the sources of all this.
 *
 * The newest contexts may not belong to the native frame nearest to the leaf: that frame may be
 * entering or leaving Perl, and a sort or a regular expression keeps its context between two calls
 * of its code. PL_op tells these cases apart. eval {} in code that C called makes one more native
 * frame without a context that C entered (docatch() of pp_ctl.c); the JMPENV on the C stack shows
 * it.
 *
 * All memory that is read is foreign: every loop has a constant bound.
 */
#pragma once

#include "agent/runtime/perl/walker_leaf.h"

/* ---- frames ------------------------------------------------------------------------------------
 */

/*
 * The newest sub was called from the current statement. Is that because the sub has not begun a
 * statement of its own yet, and not because it has called itself? START: the sub's first op;
 * OLDMARK: the oldmark of its context.
 */
KILN_INLINE int perl_is_entered(const struct kiln_walk *w, uint64_t start, uint32_t oldmark)
{
	const struct kiln_perl *p = perl_data(w);
	uint64_t op = perl_word(perl_base(w) + p->at.op), marks, mark;

	if (op == start)
		return 1;
	if ((perl_word(op + PERL_OP_TYPE) & PERL_OP_TYPE_MASK) != p->entersub)
		return 0;
	/* entersub pops the mark of the arguments before it makes the context. */
	marks = perl_word(perl_base(w) + p->at.markstack);
	mark = perl_word(perl_base(w) + p->at.markstack_ptr);
	return (uint32_t)((mark - marks) / 4) == oldmark;
}

/*
 * Reads the sub or format CV, which was called from OLDCOP with OLDMARK marks, and puts the
 * arguments of perl_emit() into w->value and w->scratch[0]. Returns 0, or an enum kiln_missing if
 * CV is not a sub or format.
 */
KILN_GLOBAL int perl_sub(uint32_t slot, uint64_t cv, uint64_t oldcop, uint32_t oldmark)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t stash, start, name;
	uint32_t flags, type;

	if (!w)
		return -1;
	if (!cv || env_read(w->scratch, 16, cv))
		return KILN_MISSING_READ;
	type = (uint32_t)(w->scratch[1] >> 32) & PERL_SV_TYPE_MASK;
	if (type != PERL_SVT_PVCV && type != PERL_SVT_PVFM)
		return KILN_MISSING_BROKEN;
	if (env_read(w->scratch, 64, w->scratch[0] + PERL_CV_STASH))
		return KILN_MISSING_READ;
	stash = w->scratch[0];
	start = w->scratch[(PERL_CV_START - PERL_CV_STASH) / 8];
	name = w->scratch[(PERL_CV_GV - PERL_CV_STASH) / 8];
	flags = (uint32_t)(w->scratch[(PERL_CV_FLAGS - PERL_CV_STASH) / 8] >> 32);
	if (!name || (flags & PERL_CVF_ISXSUB))
		return KILN_MISSING_BROKEN;
	if (oldcop == w->cursor.words[PERL_COP] && perl_has(w, PERL_NEWEST) &&
	    perl_is_entered(w, start, oldmark))
		w->cursor.words[PERL_COP] = start;
	w->scratch[0] = start;
	if (!(flags & PERL_CVF_NAMED))
		w->value = (name & ~7ULL) | (type == PERL_SVT_PVFM   ? KILN_PERL_FORMAT
					     : flags & PERL_CVF_ANON ? KILN_PERL_ANON
								     : KILN_PERL_GV);
	else if ((flags & PERL_CVF_LEXICAL) || !stash)
		w->value = (name & ~7ULL) | KILN_PERL_HEK;
	else
		w->value = (cv & ~7ULL) | KILN_PERL_CV;
	return 0;
}

/* ---- groups ------------------------------------------------------------------------------------
 */

/*
 * A context that has no op to return to (perl_set(PERL_DONE)) was entered by C code: the group ends
 * with it. Or it was called by the last op of code that C code runs and that is not a sub: the
 * block of a sort, code in a regular expression, a defer block. TYPE: the type of the context
 * before it, or PERL_NO_CONTEXT. Does that context belong to the same group?
 */
KILN_INLINE int perl_goes_on(const struct kiln_walk *w, uint32_t type)
{
	uint32_t kind = type & PERL_CXT_MASK;

	if (type == PERL_NO_CONTEXT)
		return perl_has(w, PERL_OPEN) && perl_has(w, PERL_CODE);
	if (kind == PERL_CXT_DEFER)
		return 1;
	return kind == PERL_CXT_SUB && (type & PERL_CXP_SUB_RE);
}

/* Ends the group. PLAIN: it was entered without a JMPENV. Returns 0 if the next group is of the
 * same native frame, else 1. */
KILN_INLINE int perl_end_group(struct kiln_walk *w, int plain)
{
	perl_clear(w, PERL_OPEN | PERL_PLAIN | PERL_DONE);
	if (plain)
		perl_set(w, PERL_PLAIN);
	if (!perl_has(w, PERL_TWO))
		return 1;
	perl_clear(w, PERL_TWO);
	return 0;
}

/* Called when the current stack has no more contexts. Returns the same as perl_context(). */
KILN_INLINE int perl_end_stack(struct kiln_walk *w)
{
	uint32_t type = perl_stack_type(w);
	/* Does the stack have contexts, and does C code run code on it that has no context of its
	 * own: the block of a sort, code in a regular expression? On other stacks, the C code that
	 * made the stack may not have called Perl yet. */
	int open = perl_has(w, PERL_OPEN) && perl_calls_again(type);

	if (type == PERL_SI_MAIN) {
		w->value = KILN_PERL_MAIN << 3 | KILN_PERL_CODE;
		(void)perl_emit(w->slot, 0);
		return perl_stop(w, KILN_MISSING_NONE);
	}
	if (perl_leave_stack(w))
		return 1;
	return open ? perl_end_group(w, 1) : 0;
}

/*
 * Ends the group, unless the current context, of type TYPE, belongs to it too: then it returns a
 * negative number. Otherwise returns the same as perl_context().
 */
KILN_INLINE int perl_is_done(struct kiln_walk *w, uint32_t type)
{
	uint32_t kind = type & PERL_CXT_MASK;
	int plain = 1;

	if (perl_goes_on(w, type))
		return -1;
	if (type != PERL_NO_CONTEXT && kind != PERL_CXT_SUB && kind != PERL_CXT_FORMAT &&
	    kind != PERL_CXT_EVAL)
		return -1;
	/* If C code called the sub and catches its exceptions (G_EVAL), the context before it is an
	 * eval without an op to return to (create_eval_scope() of pp_ctl.c). */
	if (kind == PERL_CXT_EVAL && (type & PERL_CXP_EVALBLOCK) && type != PERL_NO_CONTEXT)
		plain = w->scratch[PERL_CX_RETOP / 8] != 0;
	return perl_end_group(w, plain);
}

/* Emits the frame of the context in the scratch. Non-zero: the context has no frame. */
KILN_INLINE int perl_frame(struct kiln_walk *w)
{
	const struct kiln_perl *p = perl_data(w);
	uint32_t type = perl_type(w), kind = type & PERL_CXT_MASK, oldmark, code;
	uint64_t oldcop = w->scratch[PERL_CX_OLDCOP / 8], cv;
	int missing;

	if (kind == PERL_CXT_EVAL) {
		if (type & (PERL_CXP_EVALBLOCK | PERL_CXP_TRY))
			return -1;
		code = type & PERL_CXP_REAL ? KILN_PERL_EVAL : KILN_PERL_REQUIRE;
		w->value = code << 3 | KILN_PERL_CODE;
		/* Emit it unless it has not begun a statement: then its place is not known. */
		if (oldcop != w->cursor.words[PERL_COP] || !perl_has(w, PERL_NEWEST))
			(void)perl_emit(w->slot, 0);
		return 0;
	}
	if ((kind != PERL_CXT_SUB || (type & PERL_CXP_SUB_RE_FAKE)) && kind != PERL_CXT_FORMAT)
		return -1;
	oldmark = (uint32_t)(perl_context_word(w, p->oldmark) >> (p->oldmark & 4 ? 32 : 0));
	cv = perl_context_word(w, p->sub_cv);
	missing = perl_sub(w->slot, cv, oldcop, oldmark);
	if (!missing) {
		(void)perl_emit(w->slot, w->scratch[0]);
		return 0;
	}
	/* The newest context may be half-written. */
	if (perl_has(w, PERL_FIRST))
		return -1;
	walk_missing(w, (enum kiln_missing)missing);
	return 0;
}

/*
 * Emits the frame of the current context, if it has one, and goes on to the context before. Returns
 * 0 if that context is, or may be, of the same native frame; 1 if it is not, or there is none.
 */
KILN_GLOBAL int perl_context(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t oldcop, retop;
	uint32_t type;
	int r, has_frame;

	if (!w || perl_has(w, PERL_OVER) || w->full)
		return 1;
	if ((w->cursor.words[PERL_COUNTS] & PERL_SEEN_MASK) >=
	    KILN_PERL_CONTEXTS_MAX * PERL_SEEN_ONE)
		return perl_stop(w, KILN_MISSING_BUDGET);
	type = PERL_NO_CONTEXT;
	if (perl_left(w)) {
		if (perl_read_context(w))
			return perl_stop(w, KILN_MISSING_READ);
		type = perl_type(w);
	}
	if (perl_has(w, PERL_DONE)) {
		r = perl_is_done(w, type);
		if (r >= 0)
			return r;
	}
	if (type == PERL_NO_CONTEXT)
		return perl_end_stack(w);
	oldcop = w->scratch[PERL_CX_OLDCOP / 8];
	retop = w->scratch[PERL_CX_RETOP / 8];
	has_frame = !perl_frame(w);
	perl_clear(w, PERL_FIRST);
	w->cursor.words[PERL_COUNTS] += PERL_SEEN_ONE - 1;
	w->cursor.words[PERL_CONTEXT] -= perl_data(w)->context_size;
	if ((type & PERL_CXT_MASK) == PERL_CXT_DEFER)
		return perl_end_group(w, !perl_data(w)->defer_catches);
	if (!has_frame)
		return 0;
	perl_clear(w, PERL_NEWEST);
	/* PL_compiling as the caller: the caller's code was being compiled. By now PL_compiling may
	 * be about another file, so the place stays that of the statement in the BEGIN block, which
	 * is where the caller's code has the block. */
	if (oldcop != perl_base(w) + perl_data(w)->at.compiling)
		w->cursor.words[PERL_COP] = oldcop;
	if (!retop)
		perl_set(w, PERL_DONE);
	return 0;
}

/* ---- native frames -----------------------------------------------------------------------------
 */

/* The address of the interpreter's state, to which the offsets of its variables are added. 0: not
 * known, or the native frame has been removed already. */
KILN_INLINE uint64_t perl_find_base(struct kiln_walk *w)
{
	const struct kiln_perl *p = perl_data(w);
	const uint32_t di = 5;
	uint8_t insn = 0;

	if (w->exact && w->leaf_valid) {
		/* At its `ret`. */
		if (!env_read(&insn, 1, w->regs.pc) && insn == 0xc3)
			return 0;
		if (w->regs.pc - p->runops < p->state_from)
			return w->leaf[di];
	}
	return w->regs.extra;
}

/* Passes the JMPENVs that are younger than the current native frame. Returns their number. */
KILN_INLINE int perl_pass_envs(struct kiln_walk *w)
{
	uint64_t env = w->cursor.words[PERL_ENV], next;
	int n = 0;

	for (int i = 0; i < PERL_ENVS && env && env < w->regs.sp; i++) {
		next = perl_word(env + PERL_JMPENV_PREV);
		/* The oldest JMPENV is not on the stack. */
		env = next > env ? next : 0;
		n++;
	}
	w->cursor.words[PERL_ENV] = env;
	return n;
}

/* Begins with the first native frame of the interpreter at BASE. Returns as perl_align(). */
KILN_INLINE int perl_begin(struct kiln_walk *w, uint64_t base)
{
	const struct kiln_perl *p = perl_data(w);

	/* The count of contexts and stacks is of the whole sample, and is kept: another native
	 * frame may be of another interpreter. */
	w->cursor.words[PERL_COUNTS] =
	    (w->cursor.words[PERL_COUNTS] & PERL_SEEN_MASK) | PERL_NEWEST | PERL_FIRST;
	w->cursor.words[PERL_BASE] = base | PERL_BEGUN;
	w->cursor.words[PERL_COP] = perl_word(base + p->at.curcop);
	w->cursor.words[PERL_ENV] = perl_word(base + p->at.top_env);
	if (perl_enter_stack(w->slot, perl_word(base + p->at.curstackinfo)))
		return 1;
	(void)perl_pass_envs(w);
	return perl_align(w->slot);
}

/* Emits the frames of the native frame in w->regs. */
KILN_GLOBAL int perl_walk(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	const struct kiln_perl *p;
	uint64_t base = 0;

	if (!w)
		return 0;
	p = perl_data(w);
	if (p->kind == KILN_PERL_STATE_RBX) {
		base = perl_find_base(w);
		if (!base || (base & 7))
			return 0;
	}
	if (w->cursor.words[PERL_BASE] != (base | PERL_BEGUN)) {
		if (perl_begin(w, base))
			return 0;
	} else if (perl_pass_envs(w) && perl_has(w, PERL_PLAIN)) {
		/* docatch(): the contexts of the last native frame are also those of this one, and
		 * have been emitted. */
		return 0;
	}
	for (int i = 0; i < KILN_PERL_CONTEXTS_MAX + KILN_MAX_USER_FRAMES; i++) {
		if (perl_context(slot))
			break;
	}
	return 0;
}
