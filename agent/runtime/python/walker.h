/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The walk of Python frames (CPython 3.6 to 3.15), on top of bpf/unwind.h; for BPF and for the
 * host.
 *
 * Up to 3.10 a native frame of _PyEval_EvalFrameDefault stands for one Python frame. From 3.11 on
 * it stands for a group: all Python frames down to the one that the C function was entered with.
 * The chain of Python frames begins at the thread's state, and each native frame takes one group
 * off it. So Python's frames lie between the C frames that called them and the C frames that they
 * called. docs/unwinding/python.md has the sources of all this.
 *
 * The first word of a frame is the code object's address. The second has the last instruction, in
 * the version's unit, in its low half and kiln_python_cookie() of the code object in its high half.
 * Everything read is foreign: Brent's method finds a chain that turns back on itself, and any other
 * chain has a limit.
 */
#pragma once

#include "agent/runtime/python/walker_data.h"

/* What w->cursor holds. */
enum {
	PYTHON_STATE, /* the thread state */
	PYTHON_FRAME, /* the frame to emit next; 0: the chain is at its end */
	/* The code object of the last frame; its cookie is in PYTHON_PROGRESS. */
	PYTHON_CODE,
	PYTHON_PROGRESS, /* cookie << 32 | frames looked at << 8 | enum python_stage */
	/* The struct on the C stack that belongs to the current group: CFrame, or the shim. */
	PYTHON_ANCHOR,
	PYTHON_TORTOISE, /* an earlier frame, for Brent's method */
};

/* How the current thread state was found. Each way is tried once, in this order. */
enum python_stage { PYTHON_NEW, PYTHON_RUNNING, PYTHON_BOUND, PYTHON_LISTED, PYTHON_OVER };

KILN_INLINE const struct kiln_python *python_data(const struct kiln_walk *w)
{
	return (const struct kiln_python *)w->runtime.data;
}

/* Returns the word at ADDRESS. If it cannot be read, returns 0 and sets w->unreadable. */
KILN_INLINE uint64_t python_word(struct kiln_walk *w, uint64_t address)
{
	uint64_t v = 0;

	if (!env_read(&v, 8, address))
		return v;
	w->unreadable = 1;
	return 0;
}

/*
 * Returns the word of w->scratch that has byte OFFSET, shifted so that this byte is the lowest. A
 * field must lie within one word.
 */
KILN_INLINE uint64_t python_field(const struct kiln_walk *w, uint32_t offset)
{
	uint32_t i = offset >> 3 & 15;

	asm volatile("" : "+r"(i));
	return w->scratch[i & 15] >> ((offset & 7) * 8);
}

KILN_INLINE uint32_t python_stage(const struct kiln_walk *w)
{
	return (uint32_t)w->cursor.words[PYTHON_PROGRESS] & 255;
}

KILN_INLINE void python_enter_stage(struct kiln_walk *w, uint32_t stage)
{
	w->cursor.words[PYTHON_PROGRESS] =
	    (w->cursor.words[PYTHON_PROGRESS] & ~255ULL) | (stage & 255);
}

/* Does STATE belong to this thread? Then thread_id (pthread_self()) is the thread pointer. */
KILN_INLINE int python_is_own(struct kiln_walk *w, uint64_t state)
{
	return state && python_word(w, state + python_data(w)->thread_id) == w->thread_pointer;
}

/* Returns the running state of this thread; 0: the thread does not hold the interpreter's lock. */
KILN_INLINE uint64_t python_running(struct kiln_walk *w)
{
	const struct kiln_python *p = python_data(w);
	uint64_t state = 0, block = w->thread_pointer;

	if (p->flags & KILN_PYTHON_HAS_CURRENT)
		state = python_word(w, p->current);
	if (p->flags & KILN_PYTHON_HAS_TLS) {
		/* The second word of the control block: the vector of TLS blocks (glibc, musl). */
		if (p->tls_module) {
			block = python_word(w, block + 8);
			block =
			    python_word(w, block + ((uint64_t)p->tls_module << (p->tls_shift & 7)));
			/* Not allocated yet (glibc 2.36, elf/dl-tls.c: TLS_DTV_UNALLOCATED). */
			if (block == ~0ULL)
				block = 0;
		}
		state = block ? python_word(w, block + (uint64_t)p->tls_offset) : 0;
	}
	return python_is_own(w, state) ? state : 0;
}

/*
 * Returns the state that PyGILState keeps for this thread, whether or not the thread holds the
 * lock; 0: not known.
 */
