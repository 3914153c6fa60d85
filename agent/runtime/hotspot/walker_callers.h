/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Steps from a frame to its caller; a part of walker.h. rbp is a frame pointer in interpreted
 * frames, wrappers of native methods and many stubs. In compiled code it is a register as any
 * other, and the blob tells the size of a frame.
 */
#pragma once

/* What a step returns. 0: the caller is in w->regs. */
enum {
	HOTSPOT_NOTHING = -1, /* no frame was emitted */
	HOTSPOT_STUCK = 1,    /* a frame was emitted, but its caller cannot be found */
};

enum {
	HOTSPOT_PUSHES_MAX = 72,   /* words that code may have pushed below its frame */
	HOTSPOT_PUSHES_LIKELY = 8, /* more than that: there may be frames among them */
	HOTSPOT_KEPT_MAX = 128,	   /* more bytes than String.indexOf() pushes below its frame */
	HOTSPOT_FRAME_MAX = 1 << 20,
	HOTSPOT_ARGUMENTS_MAX = 8192,
	/* Offsets in a ContinuationEntry, the record that Continuation.enterSpecial() keeps at the
	 * bottom of its frame (src/hotspot/share/runtime/continuationEntry.hpp; as its machine code
	 * on x86-64 has them, the same in 21 to 28). At FLAGS: _flags, 1 for a virtual thread, and
	 * _argsize, each of 32 bits. */
	HOTSPOT_ENTRY_PARENT = 8,
	HOTSPOT_ENTRY_CONT = 16,
	HOTSPOT_ENTRY_FLAGS = 32,
	HOTSPOT_ENTRY_ARGUMENTS_MAX = 256,
	HOTSPOT_ENTRY_ALIGN = 16,
	HOTSPOT_ENTRY_FRAME = 80,	    /* bytes of enterSpecial()'s frame */
	HOTSPOT_ENTRY_GROWS = 3,	    /* or larger by up to 3 * 16 bytes */
	HOTSPOT_ENTRY_GAP_MAX = 4,	    /* aligned addresses at which it is looked for */
	HOTSPOT_ENTRY_DEPTH_MAX = 64 << 20, /* bytes of stack from it to its parent */
	/* Interpreted frames: bytes from the frame pointer (AbstractInterpreter frame layout,
	 * src/hotspot/cpu/x86/frame_x86.hpp; the same in 8 to 28) */
	HOTSPOT_SENDER_SP = 8,
	HOTSPOT_FRAME_METHOD = 24,
	/* An adapter that calls into the JVM has saved the state of the FPU at rsp: 512 bytes in
	 * JDK 8, 2688 in 9 to 28. Above them are the other registers, of which r13 and rax have
	 * these offsets (push_CPU_state(), FPUStateSizeInWords,
	 * src/hotspot/cpu/x86/macroAssembler_x86.cpp). */
	HOTSPOT_FPU_8 = 512,
	HOTSPOT_FPU_9 = 2688,
	HOTSPOT_SAVED_R13 = 2 * 8,
	HOTSPOT_SAVED_RAX = 15 * 8,
	HOTSPOT_LEAF_RAX = 0,
	HOTSPOT_LEAF_RCX = 2,
	HOTSPOT_LEAF_R13 = 13, /* the bytecode pointer; in adapters the caller's stack pointer */
};

/* Does a call instruction end at PC? */
KILN_GLOBAL int hotspot_is_return(uint64_t pc)
{
	uint8_t code[8] = {0};

	if (env_read(code, sizeof(code), pc - sizeof(code)))
		return 0;
	/* call distance; call *%reg, also of r8 on; call *n(%reg) */
	return code[3] == 0xe8 || (code[6] == 0xff && (code[7] & 0xf8) == 0xd0) ||
	       (code[5] == 0xff && (code[6] & 0xf8) == 0x50) ||
	       (code[2] == 0xff && (code[3] & 0xf8) == 0x90);
}

/*
 * Searches the stack for a return address into the code cache, from AT on: code may have pushed
 * words below its frame, most often one. Only what follows a call instruction is taken for a return
 * address, except in the first word: the interpreter's return addresses follow no call. Returns the
 * address of the word, and the return address in w->value; 0: there is none.
 */
KILN_GLOBAL uint64_t hotspot_search(uint32_t slot, uint64_t at)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t pc = 0;

	if (!w)
		return 0;
	for (int i = 0; i < HOTSPOT_PUSHES_MAX; i++, at += 8) {
		if (walk_read(w, at, &pc))
			return 0;
		if (hotspot_is_code(hotspot_data(w), pc) && (!i || hotspot_is_return(pc))) {
			w->value = pc;
			return at;
		}
	}
	return 0;
}

/*
 * Is the leaf in the code that C2 inlines for String.indexOf()? With SSE 4.2 that compares by
 * pcmpestri, and ends with sub %rdi,%rbx; pop %rsp (string_indexof(),
 * src/hotspot/cpu/x86/c2_MacroAssembler_x86.cpp). Reads the bytes around the program counter, which
 * hotspot_life() has put into w->scratch.
 */
