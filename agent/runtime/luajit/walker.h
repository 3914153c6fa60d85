/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The walk of LuaJIT frames (2.1 with 64-bit references, x86-64), on top of bpf/unwind.h; for BPF
 * and for the host. docs/unwinding/luajit.md has the sources of all this.
 *
 * The interpreter is one piece of assembly. Each time that C code calls Lua, the interpreter makes
 * a C frame of 80 bytes, which points to its lua_State and to the previous C frame. Calls from Lua
 * to Lua stay within the C frame; their Lua frames lie on the lua_State's own stack, linked by the
 * word below each base. A Lua frame that C code called ends the group of Lua frames of one C frame.
 *
 * The code of a trace has a native frame of its own size on top of a C frame, and no Lua frames for
 * the functions that it has inlined: it is shown as the function in which the trace began. The C
 * frame is found by a search for its lua_State, which points back to the C frame.
 *
 * At the leaf the base is in rdx and the pc in rbx; they are used if the pc is in the function of
 * the frame at the base. Elsewhere rbx is a callee-saved register, which the walk restores, and the
 * base is in rbp or in the lua_State.
 *
 * All memory that is read is foreign: every loop has a constant bound.
 */
#pragma once

#include "agent/runtime/luajit/walker_frames.h"

/* Unwinds from the C frame at FRAME to the native caller. */
KILN_INLINE void luajit_leave(struct kiln_walk *w, uint64_t frame)
{
	uint64_t rbx, rbp, ra;

	if (walk_read(w, frame + LUAJIT_CFRAME_RBX, &rbx) ||
	    walk_read(w, frame + LUAJIT_CFRAME_RBP, &rbp) ||
	    walk_read(w, frame + LUAJIT_CFRAME_RA, &ra))
		return;
	if (!walk_enter(w, ra, frame + LUAJIT_CFRAME_SIZE, rbp, rbx))
		w->stepped = 1;
}

/* ---- traces ------------------------------------------------------------------------------------
 */

/*
 * luajit_read_trace() puts a part of a GCtrace into w->scratch, in place of a Lua frame: from
 * startpc on, up to the numbers of other traces.
 */
enum {
	LUAJIT_TRACE_CODE = -LUAJIT_TRACE_STARTPC / 8,
	LUAJIT_TRACES_MAX = 64, /* traces that are searched for one native frame */
};

/* Reads the trace NUMBER of the table at TRACES into w->scratch. Non-zero: there is none. */
KILN_INLINE int luajit_read_trace(struct kiln_walk *w, uint64_t traces, uint32_t number)
{
	uint64_t trace = number ? luajit_word(traces + number * 8ULL) : 0;

	w->scratch[LUAJIT_AT_LOADED] = 0;
	return !trace || env_read(w->scratch, LUAJIT_TRACE_WORDS * 8,
				  trace + luajit_data(w)->trace_mcode +
				      (uint64_t)(int64_t)LUAJIT_TRACE_STARTPC);
}

/* The 16-bit field at OFFSET (from GCtrace.mcode) of the trace that was read. */
KILN_INLINE uint32_t luajit_trace_field(const struct kiln_walk *w, uint32_t offset)
{
	return w->scratch[LUAJIT_TRACE_CODE + offset / 8] >> offset % 8 * 8 & 0xffff;
}

/* Is PC in the code of the trace that was read? */
KILN_INLINE int luajit_traces(const struct kiln_walk *w, uint64_t pc)
{
	return pc - w->scratch[LUAJIT_TRACE_CODE] < w->scratch[LUAJIT_TRACE_CODE - 1] >> 32;
}

/*
 * Puts the address of the instruction at which the root trace began into w->value, for the trace
 * (the root trace or one of its side traces) whose code is at PC; 0: not known. global_State tells
 * which trace is executed, unless the trace has called code that changes that value (the garbage
 * collector). Then the traces that began in the loaded function are searched.
 */
