/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The walk of Perl frames (5.26 to 5.44), on top of bpf/unwind.h; for BPF and for the host.
 *
 * Perl_runops_standard() runs one op after the other. Calls from Perl to Perl stay within it; each
 * time that C code calls Perl, a new native frame of it begins. What is under way lies in stacks
 * of contexts (PERL_CONTEXT), one stack for each struct stackinfo, newest first: subs, formats,
 * evals, files, and blocks and loops between them. A context that C code entered has no op to
 * return to, so it ends the group of contexts of one native frame. Where a context was entered
 * from is its blk_oldcop; where the newest one is, PL_curcop. docs/unwinding/perl.md has the
 * sources of all this.
 *
 * The newest contexts need not be those of the native frame nearest to the leaf: that may be on its
 * way in or out, and a sort or a regular expression keeps its context between two calls of its
 * code. PL_op tells these apart. eval {} in code that C called makes one more native frame without
 * a context that C entered (docatch() of pp_ctl.c); it is told by the JMPENV on the C stack.
 *
 * All that is read is foreign: every loop has a constant bound.
 */
#pragma once

#include "agent/runtime/perl/walker_leaf.h"

/* ---- frames ------------------------------------------------------------------------------------
 */

/*
 * The statement at hand is that which the newest sub was called from. Has the sub not begun one of
 * its own yet (START is its first), as opposed to having called itself?
 */
KILN_INLINE int perl_is_entered(const struct kiln_walk *w, uint64_t start, uint32_t oldmark)
{
	const struct kiln_perl *p = perl_data(w);
	uint64_t op = perl_word(perl_base(w) + p->at.op), marks, mark;

	if (op == start)
		return 1;
	if ((perl_word(op + PERL_OP_TYPE) & PERL_OP_TYPE_MASK) != p->entersub)
		return 0;
	/* Its arguments' mark is taken before its context is made. */
	marks = perl_word(perl_base(w) + p->at.markstack);
	mark = perl_word(perl_base(w) + p->at.markstack_ptr);
	return (uint32_t)((mark - marks) / 4) == oldmark;
}

/*
 * The sub or format CV, which was called from OLDCOP with OLDMARK marks: into w->value and
 * w->scratch[0], as perl_emit() wants them. Non-zero, an enum kiln_missing: it is none.
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
 * A context that has no op to return to (perl_set(PERL_DONE)) was entered by C code, and the group
 * ends with it; or it was called by the last op of code that is no sub, which C code runs: the
 * block of a sort, code in a regular expression, a defer block. TYPE is that of the context before
 * it, or PERL_NO_CONTEXT. Does the group go on with that?
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

/* The group ends here. 0: another one is of the same native frame. */
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

/* The stack at hand has no more contexts. As perl_context(). */
KILN_INLINE int perl_end_stack(struct kiln_walk *w)
{
	uint32_t type = perl_stack_type(w);
	/* Code that has no context of its own: the block of a sort, code in a regular expression. C
	 * code that has made another stack may not have called Perl yet. */
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
 * The group is done, unless the context at hand, of TYPE, is of it too. As perl_context(), but
 * negative: it is.
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
	/* Was the sub called by C code that catches what it throws (G_EVAL)? Then the context
	 * before it is an eval without an op to return to (create_eval_scope() of pp_ctl.c). */
	if (kind == PERL_CXT_EVAL && (type & PERL_CXP_EVALBLOCK) && type != PERL_NO_CONTEXT)
		plain = w->scratch[PERL_CX_RETOP / 8] != 0;
	return perl_end_group(w, plain);
}

/* Emits the frame of the context in the scratch. Non-zero: it stands for none. */
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
		/* Not begun: its place is not known. */
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
 * Looks at the context at hand: emits its frame and goes on to the one before. 0: that is of the
 * same native frame, or may be; 1: it is not, or there is none.
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
	/* While another file is compiled PL_compiling is of that: the place of what compiled it is
	 * that of the statement which did, and that is where the BEGIN block is. */
	if (oldcop != perl_base(w) + perl_data(w)->at.compiling)
		w->cursor.words[PERL_COP] = oldcop;
	if (!retop)
		perl_set(w, PERL_DONE);
	return 0;
}

/* ---- native frames -----------------------------------------------------------------------------
 */

/* Where the interpreter's state is; what is added to the offsets of its variables. 0: not known,
 * or the native frame is not there any more. */
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

/* Passes the JMPENVs of what is younger than the native frame at hand. How many there were. */
KILN_INLINE int perl_pass_envs(struct kiln_walk *w)
{
	uint64_t env = w->cursor.words[PERL_ENV], next;
	int n = 0;

	for (int i = 0; i < PERL_ENVS && env && env < w->regs.sp; i++) {
		next = perl_word(env + PERL_JMPENV_PREV);
		/* The first of all is not on the stack. */
		env = next > env ? next : 0;
		n++;
	}
	w->cursor.words[PERL_ENV] = env;
	return n;
}

/* The first native frame of BASE's interpreter. As perl_align(). */
KILN_INLINE int perl_begin(struct kiln_walk *w, uint64_t base)
{
	const struct kiln_perl *p = perl_data(w);

	/* What was seen counts for the sample: another frame may lead to another interpreter. */
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

/* The frames of the native frame in w->regs. */
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
		/* docatch(): the last native frame's contexts are of this one too, and are shown.
		 */
		return 0;
	}
	for (int i = 0; i < KILN_PERL_CONTEXTS_MAX + KILN_MAX_USER_FRAMES; i++) {
		if (perl_context(slot))
			break;
	}
	return 0;
}