KILN_GLOBAL int hotspot_is_index_of(uint32_t slot)
{
	const uint32_t pcmpestri = 0x613a0f66, vpcmpestri = 0x6179e3c4, end = 0x5cdf2b48;
	struct kiln_walk *w = env_walk(slot);

	if (!w)
		return 0;
	for (int32_t i = -HOTSPOT_BYTES_BEFORE; i < HOTSPOT_BYTES_AFTER - 4; i++) {
		uint32_t bytes = hotspot_bytes(w, i);

		if (bytes == pcmpestri || bytes == vpcmpestri || bytes == end)
			return 1;
	}
	return 0;
}

/*
 * KEPT may be the value that rsp had before the leaf, whose frame has FRAME bytes, pushed more. If
 * a return address lies where it then should, returns how many bytes were pushed; else 0.
 */
KILN_INLINE uint32_t hotspot_pushed_since(struct kiln_walk *w, uint64_t kept, uint32_t frame)
{
	uint64_t pushed = kept - w->regs.sp, pc;

	if (!pushed || pushed > HOTSPOT_KEPT_MAX || (pushed & 7) ||
	    walk_read(w, kept + frame - 8, &pc) || !hotspot_is_code(hotspot_data(w), pc))
		return 0;
	return (uint32_t)pushed;
}

/*
 * Counts the pop instructions at the beginning of CODE, four bytes of machine code: 0 to 2. Stops
 * at pop %rbp, which ends the frame of a method.
 */
KILN_INLINE uint32_t hotspot_pops(uint32_t code)
{
	uint32_t n = 0;

	for (int i = 0; i < 2; i++) {
		uint32_t rex = (code & 0xff) == 0x41, op;

		code >>= rex * 8;
		op = code & 0xff;
		if ((op & 0xf8) != 0x58 || (!rex && op == 0x5d))
			break;
		code >>= 8;
		n++;
	}
	return n;
}

/*
 * Returns how many bytes a caller pushed below its frame before the call that returns to
 * w->regs.pc: as many as it pops right behind the call. C1 passes the arguments of the stub
 * slow_subtype_check so (emit_typecheck_helper(),
 * src/hotspot/cpu/x86/c1_LIRAssembler_x86.cpp).
 */
KILN_GLOBAL uint32_t hotspot_pushed(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	uint32_t code = 0;

	return w && !env_read(&code, sizeof(code), w->regs.pc) ? hotspot_pops(code) * 8 : 0;
}

/*
 * Returns the same for the leaf, whose program counter may be at one of these pushes, at the call,
 * or at one of the pops. Reads the bytes in w->scratch, as hotspot_is_index_of() does.
 */
KILN_GLOBAL uint32_t hotspot_pushed_around(uint32_t slot)
{
	const uint32_t rex = 0x41, push = 0x50, call = 0xe8;
	struct kiln_walk *w = env_walk(slot);
	uint32_t to_push = 0, pops, bytes;
	int32_t i = 0;

	if (!w)
		return 0;
	for (int n = 0; n < 2; n++) {
		bytes = hotspot_bytes(w, i);
		bytes = (bytes & 0xff) == rex ? bytes >> 8 : bytes;
		if ((bytes & 0xf8) != push)
			break;
		i += hotspot_byte(w, i) == rex ? 2 : 1;
		to_push++;
	}
	if (hotspot_byte(w, i) == call) {
		pops = hotspot_pops(hotspot_bytes(w, i + 5));
		return pops > to_push ? (pops - to_push) * 8 : 0;
	}
	return to_push ? 0 : hotspot_pops(hotspot_bytes(w, 0)) * 8;
}

/*
 * Returns how many bytes the leaf, whose frame has FRAME bytes, has pushed below that frame.
 * String.indexOf() copies short strings there and saves registers; the value that rsp had before is
 * in rcx at first, and at the top of the stack later. To search for the return address instead
 * might find one that an earlier call has left in the frame.
 */
KILN_GLOBAL uint32_t hotspot_pushed_by_leaf(uint32_t slot, uint32_t frame)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t kept;
	uint32_t pushed;

	if (!w || walk_read(w, w->regs.sp, &kept))
		return 0;
	pushed = hotspot_pushed_since(w, kept, frame);
	if (!pushed)
		pushed = hotspot_pushed_since(w, w->leaf[HOTSPOT_LEAF_RCX], frame);
	return pushed && hotspot_is_index_of(slot) ? pushed : hotspot_pushed_around(slot);
}

/*
 * Steps to the caller. Its return address lies right below CFA, or further up if the code has
 * pushed something; it is in the code cache, as is all code that calls code of the code cache.
 * SAVED: rbp is saved below the return address. 0, or HOTSPOT_STUCK: there is no return address.
 */
