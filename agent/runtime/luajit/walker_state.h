/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * What the walk of LuaJIT frames reads: a thread's lua_State, the frame at a base, and the C frames
 * of the interpreter. A part of walker.h.
 */
#pragma once

#include "agent/runtime/luajit/walker_data.h"

/* What w->cursor holds. */
enum {
	LUAJIT_L,      /* the lua_State of the last native frame */
	LUAJIT_CFRAME, /* the C frame that comes before that one; 0: none */
	LUAJIT_BASE,   /* of the Lua frame to go on with */
	LUAJIT_PENDING,
	LUAJIT_COOKIE, /* of the pending frame */
	LUAJIT_SEEN,   /* frames looked at, times LUAJIT_SEEN_ONE, and flags */
};

enum {
	LUAJIT_VARARG = 1, /* the next frame is the one before, without its variable arguments */
	LUAJIT_SEEN_ONE = 2,
	/* Of LUAJIT_PENDING. */
	LUAJIT_HAS_PENDING = 1 << 3,
	LUAJIT_PENDING_SHIFT = 4,
};

/* Where w->scratch holds what: words. */
enum {
	LUAJIT_AT_SLOTS = 0, /* two below the base: function and link */
	LUAJIT_AT_FUNC = 2,
	LUAJIT_AT_PROTO = LUAJIT_AT_FUNC + LUAJIT_FUNC_WORDS,
	LUAJIT_AT_STATE = LUAJIT_AT_PROTO + LUAJIT_PROTO_SIZE / 8,
	/* The function (as its slot has it) that is at LUAJIT_AT_FUNC, with its prototype, if it is
	 * one of Lua; 0: none is. */
	LUAJIT_AT_LOADED = LUAJIT_AT_STATE + LUAJIT_L_WORDS,
	/* A pc, and the distance from the base of what it has called to its own function's base. */
	LUAJIT_AT_CALL,
	LUAJIT_AT_DISTANCE,
	/* A copy of a part of Lua's stack: where it begins (0: there is none), and the words. */
	LUAJIT_AT_COPIED,
	LUAJIT_AT_COPY,
};
enum { LUAJIT_COPY_WORDS = 32 }; /* a power of 2 */
_Static_assert(LUAJIT_AT_COPY + LUAJIT_COPY_WORDS <= 72, "struct kiln_walk.scratch");

/* What is at a base. */
enum luajit_kind {
	LUAJIT_BROKEN,
	LUAJIT_BOTTOM, /* the stack begins here */
	LUAJIT_LUA,    /* a function of Lua */
	LUAJIT_NATIVE, /* a function of C, or a fast function */
};

/* How sure it is that a base and a pc belong to each other. */
enum luajit_fit { LUAJIT_FITS_NOT, LUAJIT_FITS_FRAME, LUAJIT_FITS };

enum {
	LUAJIT_REG_BASE = 1,	    /* DWARF number of rdx */
	LUAJIT_SCAN = 96,	    /* places of a C frame that are tried */
	LUAJIT_DELTA_MAX = 1 << 24, /* bytes: a link that is no pc */
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
 * The two words below BASE, function and link, into the scratch; BASE is on the stack that begins
 * at STACK. Frames are small and lie one behind the other, so several are read at once, from BASE
 * downwards. 0, or -1.
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
	/* Else the compiler drops the masks, which the verifier needs. */
	asm volatile("" : "+r"(i));
	w->scratch[LUAJIT_AT_SLOTS] = w->scratch[LUAJIT_AT_COPY + (i & (LUAJIT_COPY_WORDS - 1))];
	w->scratch[LUAJIT_AT_SLOTS + 1] =
	    w->scratch[LUAJIT_AT_COPY + ((i + 1) & (LUAJIT_COPY_WORDS - 1))];
	return 0;
}

/* Reads the frame at BASE into the scratch; its enum luajit_kind. */
KILN_GLOBAL int luajit_load(uint32_t slot, uint64_t base)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t stack, size, tag, pc;

	if (!w)
		return LUAJIT_BROKEN;
	stack = luajit_state(w, LUAJIT_L_STACK);
	size = (luajit_state(w, LUAJIT_L_STACKSIZE) & 0xffffffff) * 8;
	if ((base & 7) || base - stack < 16 || base - stack > size)
		return LUAJIT_BROKEN;
	if (luajit_read_slots(w, base, stack))
		return LUAJIT_BROKEN;
	/* A function that has called itself is there already. */
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
	return LUAJIT_LUA;
}

/* Is the instruction at AT one of the Lua function that was loaded? */
KILN_INLINE int luajit_has(const struct kiln_walk *w, uint64_t at)
{
	uint64_t start = w->scratch[LUAJIT_AT_FUNC + LUAJIT_FUNC_PC / 8];
	uint64_t size = w->scratch[LUAJIT_AT_PROTO + LUAJIT_PROTO_SIZEBC / 8] >> 32;

	return !(at & 3) && at - start < size * 4;
}

/*
 * Is PC, which points behind the instruction that is executed or (before the first one) at the
 * first one, of the function of the frame at BASE? An enum luajit_fit.
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

/* The same, as a function of its own. */
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

/* Before anything is loaded. */
KILN_INLINE void luajit_begin_loading(struct kiln_walk *w)
{
	w->scratch[LUAJIT_AT_LOADED] = w->scratch[LUAJIT_AT_COPIED] = 0;
	w->scratch[LUAJIT_AT_CALL] = 1; /* no pc */
}

/* ---- C frames ----------------------------------------------------------------------------------
 */

/* What the C frame at hand is of its lua_State. */
enum luajit_cframe {
	LUAJIT_CFRAME_NONE,  /* it is not one, or is not linked yet or any more */
	LUAJIT_CFRAME_FIRST, /* the newest */
	LUAJIT_CFRAME_NEXT,  /* the one that is older than the last one of the walk */
};

/*
 * Is there a C frame at FRAME, and which? Reads its lua_State into the scratch, and makes the
 * cursor that of its lua_State.
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
 * The C frame that is nearest above SP, for code whose own frame on top of it has no fixed size:
 * in w->value. Spilled values of a trace are at most 1 KiB. Non-zero: there is none.
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
