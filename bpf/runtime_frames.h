/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Frames of runtimes in the walk; a part of unwind.h. Each runtime has a walker that knows its
 * frames (agent/runtime/NAME/walker.h), compiled with the native walk into a program of its own. A
 * program has one walker: the function KILN_WALKER, defined before unwind.h is included. The
 * program in which samples begin has none. When the walk meets a frame of a runtime that is not its
 * program's, walk_switch() tells which program goes on.
 *
 * A walker, `int KILN_WALKER(uint32_t slot)`, is called for each native frame whose rule has
 * KILN_RULE_RUNTIME with the runtime's number, leaf first. It
 *   - finds the data about the process that it needs in w->runtime.data,
 *   - keeps its position between two calls in w->cursor, which is 0 at the first call in a stack,
 *   - emits its frames by walk_emit(), innermost first: they come before the native frame,
 *   - may set w->hide_native when a frame of its own stands for the native one (JIT code), and
 *     w->stepped when it has gone to the native caller by walk_enter(), or has set w->regs.pc to 0
 *     because there is no caller (the end of a coroutine's stack): the walk is complete then,
 *   - may emit several frames in one call: after each of them, walk_leave() goes to the caller, if
 *     the rule is of a simple kind,
 *   - marks a function as short-lived by walk_hurry(),
 *   - reports by walk_missing() why frames are missing. It never ends the native walk.
 * Its number, which user space gives it, is w->runtime_id. Every loop has a constant bound, and
 * everything that a walker reads is foreign and may be forged.
 */
#pragma once

enum { RUNTIME_PIECE = 6 }; /* words that walk_use_runtime() copies in one round */
_Static_assert(KILN_RUNTIME_BYTES / 8 % RUNTIME_PIECE == 0, "whole pieces");

/*
 * Appends a frame of the walker's runtime, of two words. FLAGS: three bits; ADDRESS: 54 bits.
 * Returns non-zero if the stack has reached its depth limit: the walk ends with KILN_END_DEPTH.
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
 * Wakes the reader because the function at ADDRESS, and its name, may be gone soon, unless the
 * reader was woken for the same function recently. COOKIE tells the function from others that were
 * at ADDRESS before.
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

/* Appends a word that tells why frames of the current runtime are missing; once for each sample. */
KILN_INLINE void walk_missing(struct kiln_walk *w, enum kiln_missing why)
{
	uint32_t id = w->runtime_id & 31;

	if (w->missing_said >> id & 1)
		return;
	w->missing_said |= 1U << id;
	(void)walk_put(w, ((uint64_t)KILN_FRAME_MISSING << KILN_FRAME_KIND_SHIFT) | id << 8 |
			      (uint64_t)why);
}

/* Removes and returns the word of the frame in w->regs, so that a runtime's frames can be put
 * before it. */
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

/* Does ENTRY of the rule cache hold the rule for PC, and is PC in code of the runtime ID? */
KILN_INLINE int walk_is_runtime_rule(const struct kiln_walk *w,
				     const struct kiln_cache_entry *entry, uint64_t pc, uint32_t id)
{
	return entry->pc == pc && entry->tag == w->tag && (entry->rule.flags & KILN_RULE_RUNTIME) &&
	       (entry->rule.deref_off & (KILN_RUNTIME_MAX - 1)) == (int32_t)id;
}

/*
 * Unwinds from the frame in w->regs to its caller, so that a walker can emit several frames in one
 * call. Call it when the frame has been emitted and w->hide_native is set. KEY: the frame's key in
 * the rule cache, its pc or its return address minus 1. Returns 0 if w->regs is the caller; a
 * negative number if the cached rule is not of a simple kind: the walker then returns, and the
 * native walk unwinds this frame.
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

/* Calls the program's walker for the native frame in w->regs. */
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

/*
 * Stops walking frames of the current runtime in this stack: its native frames are shown. Puts a
 * word with WHY before the native frame in w->regs.
 */
KILN_INLINE void walk_give_up(struct kiln_walk *w, enum kiln_missing why)
{
	uint64_t native = walk_take(w);

	walk_missing(w, why);
	(void)walk_put(w, native);
	w->runtimes &= ~(1U << (w->runtime_id & 31));
}

/* Parks the current runtime's cursor and makes w->cursor the one of runtime ID. Returns non-zero if
 * there is no room for another parked cursor. */
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
	/* Copy only the bytes in use: each cache line that is not touched saves time. */
	for (uint32_t i = 0; i < KILN_RUNTIME_BYTES / 8 && i * 8 < entry->size; i += RUNTIME_PIECE)
		for (uint32_t k = i; k < i + RUNTIME_PIECE; k++)
			w->runtime.data[k] = entry->data[k];
	w->switches++;
}

/*
 * After KILN_STEP_RUNTIME: makes the runtime in w->value the current one. Returns its number: the
 * caller jumps to its walker, and calls walk_give_up() if that fails. Returns 0 if its frames
 * cannot be walked; a word in the stack tells why.
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
