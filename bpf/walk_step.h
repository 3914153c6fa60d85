/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Steps from a frame to its caller by a rule, and the frames' words; a part of unwind.h. */
#pragma once

#include "walk_rules.h"

/*
 * The value of DWARF register REG in this frame. Returns 0, or -1 if it is not known. In the caller
 * of the leaf, a register that functions may change is taken to be as in the leaf: unwind
 * information names such a register as the base of the CFA only where hand-written assembly calls a
 * function that leaves it alone (OpenSSL 3.0, crypto/modes/asm/aesni-gcm-x86_64.pl: rax).
 */
KILN_INLINE int walk_register(const struct kiln_walk *w, uint32_t reg, uint64_t *ret)
{
	if (reg == ARCH_REG_SP)
		*ret = w->regs.sp;
	else if (reg == ARCH_REG_FP)
		*ret = w->regs.fp;
	else if (reg == ARCH_REG_EXTRA)
		*ret = w->regs.extra;
	else if ((w->leaf_valid && reg < ARCH_REGS) || (w->leaf_called && reg < ARCH_REGS_FREE)) {
		/* The compiler would drop the mask; the verifier needs it. */
		asm volatile("" : "+r"(reg));
		*ret = w->leaf[reg & (ARCH_LEAF_ROOM - 1)];
	} else
		return -1;
	return 0;
}

/* Unwinds a signal frame, whose ucontext is at sp + OFFSET: restores all registers from it. */
KILN_GLOBAL int walk_signal(uint32_t slot, int32_t offset)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t at, v;

	if (!w)
		return KILN_END_BAD_READ;
	at = w->regs.sp + (uint64_t)(int64_t)offset + ARCH_UCONTEXT_REGS;
	for (uint32_t i = 0; i < ARCH_UCONTEXT_N; i++) {
		uint32_t reg = arch_ucontext_dwarf(i);

		if (walk_read(w, at + i * 8, &v))
			return KILN_END_BAD_READ;
		if (reg < ARCH_REGS)
			w->leaf[reg] = v;
	}
	w->regs.pc = w->leaf[ARCH_REG_PC];
	w->regs.sp = w->leaf[ARCH_REG_SP];
	w->regs.fp = w->leaf[ARCH_REG_FP];
	w->regs.extra = w->leaf[ARCH_REG_EXTRA];
	w->exact = 1;
	w->leaf_valid = 1;
	w->runtime_done = 0;
	return 0;
}

/*
 * Makes the caller the current frame. RA: the return address as it was saved; CFA, FP and EXTRA:
 * the caller's sp, fp and extra. Returns 0, or KILN_END_ROOT if RA is 0.
 */
KILN_INLINE int walk_enter(struct kiln_walk *w, uint64_t ra, uint64_t cfa, uint64_t fp,
			   uint64_t extra)
{
	uint64_t pc = arch_code_address(&w->arch, ra);

	if (!pc)
		return KILN_END_ROOT;
	w->regs.pc = pc;
	w->regs.sp = cfa;
	w->regs.fp = fp;
	w->regs.extra = extra;
	w->exact = 0;
	w->leaf_called = w->leaf_valid;
	w->leaf_valid = 0;
	w->runtime_done = 0;
	return 0;
}

/*
 * Goes to the caller by the frame pointer, from code that keeps one (KILN_RULE_FRAME_POINTER).
 * Returns a negative number if fp leads to no frame, else the same as walk_step().
 */
KILN_GLOBAL int walk_frame_pointer(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t fp, caller, ra;

	if (!w)
		return -1;
	fp = w->regs.fp;
	if (fp < w->regs.sp || walk_read(w, fp, &caller) || walk_read(w, fp + 8, &ra) || !ra)
		return -1;
	return walk_enter(w, ra, fp + 16, caller, w->regs.extra);
}

/* Is the rule for PC in the cache? If so, PC is in a known mapping. */
KILN_INLINE int walk_is_cached(struct kiln_walk *w, uint64_t pc)
{
	const struct kiln_cache_entry *entry = env_cache(w, pc);

	return entry && entry->pc == pc && entry->tag == w->tag;
}

