/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The walk of Erlang's frames (BEAM with the JIT, x86-64), on top of bpf/unwind.h; for BPF and for
 * the host. docs/unwinding/beam.md has the sources of all this.
 *
 * JIT code runs on the stack of an Erlang process: rsp points into that stack. Return addresses are
 * the only words there whose two lowest bits are 0 (all terms have tags), so the caller is found by
 * a search upwards for the next such word, with frame pointers or without. The outermost function
 * returns to `normal_exit`.
 *
 * C code runs on the scheduler's own stack. Before JIT code calls C, it saves the Erlang stack
 * pointer in rbp or in c_p->stop, and sets rsp to the scheduler's registers, which rbx points into
 * and which lie at the end of process_main()'s frame. So when rsp is the address of the registers,
 * C was called by JIT code, and the Erlang frames come between the C frames and those of the
 * scheduler. The instructions before the call tell whether rbp or c_p->stop has the stack pointer.
 * c_p is the running process in the scheduler's data. That data is a thread-specific value
 * (pthread_key_create()); it is recognized because it points to the registers.
 *
 * On a dirty scheduler erts_dirty_process_main() calls C without JIT code in between.
 *
 * All memory that is read may be forged.
 */
#pragma once

#include "agent/runtime/beam/walker_data.h"

enum {
	BEAM_FRAMES_A_CALL = 16,
	BEAM_DIRTY_FRAMES = 512,
	BEAM_NEAR_WORDS = 8,	 /* words of one frame that beam_near() searches */
	BEAM_STACK_WORDS = 1100, /* words of one frame: at most 1024 variables (MAX_REG) */
	BEAM_BEFORE = 128,	 /* bytes of code before the program counter that are searched */
	BEAM_ALLOCATED = 64,	 /* bytes of code after an allocation that may set the variables */
	BEAM_LINE = 64,		 /* process_main() rounds rsp down to a multiple of this */
	BEAM_KEPT_WORDS = 48,
	BEAM_TERM_TAG = 3,	/* mask of a term's tag (erl_term.h, _TAG_PRIMARY_MASK); 0: none */
	BEAM_LEAF_PROCESS = 13, /* r13 */
	BEAM_SPECIFIC = 0x310,	/* glibc: struct pthread's specific_1stblock */
	BEAM_PAIR = 16,		/* bytes of a {seq, data} in specific_1stblock */
	BEAM_DIRTY_CPU = 1,	/* ErtsSchedType: ERTS_SCHED_DIRTY_CPU, */
	BEAM_DIRTY_IO = 2,	/* ERTS_SCHED_DIRTY_IO */
};

/* Words of w->cursor: the program counter of the last emitted frame, and its cookie. */
enum { BEAM_CURSOR_PC, BEAM_CURSOR_COOKIE };

/* Results of the functions that unwind one Erlang frame. */
enum {
	BEAM_NOTHING = -1, /* the frame could not be unwound; nothing has changed */
	BEAM_CALLER = 0,   /* w->regs is the caller, which is also an Erlang frame */
	BEAM_END = 1,	   /* there are no more Erlang frames */
};

KILN_INLINE const struct kiln_beam *beam_data(struct kiln_walk *w)
{
	return (const struct kiln_beam *)w->runtime.data;
}

/* Is PC in JIT code? If so, w->map_* is its mapping. */
KILN_INLINE int beam_is_code(struct kiln_walk *w, uint64_t pc)
{
	const struct kiln_beam *b = beam_data(w);

	if (pc - b->low >= b->high - b->low)
		return 0;
	if ((pc < w->map_start || pc >= w->map_end) && walk_find_mapping(w->slot, pc))
		return 0;
	return (w->map_flags & KILN_MAPPING_JIT) &&
	       (w->map_flags >> KILN_MAPPING_RUNTIME_SHIFT & 31) == KILN_RUNTIME_BEAM;
}