KILN_INLINE uint64_t python_bound(struct kiln_walk *w)
{
	const struct kiln_python *p = python_data(w);
	uint64_t base = w->thread_pointer;

	if (!(p->flags & KILN_PYTHON_HAS_TSD))
		return 0;
	if (p->tsd_first)
		base = python_word(w, base + p->tsd_first);
	return base ? python_word(w, base + (uint64_t)(int64_t)p->tsd_second) : 0;
}

/*
 * Searches the interpreters' lists of threads for a state of this thread that is not the current
 * one, and puts it into w->value: the thread's state in another interpreter, or its first one when
 * neither other way has found it. Non-zero: there is none.
 */
KILN_GLOBAL int python_listed(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	const struct kiln_python *p;
	uint64_t interp, state;

	if (!w)
		return -1;
	p = python_data(w);
	w->value = 0;
	if (!(p->flags & KILN_PYTHON_HAS_LIST))
		return -1;
	interp = python_word(w, p->interpreters);
	/* A thread has one state in each interpreter. With one interpreter there is no other. */
	if (!interp || (w->cursor.words[PYTHON_STATE] && !python_word(w, interp + p->interp_next)))
		return -1;
	state = python_word(w, interp + p->interp_threads);
	for (int i = 0; i < KILN_PYTHON_THREADS_MAX; i++) {
		if (!state) {
			interp = python_word(w, interp + p->interp_next);
			if (!interp)
				return -1;
			state = python_word(w, interp + p->interp_threads);
			continue;
		}
		if (state != w->cursor.words[PYTHON_STATE] && python_is_own(w, state)) {
			w->value = state;
			return 0;
		}
		state = python_word(w, state + p->thread_next);
	}
	return -1;
}

/*
 * Makes STATE the current state, at the head of its chain. Non-zero: STATE has no frames, or was
 * the current state already.
 */
KILN_INLINE int python_begin(struct kiln_walk *w, uint64_t state)
{
	const struct kiln_python *p = python_data(w);
	uint64_t frame;

	if (!state || state == w->cursor.words[PYTHON_STATE])
		return -1;
	frame = python_word(w, state + p->thread_frame);
	w->cursor.words[PYTHON_STATE] = state;
	w->cursor.words[PYTHON_ANCHOR] = 0;
	if (p->cframe_frame != KILN_PYTHON_NONE && p->kind == KILN_PYTHON_OBJECTS) {
		w->cursor.words[PYTHON_ANCHOR] = python_word(w, state + p->cframe_frame);
	} else if (p->cframe_frame != KILN_PYTHON_NONE) {
		w->cursor.words[PYTHON_ANCHOR] = frame;
		frame = frame ? python_word(w, frame + p->cframe_frame) : 0;
	}
	w->cursor.words[PYTHON_FRAME] = frame;
	w->cursor.words[PYTHON_TORTOISE] = 0;
	return frame ? 0 : -1;
}

/* Goes on to the next state of this thread that has frames. Non-zero: there is none. */
KILN_GLOBAL int python_next_state(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	uint32_t stage;

	if (!w || !w->thread_pointer)
		return -1;
	stage = python_stage(w);
	if (stage < PYTHON_RUNNING) {
		python_enter_stage(w, PYTHON_RUNNING);
		if (!python_begin(w, python_running(w)))
			return 0;
	}
	if (stage < PYTHON_BOUND) {
		python_enter_stage(w, PYTHON_BOUND);
		if (!python_begin(w, python_bound(w)))
			return 0;
	}
	if (stage < PYTHON_LISTED) {
		python_enter_stage(w, PYTHON_LISTED);
		if (!python_listed(w->slot) && !python_begin(w, w->value))
			return 0;
	}
	python_enter_stage(w, PYTHON_OVER);
	return -1;
}

/* Is ADDRESS within the native frame in w->regs? 1 also when the frame's size is not known. */
KILN_INLINE int python_in_native_frame(struct kiln_walk *w, uint64_t address)
{
	uint64_t pc = w->regs.pc - (w->exact ? 0 : 1), cfa;
	const struct kiln_cache_entry *entry = env_cache(w, pc);

	if (!entry || entry->pc != pc || entry->tag != w->tag || entry->rule.kind != KILN_RULE_CFA)
		return 1;
	if (entry->rule.reg == ARCH_REG_SP)
		cfa = w->regs.sp;
	else if (entry->rule.reg == ARCH_REG_FP)
		cfa = w->regs.fp;
	else
		return 1;
	cfa += (uint64_t)(int64_t)entry->rule.cfa_off;
	return address >= w->regs.sp - KILN_RED_ZONE && address < cfa;
}