/* walk_step() for the kinds of rule that few frames have. AT: the frame's key in the rule cache. */
KILN_GLOBAL int walk_step_special(uint32_t slot, uint64_t at)
{
	struct kiln_walk *w = env_walk(slot);
	const struct kiln_cache_entry *entry = w ? env_cache(w, at) : 0;
	const struct kiln_rule *rule;
	uint64_t cfa, fp, pc;

	if (!w || !entry)
		return KILN_END_NO_RULE;
	rule = &entry->rule;
	fp = w->regs.fp;
	switch (rule->kind) {
	case KILN_RULE_STOP:
		return KILN_END_ROOT;
	case KILN_RULE_UNREAD:
		return KILN_END_NO_TABLE;
	case KILN_RULE_SIGNAL:
		return walk_signal(w->slot, rule->cfa_off);
	case KILN_RULE_FP:
		if (!fp)
			return KILN_END_ROOT;
		cfa = fp + 16;
		if (walk_read(w, fp, &fp) || walk_read(w, cfa - 8, &pc))
			return KILN_END_BAD_READ;
		break;
	case KILN_RULE_PLT:
		cfa = w->regs.sp + 8 + ((w->regs.pc & 15) >= (uint64_t)rule->cfa_off ? 8 : 0);
		if (walk_read(w, cfa - 8, &pc))
			return KILN_END_BAD_READ;
		break;
	case KILN_RULE_RA_REG: /* x86-64 only; arm64 needs it often, so walk_step() has it */
		if (ARCH_RA_IN_REGISTER || walk_register(w, rule->reg, &cfa) ||
		    walk_register(w, (uint32_t)rule->ra_off, &pc))
			return KILN_END_NO_RULE;
		cfa += (uint64_t)(int64_t)rule->cfa_off;
		break;
	default:
		return KILN_END_NO_RULE;
	}
	pc = arch_code_address(&w->arch, pc);
	if (pc && (rule->flags & KILN_RULE_GUESS) && !walk_is_cached(w, pc - 1) &&
	    (pc - 1 < w->map_start || pc - 1 >= w->map_end) && walk_find_mapping(w->slot, pc - 1))
		return KILN_END_NO_RULE;
	return walk_enter(w, pc, cfa, fp, w->regs.extra);
}

/*
 * Goes from the frame in w->regs to its caller. Returns 0 if w->regs is the caller, else an enum
 * kiln_end or KILN_STEP_RUNTIME; w->regs is untouched then, so that the walk can go on from there.
 */
KILN_GLOBAL int walk_step(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	const struct kiln_cache_entry *entry;
	const struct kiln_rule *rule;
	uint64_t base, cfa, from, saved, fp, extra, pc;
	int r, in_register, bare;

	if (!w)
		return KILN_END_NO_RULE;
	pc = w->regs.pc - (w->exact ? 0 : 1);
	entry = env_cache(w, pc);
	if (!entry)
		return KILN_END_NO_RULE;
	if (entry->pc != pc || entry->tag != w->tag) {
		r = walk_find_rule(w->slot, pc);
		if (r)
			return r;
	}
	rule = &entry->rule;
	if (rule->kind == KILN_RULE_CFA && rule->deref_off == KILN_BY_FRAME_POINTER) {
		r = walk_frame_pointer(w->slot);
		if (r >= 0)
			return r;
		w->doubt = 1;
		r = walk_find_rule(w->slot, pc);
		w->doubt = 0;
		if (r)
			return r;
	}
	if ((rule->flags & KILN_RULE_RUNTIME) && !w->runtime_done) {
		w->value = (uint32_t)rule->deref_off & (KILN_RUNTIME_MAX - 1);
		return KILN_STEP_RUNTIME;
	}
	if ((rule->flags & KILN_RULE_FRAME_POINTER) && walk_is_unsure(rule, w->exact)) {
		r = walk_frame_pointer(w->slot);
		if (r >= 0)
			return r;
	}
	fp = w->regs.fp;
	extra = w->regs.extra;
	in_register = ARCH_RA_IN_REGISTER && rule->kind == KILN_RULE_RA_REG;
	if (rule->kind == KILN_RULE_CFA && rule->reg == ARCH_REG_SP)
		base = w->regs.sp;
	else if (rule->kind == KILN_RULE_CFA && rule->reg == ARCH_REG_FP)
		base = fp;
	else if (rule->kind != KILN_RULE_CFA && rule->kind != KILN_RULE_DEREF && !in_register)
		return walk_step_special(w->slot, pc);
	else if (walk_register(w, rule->reg, &base))
		return KILN_END_NO_RULE;
	cfa = base + (uint64_t)(int64_t)rule->cfa_off;
	if (rule->kind == KILN_RULE_DEREF) {
		if (walk_read(w, cfa, &cfa))
			return KILN_END_BAD_READ;
		cfa += (uint64_t)(int64_t)rule->deref_off;
	}
	/* If calls leave the return address in a register, a frame may have nothing on the stack.
	 * For a function's last instructions clang's unwind information still says that the return
	 * address is where it was saved. */
	bare = in_register || (ARCH_RA_IN_REGISTER && w->exact);
	if ((bare ? cfa < w->regs.sp : cfa <= w->regs.sp) && !(rule->flags & KILN_RULE_SWITCH))
		return KILN_END_BAD_CFA;
	from = ARCH_HAS_BASE && (rule->flags & KILN_RULE_AT_BASE) ? base : cfa;
	saved = rule->flags & KILN_RULE_SAVED_AT_FP ? fp : from;
	/* Read the lowest slots first: the window then holds the next ones. */
	if ((rule->flags & KILN_RULE_SAVED_EXTRA) &&
	    walk_read(w, saved + (uint64_t)((int64_t)rule->extra_off * 8), &extra))
		return KILN_END_BAD_READ;
	if ((rule->flags & KILN_RULE_SAVED_FP) &&
	    walk_read(w, saved + (uint64_t)((int64_t)rule->fp_off * 8), &fp))
		return KILN_END_BAD_READ;
	if (in_register) {
		if (walk_register(w, (uint32_t)rule->ra_off, &pc))
			return KILN_END_NO_RULE;
	} else if (walk_read(w, from + (uint64_t)((int64_t)rule->ra_off * ARCH_RA_UNIT), &pc)) {
		return KILN_END_BAD_READ;
	}
	return walk_enter(w, pc, cfa, fp, extra);
}