/* Does a call instruction end at PC? */
KILN_GLOBAL int beam_is_return(uint64_t pc)
{
	uint8_t code[8] = {0};

	if (env_read(code, sizeof(code), pc - sizeof(code)))
		return 0;
	/* call distance; call *%reg; call *n(%reg), call *n(%rip) */
	return code[3] == 0xe8 || (code[6] == 0xff && (code[7] & 0xf8) == 0xd0) ||
	       (code[5] == 0xff && (code[6] & 0x38) == 0x10) ||
	       (code[4] == 0xff && (code[5] & 0x38) == 0x10) ||
	       (code[2] == 0xff && (code[3] & 0x38) == 0x10);
}

/*
 * Calls of JIT helpers do not align their return addresses. Is the word at AT such an unaligned
 * return address? If so, w->value is the word.
 */
KILN_GLOBAL int beam_is_helper(uint32_t slot, uint64_t at)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t word = 0;

	if (!w || (at & 7) || walk_read(w, at, &word) || !(word & BEAM_TERM_TAG) ||
	    !beam_is_code(w, word - 1) || !beam_is_return(word))
		return 0;
	w->value = word;
	return 1;
}

/*
 * Searches the stack from AT upwards for the first return address. Returns its address on the
 * stack, and leaves the return address in w->value. 0: there is none.
 */
KILN_GLOBAL uint64_t beam_find_return(uint32_t slot, uint64_t at)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t word = 0;

	if (!w || (at & 7))
		return 0;
	for (int i = 0; i < BEAM_STACK_WORDS; i++, at += 8) {
		if (walk_read(w, at, &word))
			return 0;
		if ((word & BEAM_TERM_TAG) || !beam_is_code(w, word - 1))
			continue;
		w->value = word;
		return at;
	}
	return 0;
}

/* ---- code -------------------------------------------------------------------------------------
 */

/* Four bytes of the code in w->scratch, which ends at the program counter, from BEFORE bytes before
 * the program counter on. */
KILN_INLINE uint32_t beam_bytes(const struct kiln_walk *w, uint32_t before)
{
	uint32_t at = (BEAM_BEFORE - before) & (BEAM_BEFORE - 1), v;

	asm volatile("" : "+r"(at));
#ifdef __bpf__
	v = *(const volatile uint32_t *)((const uint8_t *)w->scratch + (at & (BEAM_BEFORE - 1)));
#else
	__builtin_memcpy(&v, (const uint8_t *)w->scratch + (at & (BEAM_BEFORE - 1)), sizeof(v));
#endif
	return v;
}

/* mov %rsp,%rbp in either encoding */
KILN_INLINE int beam_is_save(uint32_t bytes)
{
	return (bytes & 0xffffff) == 0xe58948 || (bytes & 0xffffff) == 0xec8b48;
}

/*
 * The code before PC has switched to the scheduler's stack. Did it save the Erlang stack pointer in
 * rbp? It did if `mov %rsp,%rbp` comes before `lea -n(%rbx),%rsp`, with at most a store of the
 * reductions in between (emit_enter_runtime()).
 */
KILN_GLOBAL int beam_saves_in_rbp(uint32_t slot, uint64_t pc)
{
	struct kiln_walk *w = env_walk(slot);
	uint32_t found = 0;

	if (!w || env_read(w->scratch, BEAM_BEFORE, pc - BEAM_BEFORE))
		return 0;
	for (uint32_t i = 4; i < BEAM_BEFORE - 16; i++) {
		uint32_t lea = beam_bytes(w, i) & 0xffffff;

		/* lea with a displacement of one byte, or of four */
		if (lea == 0x638d48 || lea == 0xa38d48) {
			found = i;
			break;
		}
	}
	return found &&
	       (beam_is_save(beam_bytes(w, found + 3)) || beam_is_save(beam_bytes(w, found + 7)) ||
		beam_is_save(beam_bytes(w, found + 10)));
}

/*
 * The number of bytes of variables that the function at PC has just allocated on the stack and may
 * not have set yet, so that old return addresses may lie there. Found by `sub $n,%rsp` shortly
 * before PC; 0: there are none.
 */
