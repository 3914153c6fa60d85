/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Frames of runtimes in the walk; a part of unwind.h. What they look like is the matter of a
 * walker, one for each runtime (bpf/walkers/), compiled with the native walk into a program of its
 * own. A program has one walker: the function KILN_WALKER, defined before unwind.h is included. The
 * program that samples begin with has none. Where the walk meets a frame of another runtime than
 * its program's, walk_switch() says where to go on.
 *
 * A walker, `int KILN_WALKER(uint32_t slot)`, is called for each native frame whose rule says
 * KILN_RULE_RUNTIME with the runtime's number, leaf first. It
 *   - finds what it has to know of the process in w->runtime.data,
 *   - keeps where it is between two calls in w->cursor, which is 0 at the first call in a stack,
 *   - emits its frames by walk_emit(), innermost first: they come before the native frame,
 *   - may set w->hide_native when a frame of its own stands for the native one (JIT code), and
 *     w->stepped when it has gone to the native caller by walk_enter(), or has set w->regs.pc to 0
 *     because there is none (the end of a coroutine's stack): the walk is complete then,
 *   - may show several frames in one call: after each one that it has shown, walk_leave() goes to
 *     the caller, if that is easy,
 *   - says by walk_hurry() that a function is short-lived,
 *   - says by walk_missing() what it could not do. It never ends the native walk.
 * Its number is w->runtime_id: user space gives it. Every loop has a constant bound, and all that
 * it reads is foreign and may be forged.
 */
#pragma once

enum { RUNTIME_PIECE = 6 }; /* words that walk_use_runtime() copies in one round */
_Static_assert(KILN_RUNTIME_BYTES / 8 % RUNTIME_PIECE == 0, "whole pieces");

/*
 * A frame of two words of the walker's runtime. Non-zero: the stack is as deep as it may be, and
 * the walk ends with KILN_END_DEPTH.
 */
KILN_INLINE int walk_emit(struct kiln_walk *w, uint32_t flags, uint64_t address, uint64_t second)
{
	uint32_t id = w->runtime_id & 31;

	if (w->runtime_frames >= w->max_frames || w->n + 2 >= KILN_MAX_USER_WORDS) {
		w->full = 1;
		return -1;
	}
	if (walk_put(w, ((uint64_t)KILN_FRAME_RUNTIME(id) << KILN_FRAME_KIND_SHIFT) |
			    ((uint64_t)(flags & 7) << KILN_FRAME_FLAG_SHIFT) |
			    (address & KILN_FRAME_PC_MASK)) ||
	    walk_put(w, second))
		return -1;
	w->runtime_frames++;
	w->limit += 2 + KILN_RUNTIME_CREDIT;
	return 0;
}

/*
 * The function at ADDRESS, which is told from others that were there by COOKIE, may be gone soon,
 * and its name with it: the reader is woken, unless it was for the same one of late.
 */
KILN_INLINE void walk_hurry(struct kiln_walk *w, uint64_t address, uint64_t cookie)
{
	uint64_t hash = (address ^ (uint64_t)w->mapset << 40) * 0x9e3779b97f4a7c15ULL;
	uint64_t *last;

	hash = (hash ^ hash >> 29 ^ cookie) * 0xbf58476d1ce4e5b9ULL;
	last = &w->hurried[hash >> 32 & (KILN_HURRIED - 1)];
	if (*last == hash)
		return;
	*last = hash;
	w->fresh = 1;
}

/* Says in the stack, once a sample, why frames of the current runtime are not in it. */
KILN_INLINE void walk_missing(struct kiln_walk *w, enum kiln_missing why)
{
	uint32_t id = w->runtime_id & 31;

	if (w->missing_said >> id & 1)
		return;
	w->missing_said |= 1U << id;
	(void)walk_put(w, ((uint64_t)KILN_FRAME_MISSING << KILN_FRAME_KIND_SHIFT) | id << 8 |
			      (uint64_t)why);
}

/* The word of the frame in w->regs, which is taken off the stack: a runtime's come before it. */
KILN_INLINE uint64_t walk_take(struct kiln_walk *w)
{
	uint64_t *words = env_words(w);
	uint32_t i;

	if (!words || !w->n)
		return 0;
	w->n--;
	i = w->at + w->n;
	asm volatile("" : "+r"(i));
	return words[i & (KILN_RECORD_WORDS - 1)];
}

/* Is ENTRY, a place of the rule cache, filled with the rule for PC, and is that code of the runtime
 * ID? */
KILN_INLINE int walk_is_runtime_rule(const struct kiln_walk *w,
				     const struct kiln_cache_entry *entry, uint64_t pc, uint32_t id)
{
	return entry->pc == pc && entry->tag == w->tag && (entry->rule.flags & KILN_RULE_RUNTIME) &&
	       (entry->rule.deref_off & (KILN_RUNTIME_MAX - 1)) == (int32_t)id;
}

/*
 * Unwinds from the frame in w->regs to its caller, so that a walker can emit several frames in one
 * call. To be called when the frame has been emitted and w->hide_native is set. KEY: the frame's
 * address in the rule cache: its pc, or its return address less 1. Returns 0 when w->regs is the
 * caller. Returns a negative number when the cached rule is not of a simple kind; the walker then
 * returns, and the native walk unwinds this frame.
 */
KILN_INLINE int walk_leave(struct kiln_walk *w, uint64_t key)
{
	uint64_t pc, sp = w->regs.sp;

	w->stepped = 0;
	w->runtime_done = 1;
	if (walk_usual_step(w, key, KILN_RULE_RUNTIME, &pc, &sp))
		return -1;
	w->regs.pc = pc;
	w->regs.sp = sp;
	w->leaf_called = w->leaf_valid;
	w->exact = w->leaf_valid = w->runtime_done = 0;
	w->stepped = 1;
	return 0;
}

#ifdef KILN_WALKER
KILN_GLOBAL int KILN_WALKER(uint32_t slot);

/* The frames of this program's runtime whose native frame is in w->regs. */
KILN_INLINE void walk_own(struct kiln_walk *w)
{
	uint64_t native = walk_take(w);

	w->runtime_done = 1;
	w->hide_native = 0;
	w->stepped = 0;
	(void)KILN_WALKER(w->slot);
	if (!w->hide_native)
		(void)walk_put(w, native);
}
#endif

/* From here on frames of the current runtime are native ones. WHY comes before the one at hand. */
KILN_INLINE void walk_give_up(struct kiln_walk *w, enum kiln_missing why)
{
	uint64_t native = walk_take(w);

	walk_missing(w, why);
	(void)walk_put(w, native);
	w->runtimes &= ~(1U << (w->runtime_id & 31));
}

/* Parks the current runtime's cursor and makes w->cursor that of ID. Non-zero: there is no place.
 */
KILN_INLINE int walk_turn_cursor(struct kiln_walk *w, uint32_t id)
{
	struct kiln_cursor cursor = {};
	uint32_t place = w->parked;

	if (w->runtime_id == id)
		return 0;
	if (!w->runtime_id) {
		w->cursor = cursor;
		return 0;
	}
	for (uint32_t i = 0; i < KILN_CURSORS; i++) {
		if (i < w->parked && w->park_id[i] == id) {
			cursor = w->park[i];
			place = i;
		}
	}
	if (place >= KILN_CURSORS)
		return -1;
	if (place == w->parked)
		w->parked++;
	asm volatile("" : "+r"(place));
	w->park[place & (KILN_CURSORS - 1)] = w->cursor;
	w->park_id[place & (KILN_CURSORS - 1)] = w->runtime_id;
	w->cursor = cursor;
	return 0;
}

KILN_INLINE void walk_use_runtime(struct kiln_walk *w, uint32_t id,
				  const struct kiln_runtime *entry)
{
	w->runtime_id = id;
	w->runtime_kept = 0;
	/* No more than is in use: each cache line that is left alone saves time. */
	for (uint32_t i = 0; i < KILN_RUNTIME_BYTES / 8 && i * 8 < entry->size; i += RUNTIME_PIECE)
		for (uint32_t k = i; k < i + RUNTIME_PIECE; k++)
			w->runtime.data[k] = entry->data[k];
	w->switches++;
}

/*
 * After KILN_STEP_RUNTIME: makes the runtime in w->value the current one. Its number: its walker
 * goes on, or walk_give_up() says why it does not. 0: it cannot, which was said.
 */
KILN_GLOBAL int walk_switch(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	const struct kiln_runtime *entry;
	uint32_t id;
	int no_place;

	if (!w)
		return 0;
	id = w->value & 31;
	entry = env_runtime(w, id);
	no_place = walk_turn_cursor(w, id);
	w->runtime_id = id;
	if (!entry || no_place || w->switches >= KILN_SWITCHES_MAX) {
		walk_give_up(w, entry ? KILN_MISSING_SWITCHES : KILN_MISSING_UNKNOWN);
		return 0;
	}
	walk_use_runtime(w, id, entry);
	return (int)id;
}