/*
 * Makes the step that nearly every frame needs, with the same result as walk_step() but without a
 * call, and reading only the window and the rule. KEY: the frame's key in the rule cache, its pc or
 * its return address minus 1. *SP: in: the frame's stack pointer; out: the caller's. *PC: out: the
 * return address. fp and extra are read from and written to w->regs. FLAGS: KILN_RULE_RUNTIME: also
 * step from frames of a runtime, because its walker has shown this frame; else 0. Returns 0, or a
 * negative number if the step is not a usual one: nothing has changed then, and walk_step() has to
 * be called.
 */
KILN_INLINE int walk_usual_step(struct kiln_walk *w, uint64_t key, uint32_t flags, uint64_t *pc,
				uint64_t *sp)
{
	const uint32_t saved = KILN_RULE_SAVED_FP | KILN_RULE_SAVED_EXTRA;
	const struct kiln_cache_entry *entry = env_cache(w, key);
	uint64_t cfa, from, ra, wild, fp = 0, extra;
	const struct kiln_rule *rule;
	uint32_t head;

	/* Without this the compiler computes the address again for each member that is read. */
	asm volatile("" : "+r"(entry));
	if (!entry || entry->pc != key || entry->tag != w->tag)
		return -1;
	rule = &entry->rule;
	head = kiln_rule_head(rule);
	switch (head & ~(ARCH_HEAD_VARIES | flags << KILN_HEAD_FLAGS)) {
	case KILN_HEAD(KILN_RULE_CFA, ARCH_REG_SP, ARCH_HEAD_RA):
		cfa = *sp;
		break;
	case KILN_HEAD(KILN_RULE_CFA, ARCH_REG_FP, ARCH_HEAD_RA):
		cfa = w->regs.fp;
		break;
	default:
		return -1;
	}
	/* A negative offset becomes a large one, and leads out of the window. */
	cfa += (uint32_t)rule->cfa_off;
	from = cfa;
	if (ARCH_HAS_BASE)
		from -= (uint32_t)rule->cfa_off & (0 - (head >> KILN_HEAD_BASE & 1));
	if (walk_peek(w, from + (uint64_t)((int64_t)ARCH_RA_OFF(rule->ra_off) * ARCH_RA_UNIT), &ra))
		return -1;
	ra = arch_code_address(&w->arch, ra);
	/* Not written as comparisons: the verifier would deduce bounds of ra and cfa from them,
	 * different ones in each round, and check every round anew. */
	wild = (cfa & 7) | ~(*sp - cfa) >> 63 | (ra - 1) >> KILN_FRAME_FLAG_SHIFT;
	asm volatile("" : "+r"(wild));
	if (wild)
		return -1;
	if (head & saved << KILN_HEAD_FLAGS) {
		if ((head & KILN_RULE_SAVED_FP << KILN_HEAD_FLAGS) &&
		    walk_peek(w, from + (uint64_t)((int64_t)rule->fp_off * 8), &fp))
			return -1;
		if (head & KILN_RULE_SAVED_EXTRA << KILN_HEAD_FLAGS) {
			if (walk_peek(w, from + (uint64_t)((int64_t)rule->extra_off * 8), &extra))
				return -1;
			w->regs.extra = extra;
		}
		if (head & KILN_RULE_SAVED_FP << KILN_HEAD_FLAGS)
			w->regs.fp = fp;
	}
	*pc = ra;
	*sp = cfa;
	return 0;
}

/* Combined with a pc: the frame word of a native frame that called another one. */
#define KILN_CALLER (((uint64_t)KILN_FRAME_NATIVE << KILN_FRAME_KIND_SHIFT) | KILN_FRAME_RETURN)

/* The frame word of the frame in w->regs. */
KILN_INLINE uint64_t walk_frame(const struct kiln_walk *w)
{
	return (w->exact ? KILN_CALLER & ~KILN_FRAME_RETURN : KILN_CALLER) |
	       (w->regs.pc & KILN_FRAME_PC_MASK);
}

/* Appends the frame word WORD. Returns non-zero if there is no room. */
KILN_INLINE int walk_put(struct kiln_walk *w, uint64_t word)
{
	uint64_t *words = env_words(w);
	uint32_t i = w->at + w->n;

	if (!words || w->n >= KILN_MAX_USER_WORDS)
		return -1;
	/* The compiler compares copies and would drop the mask; the verifier needs it. */
	asm volatile("" : "+r"(i));
	words[i & (KILN_RECORD_WORDS - 1)] = word;
	w->n++;
	return 0;
}