KILN_GLOBAL uint32_t beam_allocated(uint32_t slot, uint64_t pc)
{
	struct kiln_walk *w = env_walk(slot);

	if (!w || env_read(w->scratch, BEAM_BEFORE, pc - BEAM_BEFORE))
		return 0;
	for (uint32_t i = 4; i < BEAM_ALLOCATED; i++) {
		uint32_t bytes = beam_bytes(w, i);

		/* add $n,%rsp: variables have been freed since. */
		if ((bytes & 0xffffff) == 0xc48348 || (bytes & 0xffffff) == 0xc48148)
			return 0;
		if ((bytes & 0xffffff) == 0xec8348)
			return bytes >> 24;
		if ((bytes & 0xffffff) == 0xec8148 && i >= 7)
			return beam_bytes(w, i - 3);
	}
	return 0;
}

/* ---- the scheduler ----------------------------------------------------------------------------
 */

/* The thread-specific value of the pthread key KEY; 0: none. */
KILN_INLINE uint64_t beam_specific(struct kiln_walk *w, uint32_t key)
{
	uint64_t v = 0;

	if (!w->thread_pointer ||
	    env_read(&v, 8, w->thread_pointer + BEAM_SPECIFIC + key * BEAM_PAIR + 8))
		return 0;
	return v;
}

/* The ErtsSchedulerData whose registers are at REGISTERS; 0: none. */
KILN_GLOBAL uint64_t beam_scheduler(uint32_t slot, uint64_t registers)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t data, at;

	if (!w)
		return 0;
	for (uint32_t i = 0; i < KILN_BEAM_KEYS; i++) {
		data = beam_specific(w, i);
		if (!data || (data & 7) || env_read(&at, 8, data + beam_data(w)->data_registers))
			continue;
		if (at == registers)
			return data;
	}
	return 0;
}

/*
 * The process that runs on the scheduler DATA; 0: not known. While ETS matches, DATA names ETS' own
 * process instead (db_prog_match()).
 */
KILN_INLINE uint64_t beam_process(struct kiln_walk *w, uint64_t data)
{
	uint64_t process = 0, matching = 0;

	if (!data || env_read(&process, 8, data + beam_data(w)->data_process) ||
	    env_read(&matching, 8, data + beam_data(w)->data_matching))
		return 0;
	return process == matching ? 0 : process;
}

/*
 * The Erlang stack pointer of the process that has called C; 0: not found. SP: rsp when JIT code
 * called C. Searches the words below SP, where the first C functions have saved registers, for the
 * address of a process whose stack begins with a return address.
 */
KILN_GLOBAL uint64_t beam_search_stop(uint32_t slot, uint64_t sp)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t process = 0, stop = 0, pc = 0;

	if (!w)
		return 0;
	for (int i = 0; i < BEAM_KEPT_WORDS; i++) {
		sp -= 8;
		if (env_read(&process, 8, sp) || (process & 7) || process >> 47 || !process ||
		    env_read(&stop, 8, process + beam_data(w)->process_stop) || (stop & 7) ||
		    env_read(&pc, 8, stop + (beam_data(w)->frame_pointers ? 8 : 0)))
			continue;
		if (beam_is_code(w, pc - 1) && beam_is_return(pc))
			return stop;
	}
	return 0;
}

/* The Erlang stack pointer of the process that runs on the scheduler DATA; 0: not known. */
KILN_INLINE uint64_t beam_stop(struct kiln_walk *w, uint64_t data)
{
	uint64_t process = beam_process(w, data), stop = 0;

	if (!process || env_read(&stop, 8, process + beam_data(w)->process_stop))
		return 0;
	return stop;
}

/* ---- frames -----------------------------------------------------------------------------------
 */

/*
 * Emits the frame in w->regs. A function that calls itself has the same return address in all its
 * frames, so the cookie of the last frame is used again for the same program counter.
 */
