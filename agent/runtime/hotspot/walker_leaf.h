/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Tells whether a leaf of compiled code has its frame; a part of walker.h. Only the instructions
 * tell: those before the program counter and those that follow. They may be forged.
 *
 * What the compilers make (src/hotspot/cpu/x86/c1_MacroAssembler_x86.cpp, build_frame(); x86.ad,
 * MachPrologNode, MachEpilogNode; macroAssembler_x86.cpp, verified_entry();
 * sharedRuntime_x86_64.cpp, generate_native_wrapper()):
 *
 *   mov %eax,-n(%rsp)                   the stack is touched far below
 *   push %rbp; sub $n,%rsp              or sub $n,%rsp; mov %rbp,n-16(%rsp); wrappers set rbp
 *   ...
 *   add $n,%rsp; pop %rbp               wrappers: leave
 *   the poll of a safepoint; ret
 */
#pragma once

/* The state of the leaf's frame. */
enum hotspot_life {
	HOTSPOT_LIVES,	 /* the frame is complete */
	HOTSPOT_BARE_SP, /* the return address is at rsp */
	HOTSPOT_PUSHED,	 /* the caller's rbp is at rsp, the return address above it */
	HOTSPOT_UNSAVED, /* the frame is there, but rbp is not saved yet */
	HOTSPOT_SILENT,	 /* as BARE_SP, in code that only jumps elsewhere: no frame is shown */
};

enum {
	HOTSPOT_BYTES_BEFORE = 16, /* bytes of code read before the program counter */
	HOTSPOT_BYTES_AFTER = 112, /* bytes of code read from the program counter on */
	HOTSPOT_PROLOGUE_MAX = 96,
	HOTSPOT_TAIL_MAX = 10, /* instructions between the end of a frame and the return */
	HOTSPOT_TAIL_RETURN = 32,
	HOTSPOT_PUSH = 0x55,
	HOTSPOT_POP = 0x5d,
};

/* The four bytes of code from I on, the first one lowest; 0 is the program counter. */
KILN_INLINE uint32_t hotspot_bytes(const struct kiln_walk *w, int32_t i)
{
	uint32_t at = (uint32_t)(i + HOTSPOT_BYTES_BEFORE) & 127;
	uint32_t v;

	asm volatile("" : "+r"(at));
#ifdef __bpf__
	/* One load; the compiler would make four of a copy. */
	v = *(const volatile uint32_t *)((const uint8_t *)w->scratch + (at & 127));
#else
	__builtin_memcpy(&v, (const uint8_t *)w->scratch + (at & 127), sizeof(v));
#endif
	return v;
}

KILN_INLINE uint32_t hotspot_byte(const struct kiln_walk *w, int32_t i)
{
	return hotspot_bytes(w, i) & 0xff;
}

KILN_INLINE uint32_t hotspot_three(const struct kiln_walk *w, int32_t i)
{
	return hotspot_bytes(w, i) & 0xffffff;
}

/* If the instruction at I, which begins with BYTES, is `sub $n,%rsp`, returns n; else 0. */
KILN_INLINE uint32_t hotspot_sub(const struct kiln_walk *w, int32_t i, uint32_t bytes)
{
	if ((bytes & 0xffffff) == 0xec8348)
		return bytes >> 24;
	if ((bytes & 0xffffff) == 0xec8148)
		return hotspot_bytes(w, i + 3);
	return 0;
}

/* Is the instruction at I one that follows `push %rbp` where a frame of FRAME bytes is built? These
 * are sub, and mov %rsp,%rbp in either encoding. */
KILN_INLINE int hotspot_is_behind_push(const struct kiln_walk *w, int32_t i, uint32_t frame)
{
	uint32_t bytes = hotspot_bytes(w, i);

	return hotspot_sub(w, i, bytes) == frame - 16 || (bytes & 0xffffff) == 0xec8b48 ||
	       (bytes & 0xffffff) == 0xe58948;
}

/*
 * Returns the length of the instruction that begins with BYTES if it may come between the end of a
 * frame and the return: the poll of a safepoint, and in wrappers the check for an exception.
 * HOTSPOT_TAIL_RETURN: it is the return. 0: it is another one.
 */
KILN_GLOBAL int hotspot_tail_size(uint32_t bytes)
{
	switch (bytes & 0xff) {
	case 0xc3: /* ret */
	case 0xc2:
		return HOTSPOT_TAIL_RETURN;
	case 0x74: /* je, jne, ja */
	case 0x75:
	case 0x77:
		return 2;
	case 0xe9: /* jmp */
		return 5;
	default:
		break;
	}
	switch (bytes & 0xffff) {
	case 0x840f: /* je, jne, ja */
	case 0x850f:
	case 0x870f:
	case 0x0585: /* test %eax,poll(%rip) */
		return 6;
	case 0xba49: /* movabs $pc,%r10 */
		return 10;
	default:
		break;
	}
	switch (bytes & 0xffffff) {
	case 0x673b49: /* cmp n(%r15),%rsp */
		return 4;
	case 0xa73b49:
	case 0x978b4d: /* mov n(%r15),%r10 */
	case 0x97894d: /* mov %r10,n(%r15) */
		return 7;
	case 0x578b4d:
		return 4;
	case 0x028541: /* test %eax,(%r10) */
	case 0x77f8c5: /* vzeroupper */
		return 3;
	case 0x7f8349: /* cmpq $0,n(%r15) */
	case 0x47f641: /* testb $1,n(%r15) */
		return 5;
	case 0x87f641:
	case 0x7f8149:
		return 8;
	default:
		return 0;
	}
}

