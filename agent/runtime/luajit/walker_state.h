/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Reads the structures of LuaJIT: a lua_State, the Lua frame at a base, and the C frames of the
 * interpreter. A part of walker.h.
 */
#pragma once

#include "agent/runtime/luajit/walker_data.h"

/* Words of w->cursor. */
enum {
	LUAJIT_L,      /* the lua_State of the last native frame */
	LUAJIT_CFRAME, /* the C frame before that of the last native frame; 0: none */
	LUAJIT_BASE,   /* base of the next Lua frame */
	LUAJIT_PENDING,
	LUAJIT_COOKIE, /* of the pending frame */
	LUAJIT_SEEN,   /* number of frames read, times LUAJIT_SEEN_ONE, and flags */
};

enum {
	LUAJIT_VARARG = 1, /* the next frame is of the same call, without the variable arguments */
	LUAJIT_SEEN_ONE = 2,
	/* Parts of LUAJIT_PENDING. */
	LUAJIT_HAS_PENDING = 1 << 3,
	LUAJIT_PENDING_SHIFT = 4,
};

/* Indices of words in w->scratch. */
enum {
	LUAJIT_AT_SLOTS = 0, /* the two slots below the base: function and link */
	LUAJIT_AT_FUNC = 2,
	LUAJIT_AT_PROTO = LUAJIT_AT_FUNC + LUAJIT_FUNC_WORDS,
	LUAJIT_AT_STATE = LUAJIT_AT_PROTO + LUAJIT_PROTO_SIZE / 8,
	/* The slot value of the Lua function that is at LUAJIT_AT_FUNC and LUAJIT_AT_PROTO; 0: no
	 * Lua function is. */
	LUAJIT_AT_LOADED = LUAJIT_AT_STATE + LUAJIT_L_WORDS,
	LUAJIT_AT_COOKIE, /* its cookie */
	/* A pc, and the distance from the base of the function that the call before it has called
	 * down to the caller's base. */
	LUAJIT_AT_CALL,
	LUAJIT_AT_DISTANCE,
	/* A copy of a part of the Lua stack: its address (0: there is no copy), and the words. */
	LUAJIT_AT_COPIED,
	LUAJIT_AT_COPY,
};
enum { LUAJIT_COPY_WORDS = 32 }; /* a power of 2 */
_Static_assert(LUAJIT_AT_COPY + LUAJIT_COPY_WORDS <= 72, "struct kiln_walk.scratch");

/* Kinds of Lua frames, by the function in the slot below the base. */
enum luajit_kind {
	LUAJIT_BROKEN,
	LUAJIT_BOTTOM, /* the stack begins here */
	LUAJIT_LUA,    /* a function of Lua */
	LUAJIT_NATIVE, /* a function of C, or a fast function */
};

/* Is there a frame at a base (LUAJIT_FITS_FRAME), and is a pc in its function (LUAJIT_FITS)? */
enum luajit_fit { LUAJIT_FITS_NOT, LUAJIT_FITS_FRAME, LUAJIT_FITS };

enum {
	LUAJIT_REG_BASE = 1,	    /* DWARF number of rdx */
	LUAJIT_SCAN = 96,	    /* addresses at which luajit_scan() looks for a C frame */
	LUAJIT_DELTA_MAX = 1 << 24, /* bytes: limit of a link that is a distance, not a pc */
};

KILN_INLINE struct kiln_luajit *luajit_data(struct kiln_walk *w)
{
	return (struct kiln_luajit *)w->runtime.data;
}

KILN_INLINE int luajit_is_pointer(uint64_t word)
{
	return word && !(word & 7) && !(word >> LUAJIT_TAG_SHIFT);
}

/* A word of the lua_State that was read last. */
KILN_INLINE uint64_t luajit_state(const struct kiln_walk *w, uint32_t offset)
{
	return w->scratch[LUAJIT_AT_STATE + offset / 8];
}

KILN_INLINE uint64_t luajit_word(uint64_t address)
{
	uint64_t word = 0;

	return env_read(&word, 8, address) ? 0 : word;
}

/* ---- Lua frames --------------------------------------------------------------------------------
 */

/*
 * Reads the two words below BASE, function and link, into the scratch. BASE is on the Lua stack
 * that begins at STACK. Frames are small and adjacent, so several are read at once, from BASE
 * downwards. Returns 0, or non-zero if the words cannot be read.
 */
