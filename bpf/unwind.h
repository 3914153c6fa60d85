/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The walk: unwinds from one frame to its caller by the tables of types.h. This file is compiled
 * into the BPF programs, and for the host (tests; the finisher that completes walks in user space).
 * The file that includes it defines the env_ functions that walk_state.h declares.
 *
 * The usual steps (a cached rule, a CFA by sp or fp, words that lie in the window) are made by
 * walk_usual_step(), in a loop without a call. walk_step(), a function of its own, can make any
 * step. The two are separate because at low rates the cost of a sample is the cache lines that it
 * touches, those of code as well as those of data.
 *
 * Invariants: the CFA only grows, except through a signal frame or a frame-pointer rule (which may
 * change stacks), so a walk ends; every loop has a constant bound.
 */
#pragma once

#include "walk_step.h"
#include "runtime_frames.h"

/* ---- the whole walk -------------------------------------------------------------------------- */

/*
 * Starts a walk at w->regs. AT: the index of the first frame word. The walk may have MAX_FRAMES
 * frames of runtimes, and MAX_FRAMES native frames plus KILN_RUNTIME_CREDIT for each frame of a
 * runtime, because some interpreters call themselves for each frame.
 */
KILN_INLINE void walk_begin(struct kiln_walk *w, uint32_t at, uint32_t max_frames)
{
	w->window_len = 0;
	w->window_next = w->window_first > KILN_WINDOW_FIRST ? w->window_first : KILN_WINDOW_FIRST;
	w->at = at;
	w->n = 0;
	w->limit = w->max_frames = max_frames;
	w->runtime_frames = 0;
	w->runtime_id = 0;
	w->missing_said = 0;
	w->runtime_done = w->hide_native = w->full = w->stepped = w->doubt = 0;
	w->switches = w->parked = 0;
}

/*
 * Adapts the size of the first window to the bytes of stack from the leaf to w->regs, where the
 * walk has ended: the next walk on this CPU will need about as many.
 */
KILN_INLINE void walk_learn_window(struct kiln_walk *w)
{
	uint64_t bytes = w->regs.sp - w->leaf[ARCH_REG_SP];

	/* The walk has changed stacks, or the stack does not fit into a window. */
	if (bytes > KILN_WINDOW_WORDS * 8)
		return;
	w->window_first = ((w->window_first * 3 + (uint32_t)bytes) / 4 + 63) & ~63U;
}

/* The limit of w->n for usual steps: 0 at an exact frame, because walk_chunk()'s loop makes usual
 * steps from return addresses only. */
KILN_INLINE uint32_t walk_room(const struct kiln_walk *w)
{
	uint32_t n = w->limit < KILN_MAX_USER_WORDS ? w->limit : KILN_MAX_USER_WORDS;

	return w->exact ? 0 : n;
}

/* Forgets the cached rule of the frame in w->regs if a walker has made it for itself: it is of no
 * use to the native walk. */
KILN_INLINE void walk_forget_walkers_rule(struct kiln_walk *w)
{
	struct kiln_cache_entry *entry = env_cache(w, w->regs.pc - (w->exact ? 0 : 1));

	if (entry && entry->rule.kind == KILN_RULE_INVALID)
		entry->tag = 0;
}

/* Makes one step of any kind, or one call of the program's walker. Returns the same as
 * walk_chunk(). */
KILN_INLINE int walk_any_step(struct kiln_walk *w)
{
	int end = walk_step(w->slot);

	if (end == KILN_STEP_RUNTIME) {
		/* A runtime that the policy does not allow: its memory is never read. */
		if (!(w->runtimes >> (w->value & 31) & 1)) {
			walk_forget_walkers_rule(w);
			w->runtime_done = 1;
			return 0;
		}
#ifdef KILN_WALKER
		if (w->value == w->runtime_id) {
			walk_own(w);
			if (w->full)
				return KILN_END_DEPTH;
			if (!w->stepped)
				return 0;
			end = w->regs.pc ? 0 : KILN_END_ROOT;
		}
#endif
	}
	if (end)
		return end;
	return w->n >= w->limit || walk_put(w, walk_frame(w)) ? KILN_END_DEPTH : 0;
}

/*
 * Goes up to KILN_CHUNK_STEPS further. The word of the frame in w->regs has been appended already.
 * Returns 0 if the walk is to go on; the enum kiln_end with which the walk has ended; or
 * KILN_STEP_RUNTIME: walk_switch() has to be called. A function of its own, so that the verifier
 * need not follow each round of the longest walk.
 */
KILN_GLOBAL int walk_chunk(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t pc, sp, *words;
	uint32_t at, room;
	int end = KILN_END_NONE;

	if (!w)
		return KILN_END_BAD_READ;
	words = env_words(w);
	if (!words)
		return KILN_END_BAD_READ;
	pc = w->regs.pc;
	sp = w->regs.sp;
	at = w->at;
	/* The first step, from the leaf: its rule is looked up at the pc itself, those of all other
	 * frames at the byte before the return address. It is not in the loop, because the verifier
	 * would have to check both cases in every iteration. */
	if (w->exact && w->n < w->limit && w->n < KILN_MAX_USER_WORDS &&
	    !walk_usual_step(w, pc, 0, &pc, &sp)) {
		uint32_t i = at + w->n++;

		asm volatile("" : "+r"(i));
		words[i & (KILN_RECORD_WORDS - 1)] = KILN_CALLER | pc;
		w->leaf_called = w->leaf_valid;
		w->exact = w->leaf_valid = w->runtime_done = 0;
	}
	room = walk_room(w);
	for (int round = 0; round < KILN_CHUNK_STEPS; round++) {
		if (w->n < room && !walk_usual_step(w, pc - 1, 0, &pc, &sp)) {
			uint32_t i = at + w->n++;

			asm volatile("" : "+r"(i));
			words[i & (KILN_RECORD_WORDS - 1)] = KILN_CALLER | pc;
			w->leaf_called = w->runtime_done = 0;
			continue;
		}
		w->regs.pc = pc;
		w->regs.sp = sp;
		end = walk_any_step(w);
		if (end)
			return end;
		pc = w->regs.pc;
		sp = w->regs.sp;
		room = walk_room(w);
	}
	w->regs.pc = pc;
	w->regs.sp = sp;
	return KILN_END_NONE;
}

#ifndef __bpf__
/*
 * Walks from w->regs to the end of the stack. w->end is the enum kiln_end, w->n the number of
 * words. For the host, where at most one walker, KILN_WALKER, is compiled in. BPF programs have
 * walk_on() of switch.h.
 */
KILN_INLINE void walk_on(struct kiln_walk *w)
{
	int end = KILN_END_NONE;

	for (int i = 0;
	     i < KILN_CHUNKS + KILN_SWITCHES_MAX + 32 && (!end || end == KILN_STEP_RUNTIME); i++) {
		end = walk_chunk(w->slot);
		if (end == KILN_STEP_RUNTIME)
			(void)walk_switch(w->slot);
	}
	w->end = (uint32_t)(end ? end : KILN_END_DEPTH);
}
#endif