KILN_INLINE int hotspot_pop(struct kiln_walk *w, uint64_t cfa, uint32_t saved)
{
	uint64_t pc, bp = w->regs.fp, at;

	if (cfa <= w->regs.sp || (cfa & 7) || walk_read(w, cfa - 8, &pc))
		return HOTSPOT_STUCK;
	if (!hotspot_is_code(hotspot_data(w), pc)) {
		at = hotspot_search(w->slot, cfa);
		if (!at)
			return HOTSPOT_STUCK;
		if (at - cfa > HOTSPOT_PUSHES_LIKELY * 8)
			walk_missing(w, KILN_MISSING_BROKEN);
		pc = w->value;
		cfa = at + 8;
	}
	if (saved && walk_read(w, cfa - 16, &bp))
		return HOTSPOT_STUCK;
	return walk_enter(w, pc, cfa, bp, w->regs.extra) ? HOTSPOT_STUCK : 0;
}

/*
 * Steps to the caller of the frame that rbp points to. The caller's stack pointer is SP; SP 0:
 * right behind the frame.
 */
KILN_INLINE int hotspot_leave(struct kiln_walk *w, uint64_t sp)
{
	uint64_t fp = w->regs.fp, bp, pc;

	if (!sp)
		sp = fp + 16;
	if ((fp & 7) || fp < w->regs.sp || sp < fp + 16 || sp - fp > HOTSPOT_FRAME_MAX)
		return HOTSPOT_STUCK;
	if (walk_read(w, fp, &bp) || walk_read(w, fp + 8, &pc) || !pc)
		return HOTSPOT_STUCK;
	return walk_enter(w, pc, sp, bp, w->regs.extra) ? HOTSPOT_STUCK : 0;
}

/*
 * Does a ContinuationEntry begin at AT? Its _flags is 1 for a virtual thread, and 0 for a
 * jdk.internal.vm.Continuation that runs without one. FLAGS_LEAST: the lowest value that is
 * accepted.
 */
KILN_INLINE int hotspot_is_entry(struct kiln_walk *w, uint64_t at, uint32_t flags_least)
{
	uint64_t parent, cont, flags;

	if (walk_read(w, at + HOTSPOT_ENTRY_PARENT, &parent) ||
	    walk_read(w, at + HOTSPOT_ENTRY_CONT, &cont) ||
	    walk_read(w, at + HOTSPOT_ENTRY_FLAGS, &flags))
		return 0;
	return (!parent || parent - at < HOTSPOT_ENTRY_DEPTH_MAX) && !(parent & 7) && cont &&
	       (uint32_t)flags >= flags_least && (uint32_t)flags <= 1 &&
	       flags >> 32 < HOTSPOT_ENTRY_ARGUMENTS_MAX;
}

/*
 * Finds the frame of Continuation.enterSpecial(), which begins with a ContinuationEntry at AT or up
 * to 63 bytes above. Returns the stack address of its return address, which is left in w->value;
 * 0: there is no such frame. The JVM leaves parts of the frame unwritten, and stale return
 * addresses there, so the entry is recognized by its fields. FLAGS_LEAST as for hotspot_is_entry():
 * 1 where the frame at AT may as well be another method's.
 */
KILN_GLOBAL uint64_t hotspot_entered_from(uint32_t slot, uint64_t at, uint32_t flags_least)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t pc = 0;
	int n = 0;

	if (!w)
		return 0;
	at = (at + HOTSPOT_ENTRY_ALIGN - 1) & ~(uint64_t)(HOTSPOT_ENTRY_ALIGN - 1);
	while (n < HOTSPOT_ENTRY_GAP_MAX && !hotspot_is_entry(w, at, flags_least)) {
		at += HOTSPOT_ENTRY_ALIGN;
		n++;
	}
	if (n == HOTSPOT_ENTRY_GAP_MAX)
		return 0;
	at += HOTSPOT_ENTRY_FRAME - 8;
	for (int i = 0; i <= HOTSPOT_ENTRY_GROWS; i++, at += HOTSPOT_ENTRY_ALIGN) {
		if (walk_read(w, at, &pc))
			return 0;
		if (hotspot_is_code(hotspot_data(w), pc)) {
			w->value = pc;
			return at;
		}
	}
	return 0;
}

/*
 * Steps to the caller of Continuation.enterSpecial(); AT is what hotspot_entered_from() has
 * returned.
 */
KILN_INLINE int hotspot_leave_entry(struct kiln_walk *w, uint64_t at)
{
	uint64_t pc = w->value, bp;

	if (walk_read(w, at - 8, &bp))
		return HOTSPOT_STUCK;
	return walk_enter(w, pc, at + 8, bp, w->regs.extra) ? HOTSPOT_STUCK : 0;
}

/*
 * Steps to the caller of a wrapper, whose frame has FRAME bytes. C code that the wrapper has called
 * has kept rbp. Other code need not have: frames of a virtual thread, which return to
 * Continuation.enterSpecial(), do not keep it.
 */
KILN_INLINE int hotspot_leave_wrapper(struct kiln_walk *w, uint32_t frame)
{
	uint64_t cfa = w->regs.sp + frame, pc, at;

	if (!w->exact && w->regs.fp + 16 != cfa) {
		at = hotspot_entered_from(w->slot, w->regs.sp, 1);
		if (at)
			return hotspot_leave_entry(w, at);
		if (!walk_read(w, cfa - 8, &pc) && hotspot_is_code(hotspot_data(w), pc))
			return hotspot_pop(w, cfa, 1);
	}
	return hotspot_leave(w, 0);
}