KILN_INLINE int luajit_read_slots(struct kiln_walk *w, uint64_t base, uint64_t stack)
{
	uint64_t from = w->scratch[LUAJIT_AT_COPIED], i;

	if (!from || base - 16 - from > LUAJIT_COPY_WORDS * 8 - 16) {
		from = base - LUAJIT_COPY_WORDS * 8;
		if (base - stack < LUAJIT_COPY_WORDS * 8)
			from = stack;
		w->scratch[LUAJIT_AT_COPIED] = 0;
		if (env_read(&w->scratch[LUAJIT_AT_COPY], LUAJIT_COPY_WORDS * 8, from))
			return env_read(&w->scratch[LUAJIT_AT_SLOTS], 16, base - 16);
		w->scratch[LUAJIT_AT_COPIED] = from;
	}
	i = (base - 16 - from) >> 3;
	/* Keeps the compiler from dropping the masks, which the verifier needs. */
	asm volatile("" : "+r"(i));
	w->scratch[LUAJIT_AT_SLOTS] = w->scratch[LUAJIT_AT_COPY + (i & (LUAJIT_COPY_WORDS - 1))];
	w->scratch[LUAJIT_AT_SLOTS + 1] =
	    w->scratch[LUAJIT_AT_COPY + ((i + 1) & (LUAJIT_COPY_WORDS - 1))];
	return 0;
}

/* Reads the frame at BASE into the scratch. Returns its enum luajit_kind. */
KILN_INLINE int luajit_read_frame(struct kiln_walk *w, uint64_t base)
{
	uint64_t stack, size, tag, pc;

	stack = luajit_state(w, LUAJIT_L_STACK);
	size = (luajit_state(w, LUAJIT_L_STACKSIZE) & 0xffffffff) * 8;
	if ((base & 7) || base - stack < 16 || base - stack > size)
		return LUAJIT_BROKEN;
	if (luajit_read_slots(w, base, stack))
		return LUAJIT_BROKEN;
	/* A function that has called itself has been read already. */
	if (w->scratch[LUAJIT_AT_SLOTS] == w->scratch[LUAJIT_AT_LOADED])
		return LUAJIT_LUA;
	w->scratch[LUAJIT_AT_LOADED] = 0;
	tag = w->scratch[LUAJIT_AT_SLOTS] >> LUAJIT_TAG_SHIFT ^ LUAJIT_TAG_MASK;
	pc = w->scratch[LUAJIT_AT_SLOTS] & ((1ULL << LUAJIT_TAG_SHIFT) - 1);
	if (tag == LUAJIT_TYPE_THREAD)
		return LUAJIT_BOTTOM;
	if (tag != LUAJIT_TYPE_FUNC ||
	    env_read(&w->scratch[LUAJIT_AT_FUNC], LUAJIT_FUNC_WORDS * 8, pc))
		return LUAJIT_BROKEN;
	tag = w->scratch[LUAJIT_AT_FUNC + 1] >> 8;
	if ((tag & 0xff) != LUAJIT_TYPE_FUNC)
		return LUAJIT_BROKEN;
	if ((tag >> 8 & 0xff) != LUAJIT_FF_LUA)
		return LUAJIT_NATIVE;
	pc = w->scratch[LUAJIT_AT_FUNC + LUAJIT_FUNC_PC / 8];
	if (env_read(&w->scratch[LUAJIT_AT_PROTO], LUAJIT_PROTO_SIZE, pc - LUAJIT_PROTO_SIZE))
		return LUAJIT_BROKEN;
	tag = w->scratch[LUAJIT_AT_PROTO + 1] >> 8 & 0xff;
	if (tag != LUAJIT_TYPE_PROTO)
		return LUAJIT_BROKEN;
	w->scratch[LUAJIT_AT_LOADED] = w->scratch[LUAJIT_AT_SLOTS];
	w->scratch[LUAJIT_AT_COOKIE] =
	    kiln_luajit_cookie(w->scratch[LUAJIT_AT_PROTO + LUAJIT_PROTO_CHUNK / 8],
			       w->scratch[LUAJIT_AT_PROTO + LUAJIT_PROTO_FIRSTLINE / 8]);
	return LUAJIT_LUA;
}

/* luajit_read_frame() as a function that the verifier checks once. */
KILN_GLOBAL int luajit_load(uint32_t slot, uint64_t base)
{
	struct kiln_walk *w = env_walk(slot);

	return w ? luajit_read_frame(w, base) : LUAJIT_BROKEN;
}

/* Does the loaded Lua function have the instruction at AT? */
KILN_INLINE int luajit_has(const struct kiln_walk *w, uint64_t at)
{
	uint64_t start = w->scratch[LUAJIT_AT_FUNC + LUAJIT_FUNC_PC / 8];
	uint64_t size = w->scratch[LUAJIT_AT_PROTO + LUAJIT_PROTO_SIZEBC / 8] >> 32;

	return !(at & 3) && at - start < size * 4;
}

/*
 * Loads the frame at BASE. Is PC in its function? PC points behind the instruction that is executed
 * or, before the first one, at the first one. Returns an enum luajit_fit.
 */