/*
 * Is the instruction at I the check of methods that may use the stack's reserved zone: cmp
 * n(%r15),%rsp; jb? It comes after their frame is left (reserved_stack_check(),
 * src/hotspot/cpu/x86/macroAssembler_x86.cpp).
 */
KILN_INLINE int hotspot_is_reserved_check(const struct kiln_walk *w, int32_t i)
{
	return hotspot_three(w, i) == 0xa73b49 && (hotspot_bytes(w, i + 7) & 0xffff) == 0x820f;
}

/* Is there nothing from byte I to the return but instructions of hotspot_tail_size()? */
KILN_GLOBAL int hotspot_is_tail(uint32_t slot, uint32_t i)
{
	struct kiln_walk *w = env_walk(slot);

	if (!w)
		return 0;
	for (int n = 0; n < HOTSPOT_TAIL_MAX; n++) {
		uint32_t size = (uint32_t)hotspot_tail_size(hotspot_bytes(w, (int32_t)i));

		if (size == HOTSPOT_TAIL_RETURN || hotspot_is_reserved_check(w, (int32_t)i))
			return 1;
		if (!size)
			return 0;
		i += size;
	}
	return 0;
}

/* Is the frame of FRAME bytes still to be made, within the next LEFT bytes of code? */
KILN_GLOBAL int hotspot_is_prologue(uint32_t slot, uint32_t frame, uint32_t left)
{
	struct kiln_walk *w = env_walk(slot);

	if (!w)
		return 0;
	for (int32_t i = 0; i < HOTSPOT_PROLOGUE_MAX; i++) {
		uint32_t bytes = hotspot_bytes(w, i);

		if ((uint32_t)i >= left)
			return 0;
		if ((bytes & 0xff) == HOTSPOT_PUSH && hotspot_is_behind_push(w, i + 1, frame))
			return 1;
		if (hotspot_sub(w, i, bytes) == frame - 8)
			return 1;
	}
	return 0;
}

/*
 * Is this the code behind a poll that has hit after the frame was left: lea pc,%r10; mov
 * %r10,n(%r15); jmp?
 */
KILN_INLINE int hotspot_is_poll_stub(const struct kiln_walk *w)
{
	const uint32_t lea = 0x158d4c, store = 0x97894d;
	uint32_t jump = 0xe9;

	return (hotspot_three(w, 0) == lea && hotspot_three(w, 7) == store &&
		hotspot_byte(w, 14) == jump) ||
	       (hotspot_three(w, 0) == store && hotspot_byte(w, 7) == jump &&
		hotspot_three(w, -7) == lea) ||
	       (hotspot_byte(w, 0) == jump && hotspot_three(w, -7) == store);
}

/*
 * Is this the code that a call of code that is not compiled leads through: mov $method,%rbx; jmp?
 */
KILN_INLINE int hotspot_is_static_stub(const struct kiln_walk *w)
{
	const uint32_t load = 0xbb48, jump = 0xe9;

	return ((hotspot_bytes(w, 0) & 0xffff) == load && hotspot_byte(w, 10) == jump) ||
	       (hotspot_byte(w, 0) == jump && (hotspot_bytes(w, -10) & 0xffff) == load);
}

/*
 * Returns the state of the frame of the code at PC, whose blob's header is in w->scratch: enum
 * hotspot_life. OUT_OF_LINE: PC is behind the method's own code.
 */
KILN_GLOBAL int hotspot_life(uint32_t slot, uint64_t pc, uint32_t out_of_line)
{
	struct kiln_walk *w = env_walk(slot);
	uint32_t frame, left = 1;
	uint64_t complete;

	if (!w || env_read(w->scratch + HOTSPOT_AT_BYTES,
			   HOTSPOT_BYTES_BEFORE + HOTSPOT_BYTES_AFTER, pc - HOTSPOT_BYTES_BEFORE))
		return HOTSPOT_LIVES;
	frame = hotspot_frame_size(w);
	if (frame < 16)
		return HOTSPOT_LIVES;
	if (hotspot_byte(w, -1) == HOTSPOT_PUSH && hotspot_is_behind_push(w, 0, frame))
		return HOTSPOT_PUSHED;
	/* mov %rbp,n(%rsp): the other way to save it */
	if ((hotspot_bytes(w, 0) == 0x246c8948 && hotspot_byte(w, 4) == frame - 16) ||
	    (hotspot_bytes(w, 0) == 0x24ac8948 && hotspot_bytes(w, 4) == frame - 16))
		return HOTSPOT_UNSAVED;
	/* The stack is touched before rbp is pushed. */
	if (hotspot_three(w, 0) == 0x248489 && hotspot_byte(w, 7) == HOTSPOT_PUSH)
		return HOTSPOT_BARE_SP;
	complete = w->scratch[HOTSPOT_AT_COMPLETE];
	if (pc < complete)
		left = complete - pc < HOTSPOT_PROLOGUE_MAX ? (uint32_t)(complete - pc)
							    : HOTSPOT_PROLOGUE_MAX;
	if (hotspot_is_prologue(slot, frame, left))
		return HOTSPOT_BARE_SP;
	if (hotspot_byte(w, 0) == HOTSPOT_POP && hotspot_is_tail(slot, 1))
		return HOTSPOT_PUSHED;
	if (hotspot_is_poll_stub(w) || hotspot_is_tail(slot, 0) || hotspot_is_reserved_check(w, -7))
		return HOTSPOT_BARE_SP;
	return out_of_line && hotspot_is_static_stub(w) ? HOTSPOT_SILENT : HOTSPOT_LIVES;
}
