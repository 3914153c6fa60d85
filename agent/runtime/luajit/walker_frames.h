/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Walks from one Lua frame to its caller, within one native frame. A part of walker.h.
 *
 * A function is named by the instruction that calls it, so a frame is emitted when its caller is
 * known. Until then the frame is pending, in the cursor.
 */
#pragma once

#include "agent/runtime/luajit/walker_state.h"

enum { LUAJIT_AT_ONCE = 8 };

/* Emits the pending frame, if there is one. AT: the address of its caller's instruction; 0: the
 * caller is not Lua. COOKIE: the cookie of the caller's prototype. */
KILN_INLINE void luajit_flush(struct kiln_walk *w, uint64_t at, uint64_t cookie)
{
	uint64_t pending = w->cursor.words[LUAJIT_PENDING], both;

	if (!(pending & LUAJIT_HAS_PENDING))
		return;
	w->cursor.words[LUAJIT_PENDING] = 0;
	both = kiln_luajit_cookies(w->cursor.words[LUAJIT_COOKIE], at ? cookie : 0);
	(void)walk_emit(w, (uint32_t)pending & 7,
			(pending >> LUAJIT_PENDING_SHIFT & KILN_LUAJIT_AT_MASK) |
			    (both & ((1 << KILN_LUAJIT_COOKIE_LOW) - 1)) << KILN_LUAJIT_AT_BITS,
			(at >> 2 & KILN_LUAJIT_AT_MASK) | both >> KILN_LUAJIT_COOKIE_LOW
								      << KILN_LUAJIT_AT_BITS);
}

KILN_INLINE void luajit_pend(struct kiln_walk *w, uint32_t kind, uint64_t value, uint64_t cookie)
{
	w->cursor.words[LUAJIT_PENDING] =
	    (value & KILN_LUAJIT_AT_MASK) << LUAJIT_PENDING_SHIFT | LUAJIT_HAS_PENDING | kind;
	w->cursor.words[LUAJIT_COOKIE] = cookie;
}

/* Emits the pending frame, and makes the loaded one pending. KIND: its enum luajit_kind; SHOWN: the
 * enum kiln_luajit_frame of a Lua function; AT: the address of its instruction, if known. */
KILN_INLINE void luajit_show(struct kiln_walk *w, int kind, uint32_t shown, uint64_t at)
{
	uint64_t cookie = w->scratch[LUAJIT_AT_COOKIE];
	int known;

	if (kind == LUAJIT_NATIVE) {
		luajit_flush(w, 0, 0);
		luajit_pend(w, KILN_LUAJIT_C, w->scratch[LUAJIT_AT_FUNC + 1] >> 16 & 0xff, 1);
		return;
	}
	known = luajit_has(w, at);
	luajit_flush(w, known ? at : 0, cookie);
	if (!known)
		at = w->scratch[LUAJIT_AT_FUNC + LUAJIT_FUNC_PC / 8];
	luajit_pend(w, shown, at >> 2, cookie);
}

/* Sets the cursor to the frame to which LINK, the link of the current frame, leads. Returns the
 * same as luajit_frame(). */
KILN_INLINE int luajit_follow(struct kiln_walk *w, uint64_t link)
{
	uint64_t base = w->cursor.words[LUAJIT_BASE], delta = link & ~7ULL;

	w->value = 0;
	if (!(link & 3)) {
		w->cursor.words[LUAJIT_BASE] = luajit_caller(w, base, link);
		w->value = link;
		return 0;
	}
	/* The next frame lies below this one; an impossible distance ends the walk. */
	w->cursor.words[LUAJIT_BASE] = delta < LUAJIT_DELTA_MAX ? base - delta : 0;
	switch (link & 7) {
	case LUAJIT_FRAME_C:
	case LUAJIT_FRAME_CP:
		return 1;
	case LUAJIT_FRAME_VARG:
		w->cursor.words[LUAJIT_SEEN] |= LUAJIT_VARARG;
		return 0;
	case LUAJIT_FRAME_CONT:
		w->value = luajit_word(base - 24);
		return luajit_word(base - 32) == LUAJIT_CONT_CALLBACK;
	default:
		return 0;
	}
}