KILN_INLINE int luajit_fits(struct kiln_walk *w, uint64_t base, uint64_t pc)
{
	int kind = luajit_load(w->slot, base);
	uint64_t start = w->scratch[LUAJIT_AT_FUNC + LUAJIT_FUNC_PC / 8];

	if (kind < LUAJIT_LUA)
		return LUAJIT_FITS_NOT;
	if (pc == start || pc == start + 4 || (kind == LUAJIT_LUA && luajit_has(w, pc - 4)))
		return LUAJIT_FITS;
	return LUAJIT_FITS_FRAME;
}

/* luajit_fits() as a function that the verifier checks once. */
KILN_GLOBAL int luajit_fit(uint32_t slot, uint64_t base, uint64_t pc)
{
	struct kiln_walk *w = env_walk(slot);

	return w ? luajit_fits(w, base, pc) : LUAJIT_FITS_NOT;
}

/* The base of the Lua frame that called the one at BASE by the instruction before PC. */
KILN_INLINE uint64_t luajit_caller(struct kiln_walk *w, uint64_t base, uint64_t pc)
{
	uint32_t call = 0;

	if (pc != w->scratch[LUAJIT_AT_CALL]) {
		if (env_read(&call, 4, pc - 4))
			return 0;
		w->scratch[LUAJIT_AT_CALL] = pc;
		w->scratch[LUAJIT_AT_DISTANCE] = 16 + (call >> 8 & 0xff) * 8;
	}
	return base - w->scratch[LUAJIT_AT_DISTANCE];
}

/* Marks the scratch as empty, before the first luajit_load() of a call. */
KILN_INLINE void luajit_begin_loading(struct kiln_walk *w)
{
	w->scratch[LUAJIT_AT_LOADED] = w->scratch[LUAJIT_AT_COPIED] = 0;
	w->scratch[LUAJIT_AT_CALL] = 1; /* no pc */
}

/* ---- C frames ----------------------------------------------------------------------------------
 */

/* The position of a C frame in the chain of its lua_State. */
enum luajit_cframe {
	LUAJIT_CFRAME_NONE,  /* not a C frame, or not linked yet or any more */
	LUAJIT_CFRAME_FIRST, /* the newest C frame */
	LUAJIT_CFRAME_NEXT,  /* the C frame before the last one of the walk */
};

/*
 * Returns the enum luajit_cframe of the C frame at FRAME. Reads its lua_State into the scratch, and
 * if it is a C frame, sets the cursor to its lua_State and to the previous C frame.
 */
KILN_GLOBAL int luajit_enter(uint32_t slot, uint64_t frame)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t l, prev;
	int r = LUAJIT_CFRAME_NONE;

	if (!w || walk_read(w, frame + LUAJIT_CFRAME_L, &l) ||
	    walk_read(w, frame + LUAJIT_CFRAME_PREV, &prev) || !luajit_is_pointer(l) ||
	    env_read(&w->scratch[LUAJIT_AT_STATE], LUAJIT_L_WORDS * 8, l) ||
	    (w->scratch[LUAJIT_AT_STATE + 1] >> 8 & 0xff) != LUAJIT_TYPE_THREAD)
		return LUAJIT_CFRAME_NONE;
	if (w->cursor.words[LUAJIT_L] == l && w->cursor.words[LUAJIT_CFRAME] == frame) {
		r = LUAJIT_CFRAME_NEXT;
	} else if ((luajit_state(w, LUAJIT_L_CFRAME) & ~(uint64_t)LUAJIT_CFRAME_FLAGS) == frame) {
		r = LUAJIT_CFRAME_FIRST;
		w->cursor.words[LUAJIT_BASE] = luajit_state(w, LUAJIT_L_BASE);
	}
	if (r) {
		w->cursor.words[LUAJIT_L] = l;
		w->cursor.words[LUAJIT_CFRAME] = prev & ~(uint64_t)LUAJIT_CFRAME_FLAGS;
	}
	return r;
}

/*
 * Finds the nearest C frame above SP and puts its address into w->value, for code whose own frame
 * on top of it has no fixed size. Spilled values of a trace are at most 1 KiB. Non-zero: not found.
 */
KILN_GLOBAL int luajit_scan(uint32_t slot, uint64_t sp)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t frame = (sp + 15) & ~15ULL, l;

	if (!w)
		return -1;
	for (int i = 0; i < LUAJIT_SCAN; i++, frame += 16) {
		if (walk_read(w, frame + LUAJIT_CFRAME_L, &l))
			return -1;
		if (!luajit_is_pointer(l))
			continue;
		if ((w->cursor.words[LUAJIT_L] == l && w->cursor.words[LUAJIT_CFRAME] == frame) ||
		    (luajit_word(l + LUAJIT_L_CFRAME) & ~(uint64_t)LUAJIT_CFRAME_FLAGS) == frame) {
			w->value = frame;
			return 0;
		}
	}
	return -1;
}