/* Is CANDIDATE, a register's value, a frame object that is about to become the chain's head? */
KILN_INLINE int python_is_pending(struct kiln_walk *w, uint64_t candidate)
{
	const struct kiln_python *p = python_data(w);
	uint64_t frame = w->cursor.words[PYTHON_FRAME];

	return candidate && !(candidate & 7) && candidate != frame &&
	       python_word(w, candidate + p->frame_from + p->frame_previous) == frame &&
	       python_word(w, candidate + 8) == python_word(w, frame + 8);
}

/*
 * Up to 3.10 each frame object belongs to one native frame. While that native frame is being
 * entered or left, its frame object is not the head of the chain: not yet, or not any more. gcc
 * keeps the frame object in `extra` for all of the function (rbx on x86-64: seen in builds of 3.6
 * to 3.10); at the very beginning of the function it is an argument. Returns 1: the head is the
 * frame object of the native frame in w->regs; 0: not known.
 */
KILN_GLOBAL int python_take_pending(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t found;

	if (!w)
		return 0;
	found = w->regs.extra;
	if (w->leaf_valid && w->regs.pc - python_data(w)->eval < KILN_PYTHON_PROLOGUE) {
		/* `extra` may still be the caller's, which may be the same function. */
		if (python_is_pending(w, w->leaf[ARCH_REG_ARG0]))
			found = w->leaf[ARCH_REG_ARG0];
		else if (python_is_pending(w, w->leaf[ARCH_REG_ARG1]))
			found = w->leaf[ARCH_REG_ARG1];
	}
	if (found == w->cursor.words[PYTHON_FRAME])
		return 1;
	if (!python_is_pending(w, found))
		return 0;
	w->cursor.words[PYTHON_FRAME] = found;
	return 1;
}

/* Ends the walk of the chain; WHY is an enum kiln_missing. Not inlined, so that the usual path of
 * python_frame() takes few cache lines. */
KILN_GLOBAL int python_stop(uint32_t slot, uint32_t why)
{
	struct kiln_walk *w = env_walk(slot);

	if (!w)
		return 1;
	w->cursor.words[PYTHON_FRAME] = 0;
	python_enter_stage(w, PYTHON_OVER);
	walk_missing(w, (enum kiln_missing)why);
	return 1;
}

/*
 * Counts FRAME. Non-zero: the chain has come back to FRAME, or has too many frames; the walk of the
 * chain is ended then.
 */
KILN_INLINE int python_count(struct kiln_walk *w, uint64_t frame)
{
	uint32_t n = ((uint32_t)w->cursor.words[PYTHON_PROGRESS] >> 8) + 1;

	if (n > KILN_PYTHON_STEPS_MAX)
		return python_stop(w->slot, KILN_MISSING_BUDGET);
	if (frame == w->cursor.words[PYTHON_TORTOISE])
		return python_stop(w->slot, KILN_MISSING_BROKEN);
	if (!(n & (n - 1)))
		w->cursor.words[PYTHON_TORTOISE] = frame;
	w->cursor.words[PYTHON_PROGRESS] += 256;
	return 0;
}

/*
 * Returns the address where the instructions of CODE begin. COPY: the index of the thread's own
 * copy of them; 0: the object's.
 */
KILN_INLINE uint64_t python_instructions(struct kiln_walk *w, uint64_t code, uint32_t copy)
{
	const struct kiln_python *p = python_data(w);
	uint64_t copies;

	/* Free-threaded 3.14: struct _PyCodeArray {size, entries[]}; entry 0 is the object's own.
	 */
	if (!p->code_copies || !copy)
		return code + p->code_start;
	copies = python_word(w, code + p->code_copies);
	return python_word(w, copies + 8 + (uint64_t)copy * 8);
}

/*
 * Emits the current frame and goes on to its caller. Returns 0: the caller belongs to the same
 * native frame; 1: it does not, or there is none.
 */