KILN_INLINE int beam_emit(struct kiln_walk *w)
{
	uint64_t code[KILN_BEAM_CODE_WORDS] = {0};
	uint64_t pc = w->regs.pc, cookie = 0;

	if (pc == w->cursor.words[BEAM_CURSOR_PC]) {
		cookie = w->cursor.words[BEAM_CURSOR_COOKIE];
	} else {
		if (!env_read(code, sizeof(code), pc - KILN_BEAM_CODE_BEFORE))
			cookie = kiln_beam_cookie(code);
		w->cursor.words[BEAM_CURSOR_PC] = pc;
		w->cursor.words[BEAM_CURSOR_COOKIE] = cookie;
	}
	return walk_emit(w, w->exact ? KILN_BEAM_CODE : KILN_BEAM_RETURN, pc, cookie);
}

/*
 * Called after the last Erlang frame: unwinds to the native function that called process_main(),
 * and returns BEAM_END. The return address lies above process_main()'s frame, at a distance that
 * depends on how far rsp was rounded down. Unused words of that frame may hold old return
 * addresses.
 */
KILN_GLOBAL int beam_leave(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	const struct kiln_beam *b;
	uint64_t top, pc;

	if (!w)
		return BEAM_END;
	b = beam_data(w);
	top = w->regs.extra - b->registers;
	if (top % BEAM_LINE == 0) {
		top += b->frame + BEAM_LINE - 8;
		for (int i = 0; i < 4; i++, top -= 16) {
			if (walk_read(w, top, &pc))
				break;
			if (pc - 1 - b->image_start < b->image_end - b->image_start &&
			    beam_is_return(pc)) {
				(void)walk_enter(w, pc, top + 8, 0, 0);
				return BEAM_END;
			}
		}
	}
	/* The caller is not known; the Erlang frames are complete all the same. */
	w->regs.pc = 0;
	return BEAM_END;
}

/* Unwinds from the Erlang frame whose stack pointer is AT to its caller. HELPER: the frame may be
 * that of a JIT helper. */
KILN_INLINE int beam_up(struct kiln_walk *w, uint64_t at, uint32_t helper)
{
	int found = at && helper && beam_is_helper(w->slot, at);

	/* A frame pointer may lie below the return address. */
	if (at && helper && !found && beam_data(w)->frame_pointers) {
		found = beam_is_helper(w->slot, at + 8);
		at += found ? 8 : 0;
	}
	if (at && !found)
		at = beam_find_return(w->slot, at);
	if (!at)
		walk_missing(w, KILN_MISSING_BROKEN);
	if (!at || w->value == beam_data(w)->normal_exit)
		return beam_leave(w->slot);
	return walk_enter(w, w->value, at + 8, w->regs.fp, w->regs.extra) ? BEAM_END : 0;
}

/* The Erlang stack pointer that the JIT code in w->regs, which is on the scheduler's stack, has
 * saved; 0: not known. */
KILN_INLINE uint64_t beam_saved(struct kiln_walk *w)
{
	const struct kiln_beam *b = beam_data(w);
	uint64_t stop = 0;

	if (!b->frame_pointers && beam_saves_in_rbp(w->slot, w->regs.pc))
		return w->regs.fp;
	if (w->exact && w->leaf_valid)
		return env_read(&stop, 8, w->leaf[BEAM_LEAF_PROCESS] + b->process_stop) ? 0 : stop;
	stop = beam_stop(w, beam_scheduler(w->slot, w->regs.extra - b->registers));
	return stop ? stop : beam_search_stop(w->slot, w->regs.sp);
}

/* Unwinds from a frame of JIT code, which has been emitted, to its caller. Returns BEAM_CALLER or
 * BEAM_END. */