KILN_GLOBAL int luajit_trace_start(uint32_t slot, uint64_t g, uint64_t pc)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t traces;
	uint32_t root = 0, next, number = 0;

	if (!w)
		return 0;
	w->value = 0;
	next = w->scratch[LUAJIT_AT_PROTO + LUAJIT_PROTO_TRACE / 8] >> 48;
	traces = luajit_word(g + (uint64_t)(int64_t)luajit_data(w)->trace);
	if (!env_read(&number, 4, g + (uint64_t)(int64_t)luajit_data(w)->vmstate) &&
	    number <= 0xffff && !luajit_read_trace(w, traces, number) && luajit_traces(w, pc)) {
		root = luajit_trace_field(w, LUAJIT_TRACE_ROOT);
		if (!root)
			root = number;
		next = 0;
	}
	for (int i = 0; i < LUAJIT_TRACES_MAX && next; i++) {
		if (luajit_read_trace(w, traces, next))
			return 0;
		number = luajit_trace_field(w, LUAJIT_TRACE_ROOT);
		if (luajit_traces(w, pc)) {
			root = number ? number : next;
			break;
		}
		next = luajit_trace_field(w, LUAJIT_TRACE_NEXTSIDE);
		/* After the last side trace of a root trace comes the next root trace. */
		if (!next && number && luajit_read_trace(w, traces, number))
			return 0;
		if (!next)
			next = luajit_trace_field(w, LUAJIT_TRACE_NEXTROOT);
	}
	if (root && !luajit_read_trace(w, traces, root))
		w->value = w->scratch[0];
	return 0;
}

/*
 * Finds where the Lua frames begin for native code on top of the C frame at FRAME: a trace, or code
 * that leaves one. SHOWN: KILN_LUAJIT_TRACE for a trace. Returns an enum luajit_begin.
 */
KILN_GLOBAL int luajit_traced(uint32_t slot, uint64_t frame, uint32_t shown)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t g, base, live;
	int r = luajit_enter(slot, frame);

	if (!w || !r)
		return LUAJIT_UNKNOWN;
	base = w->cursor.words[LUAJIT_BASE];
	g = luajit_state(w, LUAJIT_L_GLREF);
	if (r == LUAJIT_CFRAME_FIRST) {
		live = luajit_word(g + (uint64_t)(int64_t)luajit_data(w)->jit_base);
		if (live)
			base = live;
	}
	w->value = 0;
	if (shown == KILN_LUAJIT_TRACE && luajit_load(slot, base) == LUAJIT_LUA)
		(void)luajit_trace_start(slot, g, w->regs.pc - (w->exact ? 0 : 1));
	return luajit_begin(w, base, w->value ? w->value + 4 : 0);
}

/* For code in memory without a file, a trace or its exits: the Lua frame replaces the native one.
 * *RET_FRAME: the C frame. Returns an enum luajit_begin. */
KILN_INLINE int luajit_jit(struct kiln_walk *w, uint64_t *ret_frame)
{
	if (!luajit_data(w)->has_jit || luajit_scan(w->slot, w->regs.sp))
		return LUAJIT_UNKNOWN;
	*ret_frame = w->value;
	w->hide_native = luajit_traced(w->slot, *ret_frame, KILN_LUAJIT_TRACE) == LUAJIT_GROUP;
	return w->hide_native ? LUAJIT_GROUP : LUAJIT_UNKNOWN;
}

/* ---- the interpreter ---------------------------------------------------------------------------
 */

/*
 * The distance in bytes from sp up to the return address if the code at PC is making a C frame or
 * removing it; negative if it is not. The registers that are pushed are rbp, rbx, r15, r14.
 */
KILN_GLOBAL int luajit_pushed(uint64_t pc)
{
	uint8_t code[12] = {0};
	uint64_t low;

	if (env_read(code, sizeof(code), pc))
		return -1;
	/* endbr64 */
	if (code[0] == 0xf3 && code[1] == 0x0f && code[2] == 0x1e && code[3] == 0xfa &&
	    code[4] == 0x55)
		return 0;
	__builtin_memcpy(&low, code, 8);
	/* push %rbp; push %rbx; push %r15; push %r14; sub $40,%rsp */
	if (low == 0x8348564157415355ULL)
		return 0;
	if (low == 0xec83485641574153ULL)
		return 8;
	if (low == 0x28ec834856415741ULL)
		return 16;
	if ((low & 0xffffffffffffULL) == 0x28ec83485641ULL)
		return 24;
	if ((low & 0xffffffffULL) == 0x28ec8348ULL)
		return 32;
	/* pop %r14; pop %r15; pop %rbx; pop %rbp; ret */
	if ((low & 0xffffffffffffULL) == 0x5d5b5f415e41ULL)
		return 32;
	if ((low & 0xffffffffffULL) == 0xc35d5b5f41ULL)
		return 24;
	if ((low & 0xffffffULL) == 0xc35d5bULL)
		return 16;
	if ((low & 0xffffULL) == 0xc35dULL)
		return 8;
	return (low & 0xff) == 0xc3 ? 0 : -1;
}

/* Unwinds to the native caller. The return address is PUSHED bytes above sp, and the pushed
 * registers lie in between. */