/*
 * Makes the frame at the cursor's base the pending one and goes on to its caller, whose pc is in
 * w->value then. PC: the frame's pc; 0: not known. SHOWN: the enum kiln_luajit_frame of a Lua
 * function. Non-zero: the caller belongs to another native frame, or there is none.
 */
KILN_INLINE int luajit_frame(struct kiln_walk *w, uint64_t pc, uint32_t shown)
{
	int kind;

	if (w->full)
		return 1;
	if (w->cursor.words[LUAJIT_SEEN] >= KILN_LUAJIT_FRAMES_MAX * LUAJIT_SEEN_ONE) {
		walk_missing(w, KILN_MISSING_BUDGET);
		return 1;
	}
	w->cursor.words[LUAJIT_SEEN] += LUAJIT_SEEN_ONE;
	kind = luajit_read_frame(w, w->cursor.words[LUAJIT_BASE]);
	if (kind == LUAJIT_BOTTOM)
		return 1;
	if (kind == LUAJIT_BROKEN) {
		luajit_flush(w, 0, 0);
		walk_missing(w, KILN_MISSING_BROKEN);
		return 1;
	}
	if (w->cursor.words[LUAJIT_SEEN] & LUAJIT_VARARG)
		w->cursor.words[LUAJIT_SEEN] &= ~(uint64_t)LUAJIT_VARARG;
	else
		luajit_show(w, kind, shown, pc - 4);
	return luajit_follow(w, w->scratch[LUAJIT_AT_SLOTS + 1]);
}

/*
 * Calls luajit_frame() for LUAJIT_AT_ONCE frames, in a function that the verifier checks once. On a
 * CPU with SRSO's safe returns, a call for each frame made a frame a third dearer.
 */
KILN_GLOBAL int luajit_frames(uint32_t slot, uint64_t pc, uint32_t shown)
{
	struct kiln_walk *w = env_walk(slot);

	if (!w)
		return 1;
	for (int i = 0; i < LUAJIT_AT_ONCE; i++) {
		if (luajit_frame(w, pc, shown))
			return 1;
		pc = w->value;
		shown = KILN_LUAJIT_LUA;
	}
	return 0;
}

/* Emits the frames from the cursor's base on, up to the one that C code called. PC: that of the
 * first frame; 0: not known. SHOWN: the enum kiln_luajit_frame of the first frame. */
KILN_GLOBAL int luajit_group(uint32_t slot, uint64_t pc, uint32_t shown)
{
	struct kiln_walk *w = env_walk(slot);

	if (!w)
		return 0;
	w->cursor.words[LUAJIT_SEEN] &= ~(uint64_t)LUAJIT_VARARG;
	for (int i = 0; i <= KILN_LUAJIT_FRAMES_MAX / LUAJIT_AT_ONCE; i++) {
		if (luajit_frames(slot, pc, shown))
			break;
		pc = w->value;
		shown = KILN_LUAJIT_LUA;
	}
	luajit_flush(w, 0, 0);
	return 0;
}

/*
 * Results of the functions that find where a group of frames begins. They leave the base in the
 * cursor and the pc in w->value.
 */
enum luajit_begin {
	LUAJIT_UNKNOWN = -1,
	LUAJIT_NO_GROUP, /* the C frame has no group; the next C frame's begins at that base */
	LUAJIT_GROUP,
};

KILN_INLINE int luajit_begin(struct kiln_walk *w, uint64_t base, uint64_t pc)
{
	w->cursor.words[LUAJIT_BASE] = base;
	w->value = pc;
	return LUAJIT_GROUP;
}

KILN_INLINE int luajit_no_group(struct kiln_walk *w, uint64_t base)
{
	w->cursor.words[LUAJIT_BASE] = base;
	return LUAJIT_NO_GROUP;
}