KILN_GLOBAL int beam_step(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	const struct kiln_beam *b;
	uint64_t sp, above, pc;

	if (!w)
		return BEAM_END;
	b = beam_data(w);
	pc = w->regs.pc - (w->exact ? 0 : 1);
	if (!b->main_start) {
		/* User space has not read process_main() yet. */
		walk_missing(w, KILN_MISSING_UNKNOWN);
		w->regs.pc = 0;
		return BEAM_END;
	}
	sp = w->regs.sp;
	if (sp == w->regs.extra - b->registers) {
		if (pc - b->main_start < b->main_end - b->main_start)
			return beam_leave(slot);
		return beam_up(w, beam_saved(w), 1);
	}
	if (!w->exact || !w->leaf_valid)
		return beam_up(w, sp, 0);
	above = sp + beam_allocated(slot, w->regs.pc);
	if (above != sp && beam_find_return(slot, above) == above)
		sp = above;
	return beam_up(w, sp, 1);
}

/* Emits the Erlang frames of a process that runs C on a dirty scheduler. */
KILN_GLOBAL int beam_dirty(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	struct kiln_regs regs;
	uint64_t data, at;
	uint32_t type = 0;

	if (!w || beam_data(w)->key >= KILN_BEAM_KEYS)
		return 0;
	data = beam_specific(w, beam_data(w)->key);
	if (!data || env_read(&type, 4, data + beam_data(w)->data_type) ||
	    (type != BEAM_DIRTY_CPU && type != BEAM_DIRTY_IO))
		return 0;
	at = beam_stop(w, data);
	regs = w->regs;
	for (int i = 0; at && i < BEAM_DIRTY_FRAMES; i++) {
		at = beam_find_return(slot, at);
		if (!at)
			walk_missing(w, KILN_MISSING_BROKEN);
		if (!at || w->value == beam_data(w)->normal_exit)
			break;
		w->regs.pc = w->value;
		if (beam_emit(w))
			break;
		at += 8;
	}
	w->regs = regs;
	return 0;
}

/*
 * As beam_step(), for the usual frame: not the leaf, and its return address is within
 * BEAM_NEAR_WORDS words of rsp and within the window. BEAM_NOTHING: it is another frame, and
 * nothing has changed.
 */
KILN_INLINE int beam_near(struct kiln_walk *w)
{
	const struct kiln_beam *b = beam_data(w);
	uint64_t at = w->regs.sp, word;

	if (w->exact || !b->main_start || (at & 7) || at == w->regs.extra - b->registers)
		return BEAM_NOTHING;
	for (int i = 0; i < BEAM_NEAR_WORDS; i++, at += 8) {
		if (walk_peek(w, at, &word))
			return BEAM_NOTHING;
		if ((word & BEAM_TERM_TAG) || word - 1 - b->low >= b->high - b->low)
			continue;
		/* Left to beam_step(): a return address in another mapping, and normal_exit. */
		if (word - 1 < w->map_start || word - 1 >= w->map_end ||
		    !beam_is_code(w, word - 1) || word == b->normal_exit)
			return BEAM_NOTHING;
		return walk_enter(w, word, at + 8, w->regs.fp, w->regs.extra) ? BEAM_END : 0;
	}
	return BEAM_NOTHING;
}

KILN_GLOBAL int beam_walk(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	const struct kiln_beam *b;
	uint64_t pc;
	int r;

	if (!w)
		return 0;
	b = beam_data(w);
	pc = w->regs.pc - (w->exact ? 0 : 1);
	if (!beam_is_code(w, pc)) {
		if (!w->exact && pc - b->dirty_start < b->dirty_end - b->dirty_start)
			(void)beam_dirty(slot);
		return 0;
	}
	/* The Erlang frames replace the native ones, which have no names. */
	w->hide_native = w->stepped = 1;
	for (int i = 0; i < BEAM_FRAMES_A_CALL; i++) {
		if (beam_emit(w))
			return 0;
		r = beam_near(w);
		if (r == BEAM_NOTHING)
			r = beam_step(slot);
		/* Keeps clang from duplicating the end of the loop. Without this the loop's head is
		 * reached by falling through from its end, and the verifier of Linux 5.10 refuses
		 * that ("back-edge"). */
		asm volatile("" : "+r"(r));
		if (r)
			return 0;
	}
	return 0;
}