KILN_INLINE void luajit_return(struct kiln_walk *w, uint32_t pushed)
{
	uint64_t at = w->regs.sp + pushed, ra, rbp = w->regs.fp, rbx = w->regs.extra;

	if ((pushed >= 16 && walk_read(w, at - 16, &rbx)) ||
	    (pushed >= 8 && walk_read(w, at - 8, &rbp)) || walk_read(w, at, &ra))
		return;
	if (!walk_enter(w, ra, at + 8, rbp, rbx))
		w->stepped = 1;
}

/* Finds the base of a frame whose function has PC, when C code may run on top of the interpreter,
 * and puts it into w->value. Non-zero: not found. */
KILN_GLOBAL int luajit_find(uint32_t slot, uint64_t pc)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t bases[3];

	if (!w)
		return -1;
	bases[0] = w->regs.fp;
	bases[1] = w->leaf_valid || w->leaf_called ? w->leaf[LUAJIT_REG_BASE] : 0;
	bases[2] = luajit_state(w, LUAJIT_L_BASE);
	for (int i = 0; i < 3; i++) {
		if (luajit_fits(w, bases[i], pc) == LUAJIT_FITS) {
			w->value = bases[i];
			return 0;
		}
	}
	return -1;
}

/*
 * Is PC the link of the frame at BASE, except for its type bits? Then its function returns to a
 * caller that is not Lua.
 */
KILN_INLINE int luajit_returns(struct kiln_walk *w, uint64_t base, uint64_t pc)
{
	return luajit_load(w->slot, base) > LUAJIT_BOTTOM &&
	       (w->scratch[LUAJIT_AT_SLOTS + 1] ^ pc) < 8;
}

/*
 * The interpreter prepares the call of a metamethod: PC is the metamethod's link, and BASE is the
 * base of the caller or already that of the metamethod. The caller's pc is on the Lua stack.
 */
KILN_INLINE int luajit_calls_metamethod(struct kiln_walk *w, uint64_t base, uint64_t pc)
{
	uint64_t delta = pc & ~7ULL, at;

	at = luajit_word(base - 24);
	if (luajit_fits(w, base - delta, at) == LUAJIT_FITS)
		return luajit_begin(w, base - delta, at);
	at = luajit_word(base + delta - 24);
	if (luajit_fits(w, base, at) == LUAJIT_FITS)
		return luajit_begin(w, base, at);
	return LUAJIT_UNKNOWN;
}

/* For the C frame of an FFI callback, while C code passes the arguments or the result. */
KILN_INLINE int luajit_callback(struct kiln_walk *w, uint64_t base)
{
	if (luajit_load(w->slot, base) > LUAJIT_BOTTOM &&
	    (w->scratch[LUAJIT_AT_SLOTS + 1] & 7) == LUAJIT_FRAME_CONT &&
	    luajit_word(base - 32) == LUAJIT_CONT_CALLBACK)
		return luajit_begin(w, base, 0);
	return luajit_no_group(w, base);
}

/* For the leaf, when its pc register holds the link of a frame that Lua did not call. */
KILN_GLOBAL int luajit_linked(uint32_t slot, uint64_t base, uint64_t pc)
{
	struct kiln_walk *w = env_walk(slot);

	if (!w)
		return LUAJIT_UNKNOWN;
	if (luajit_returns(w, base, pc))
		return luajit_begin(w, base, 0);
	/* Returning from a metamethod: BASE is already the caller's. */
	if (luajit_returns(w, w->regs.fp, pc))
		return luajit_begin(w, w->regs.fp, 0);
	if ((pc & 7) == LUAJIT_FRAME_CONT)
		return luajit_calls_metamethod(w, base, pc);
	/* BASE is already the base of the arguments. */
	if ((pc & 7) == LUAJIT_FRAME_VARG && luajit_fits(w, base, pc))
		return luajit_begin(w, base, 0);
	return LUAJIT_UNKNOWN;
}

/*
 * Finds where the Lua frames begin if the interpreter itself is the leaf, on the C frame at FRAME.
 * Between two instructions pc is in the function of the frame at base. A call or a return changes
 * one register after the other: in between, pc is still or already in the caller.
 */