KILN_GLOBAL int python_frame(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	const struct kiln_python *p;
	uint64_t frame, code, instr, owner;
	uint32_t len, copy;

	if (!w)
		return 1;
	p = python_data(w);
	frame = w->cursor.words[PYTHON_FRAME];
	if (!frame)
		return 1;
	if (python_count(w, frame))
		return 1;
	len = p->frame_len;
	if (len > KILN_PYTHON_FRAME_BYTES)
		len = KILN_PYTHON_FRAME_BYTES;
	if (env_read(w->scratch, len, frame + p->frame_from))
		return python_stop(w->slot, KILN_MISSING_READ);
	code = python_field(w, p->frame_code) & ~7ULL;
	instr = python_field(w, p->frame_instr);
	copy = (uint32_t)python_field(w, p->frame_copy);
	owner = python_field(w, p->frame_owner) & 255;
	w->cursor.words[PYTHON_FRAME] = python_field(w, p->frame_previous);
	if (p->kind == KILN_PYTHON_SHIM && owner >= p->shim_owner) {
		w->cursor.words[PYTHON_ANCHOR] = frame;
		return 1;
	}
	if (!code)
		return python_stop(w->slot, KILN_MISSING_BROKEN);
	if (code != w->cursor.words[PYTHON_CODE]) {
		if (env_read(w->scratch, KILN_PYTHON_CODE_WORDS * 8, code + p->code_from))
			return python_stop(w->slot, KILN_MISSING_READ);
		if (p->code_type && w->scratch[0] != p->code_type)
			return python_stop(w->slot, KILN_MISSING_BROKEN);
		w->cursor.words[PYTHON_CODE] = code;
		w->cursor.words[PYTHON_PROGRESS] =
		    (w->cursor.words[PYTHON_PROGRESS] & 0xffffffffULL) |
		    (uint64_t)kiln_python_cookie(w->scratch, p->code_mask) << 32;
	}
	if (p->kind != KILN_PYTHON_OBJECTS) {
		w->unreadable = 0;
		instr -= python_instructions(w, code, copy);
		if (w->unreadable)
			return python_stop(w->slot, KILN_MISSING_READ);
	}
	if (walk_emit(w, 0, code,
		      (w->cursor.words[PYTHON_PROGRESS] & ~0xffffffffULL) | (uint32_t)instr))
		return 1;
	return p->kind == KILN_PYTHON_OBJECTS || (p->kind == KILN_PYTHON_ENTRY && owner);
}

KILN_INLINE void python_group(struct kiln_walk *w)
{
	for (int i = 0; i < KILN_MAX_USER_FRAMES + 1; i++) {
		if (python_frame(w->slot))
			break;
	}
}

/* Emits the Python frames of the native frame in w->regs. */
KILN_GLOBAL int python_walk(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	const struct kiln_python *p;
	uint32_t n, frames, limit, fresh;
	uint64_t start;

	if (!w)
		return 0;
	p = python_data(w);
	fresh = python_stage(w) == PYTHON_NEW;
	w->unreadable = 0;
	if (!w->cursor.words[PYTHON_FRAME] && python_next_state(w->slot)) {
		/* Not an error later in the stack: the native frame is being entered or left. */
		if (fresh)
			walk_missing(w, w->unreadable ? KILN_MISSING_READ : KILN_MISSING_NO_THREAD);
		return 0;
	}
	if (fresh && !(p->kind == KILN_PYTHON_OBJECTS && python_take_pending(w->slot)) &&
	    w->cursor.words[PYTHON_ANCHOR] &&
	    !python_in_native_frame(w, w->cursor.words[PYTHON_ANCHOR]))
		return 0;
	start = w->cursor.words[PYTHON_FRAME];
	n = w->n;
	frames = w->runtime_frames;
	limit = w->limit;
	python_group(w);
	/* 3.15: a chain ends with a shim that is in no native frame. Take the next state. */
	if (!fresh && w->n == n && !w->cursor.words[PYTHON_FRAME] && !python_next_state(w->slot))
		python_group(w);
	/*
	 * The shim lies in the native frame that the emitted frames belong to. If that is not the
	 * one in w->regs, take them back: it has no Python frames.
	 */
	if (fresh && p->kind == KILN_PYTHON_SHIM && p->cframe_frame == KILN_PYTHON_NONE &&
	    !w->full && w->cursor.words[PYTHON_ANCHOR] &&
	    !python_in_native_frame(w, w->cursor.words[PYTHON_ANCHOR])) {
		w->n = n;
		w->runtime_frames = frames;
		w->limit = limit;
		w->cursor.words[PYTHON_FRAME] = start;
		w->cursor.words[PYTHON_TORTOISE] = 0;
	}
	return 0;
}