KILN_GLOBAL int luajit_leaf(uint32_t slot, uint64_t frame)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t base, pc, caller, last;
	int r;

	if (!w)
		return LUAJIT_UNKNOWN;
	base = w->leaf[LUAJIT_REG_BASE];
	pc = w->regs.extra;
	if (luajit_fit(slot, base, pc) == LUAJIT_FITS)
		return luajit_begin(w, base, pc);
	if (pc < LUAJIT_DELTA_MAX) {
		r = luajit_linked(slot, base, pc);
		if (r != LUAJIT_UNKNOWN)
			return r;
	} else if (!(pc & 3)) {
		caller = luajit_caller(w, base, pc);
		if (luajit_fit(slot, caller, pc) == LUAJIT_FITS)
			return luajit_begin(w, caller, pc);
	}
	/* C code is calling a function that has not executed an instruction yet. */
	last = luajit_word(frame + LUAJIT_CFRAME_PC);
	if ((pc & 3) == LUAJIT_FRAME_C && (!last || last == w->cursor.words[LUAJIT_L]))
		return luajit_no_group(w, luajit_state(w, LUAJIT_L_BASE));
	if (!luajit_find(slot, pc))
		return luajit_begin(w, w->value, pc);
	/* The results are being moved to where C code wants them: pc is the base of C's frame. */
	if (luajit_load(slot, pc) != LUAJIT_BROKEN)
		return luajit_no_group(w, pc);
	if (luajit_load(slot, base) == LUAJIT_NATIVE)
		return luajit_begin(w, base, 0);
	return LUAJIT_UNKNOWN;
}

/*
 * Finds where the Lua frames of the C frame at FRAME begin. The interpreter's code on it is the
 * leaf or has called other code. CALLBACK: that code is the entry by which C code calls Lua through
 * a function pointer (FFI).
 */
KILN_INLINE int luajit_interpreted(struct kiln_walk *w, uint64_t frame, int callback)
{
	uint64_t results, base, pc = w->regs.extra;
	/* The newest C frame may not be linked to its lua_State yet, or not any more. */
	int newest = !w->cursor.words[LUAJIT_L], r = luajit_enter(w->slot, frame);

	if (!r)
		return w->exact || newest ? LUAJIT_NO_GROUP : LUAJIT_UNKNOWN;
	if (!walk_read(w, frame + LUAJIT_CFRAME_NRES, &results) && (results & 0x80000000))
		return LUAJIT_NO_GROUP;
	if (r == LUAJIT_CFRAME_NEXT)
		return luajit_begin(w, w->cursor.words[LUAJIT_BASE], pc);
	base = luajit_state(w, LUAJIT_L_BASE);
	if (callback &&
	    (!w->exact || luajit_fit(w->slot, w->leaf[LUAJIT_REG_BASE], pc) != LUAJIT_FITS))
		return luajit_callback(w, base);
	if (w->exact && w->leaf_valid)
		return luajit_leaf(w->slot, frame);
	if (!luajit_find(w->slot, pc))
		base = w->value;
	return luajit_begin(w, base, pc);
}

/*
 * For a native frame of the interpreter, AT bytes from the start of its code. *RET_FRAME is set to
 * the C frame if the unwind information does not lead to its caller. Returns an enum luajit_begin.
 */
KILN_INLINE int luajit_vm(struct kiln_walk *w, uint32_t at, uint64_t *ret_frame)
{
	const struct kiln_luajit *d = luajit_data(w);
	uint64_t frame = w->regs.sp;
	int pushed;

	if (at >= d->exit_from && at < d->exit_to) {
		if (luajit_scan(w->slot, w->regs.sp))
			return LUAJIT_UNKNOWN;
		*ret_frame = w->value;
		return luajit_traced(w->slot, *ret_frame, KILN_LUAJIT_LUA);
	}
	if (w->exact && w->leaf_valid) {
		if (at >= d->enter_from && at < d->enter_to) {
			*ret_frame = frame + LUAJIT_CFRAME_JIT;
			return luajit_interpreted(w, *ret_frame, 0);
		}
		pushed = luajit_pushed(w->regs.pc);
		/* A helper that the interpreter, a trace or C code has called: it has no frame. */
		if (pushed < 0 && (frame & 15))
			pushed = 0;
		if (pushed >= 0) {
			luajit_return(w, (uint32_t)pushed & 63);
			return LUAJIT_NO_GROUP;
		}
	}
	return luajit_interpreted(w, frame, d->callback_from && at >= d->callback_from);
}

KILN_GLOBAL int luajit_walk(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t at, frame = 0;
	uint32_t shown = KILN_LUAJIT_LUA;
	int r;

	if (!w)
		return 0;
	luajit_begin_loading(w);
	at = w->regs.pc - (w->exact ? 0 : 1) - luajit_data(w)->vm;
	if (at < luajit_data(w)->vm_size) {
		r = luajit_vm(w, (uint32_t)at, &frame);
	} else {
		r = luajit_jit(w, &frame);
		shown = KILN_LUAJIT_TRACE;
	}
	if (r == LUAJIT_UNKNOWN)
		walk_missing(w, KILN_MISSING_BROKEN);
	if (r == LUAJIT_GROUP)
		(void)luajit_group(slot, w->value, shown);
	if (frame)
		luajit_leave(w, frame);
	return 0;
}
