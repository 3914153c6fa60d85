/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Emits the frames of each kind of code, and steps to their callers; a part of walker.h. rbp is a
 * frame pointer in interpreted frames, wrappers of native methods and many stubs. In compiled code
 * it is a register as any other, and the blob tells the size of a frame.
 */
#pragma once

/* What a step returns. 0: the caller is in w->regs. */
enum {
	HOTSPOT_NOTHING = -1, /* no frame was emitted */
	HOTSPOT_STUCK = 1,    /* a frame was emitted, but its caller cannot be found */
};

enum {
	HOTSPOT_PUSHES_MAX = 72, /* words that code may have pushed below its frame */
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
	/* Offsets from rsp of the r13 and rax that an adapter saves before it calls into the
	 * JVM. The lowest 512 bytes are fxsave's, the other registers follow (push_CPU_state(),
	 * src/hotspot/cpu/x86/macroAssembler_x86.cpp; the same in 8 to 28) */
	HOTSPOT_SAVED_R13 = 512 + 2 * 8,
	HOTSPOT_SAVED_RAX = 512 + 15 * 8,
	HOTSPOT_LEAF_RAX = 0,
	HOTSPOT_LEAF_R13 = 13, /* the bytecode pointer; in adapters the caller's stack pointer */
};

/* ---- to the caller --------------------------------------------------------------------------- */

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
 * something below its frame. Returns the address of the word, and the return address in w->value;
 * 0: there is none.
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
		if (hotspot_is_code(hotspot_data(w), pc) && hotspot_is_return(pc)) {
			w->value = pc;
			return at;
		}
	}
	return 0;
}

/*
 * Steps to the caller. Its return address lies right below CFA, or further up if the code has
 * pushed something; it is in the code cache, as is all code that calls code of the code cache.
 * SAVED: rbp is saved below the return address. 0, or HOTSPOT_STUCK: there is no return address.
 */
KILN_INLINE int hotspot_pop(struct kiln_walk *w, uint64_t cfa, uint32_t saved)
{
	uint64_t pc, bp = w->regs.fp;

	if (cfa <= w->regs.sp || (cfa & 7) || walk_read(w, cfa - 8, &pc))
		return HOTSPOT_STUCK;
	if (!hotspot_is_code(hotspot_data(w), pc)) {
		cfa = hotspot_search(w->slot, cfa);
		if (!cfa)
			return HOTSPOT_STUCK;
		pc = w->value;
		cfa += 8;
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

/* ---- compiled code --------------------------------------------------------------------------- */

KILN_INLINE int hotspot_emit_code(struct kiln_walk *w, uint32_t kind, uint64_t pc, uint32_t id,
				  uint64_t blob)
{
	uint64_t distance = pc - blob;

	if (distance >= KILN_HOTSPOT_DISTANCE_MAX)
		distance = KILN_HOTSPOT_DISTANCE_MAX;
	return walk_emit(w, kind | (w->exact ? 0 : KILN_HOTSPOT_RETURN), pc,
			 KILN_HOTSPOT_CODE(id, distance));
}

/* Emits code that lies in no blob, or whose blob does not matter. */
KILN_INLINE int hotspot_emit_stub(struct kiln_walk *w)
{
	return hotspot_emit_code(w, KILN_HOTSPOT_STUB, w->regs.pc, 0,
				 w->regs.pc - KILN_HOTSPOT_DISTANCE_MAX);
}

/* Reads the compile id of the nmethod at BLOB. 0, or -1. */
KILN_INLINE int hotspot_id(struct kiln_walk *w, uint64_t blob, uint32_t *ret)
{
	if (w->cursor.words[HOTSPOT_BLOB] == blob) {
		*ret = (uint32_t)w->cursor.words[HOTSPOT_BLOB_ID];
		return 0;
	}
	if (env_read(ret, 4, blob + hotspot_data(w)->nmethod_id))
		return -1;
	w->cursor.words[HOTSPOT_BLOB] = blob;
	w->cursor.words[HOTSPOT_BLOB_ID] = *ret;
	return 0;
}

/*
 * Emits the frame of the nmethod that RULE, from the rule cache, was made for, and steps to its
 * caller. HOTSPOT_NOTHING: other code lies there by now.
 */
KILN_INLINE int hotspot_known(struct kiln_walk *w, const struct kiln_rule *rule, uint64_t pc)
{
	uint64_t blob =
	    (((pc >> 6) - HOTSPOT_RULE_DISTANCE(rule)) << 6) + hotspot_data(w)->block_header;
	uint32_t id = 0;

	if (hotspot_id(w, blob, &id) || (id & HOTSPOT_ID_MASK) != HOTSPOT_RULE_ID(rule))
		return HOTSPOT_NOTHING;
	if (hotspot_emit_code(w, KILN_HOTSPOT_COMPILED, w->regs.pc, id, blob))
		return HOTSPOT_STUCK;
	return hotspot_pop(w, w->regs.sp + (uint32_t)rule->cfa_off, 1);
}

/* Stores a rule for PC, a return address minus 1 in the nmethod at BLOB, in the rule cache. */
KILN_INLINE void hotspot_keep(struct kiln_walk *w, uint64_t pc, uint64_t blob, uint32_t id,
			      uint32_t frame)
{
	struct kiln_cache_entry *entry = env_cache(w, pc);
	uint64_t distance = (pc >> 6) - (blob >> 6);

	if (!entry || distance > 0x3ffff)
		return;
	entry->pc = pc;
	entry->tag = w->tag;
	entry->rule = (struct kiln_rule){
	    .kind = KILN_RULE_CFA,
	    .reg = ARCH_REG_SP,
	    .flags = KILN_RULE_SAVED_FP | KILN_RULE_RUNTIME,
	    .ra_off = ARCH_RA_OFFSET,
	    .cfa_off = (int32_t)frame,
	    .fp_off = -2,
	    .extra_off = (int16_t)(uint16_t)id,
	    .deref_off = (int32_t)(KILN_RUNTIME_HOTSPOT |
				   KILN_HOTSPOT_CODE_COMPILED << KILN_HOTSPOT_RULE_CODE_SHIFT |
				   (uint32_t)distance << 8 | (id >> 16 & 63) << 26),
	};
}

/* Is PC the deoptimization handler of BLOB, whose address is at FIELD? Deoptimized frames return
 * to it. */
KILN_INLINE int hotspot_is_handler(const struct kiln_hotspot *v, uint64_t blob, uint32_t field,
				   uint64_t pc)
{
	uint64_t address = 0;
	int32_t offset = 0;

	if (!field)
		return 0;
	if (v->flags & KILN_HOTSPOT_DEOPT_POINTER)
		return !env_read(&address, 8, blob + field) && address == pc;
	return !env_read(&offset, 4, blob + field) && offset > 0 && blob + (uint32_t)offset == pc;
}

/* Returns the pc that the current frame, of BLOB, had before it was deoptimized; 0: it was not. */
KILN_GLOBAL uint64_t hotspot_given_up(uint32_t slot, uint64_t blob)
{
	struct kiln_walk *w = env_walk(slot);
	const struct kiln_hotspot *v;
	uint64_t pc;
	uint32_t at = 0;

	if (!w)
		return 0;
	v = hotspot_data(w);
	if (!hotspot_is_handler(v, blob, v->nmethod_deopt, w->regs.pc) &&
	    !hotspot_is_handler(v, blob, v->nmethod_deopt_mh, w->regs.pc))
		return 0;
	if (env_read(&at, 4, blob + v->nmethod_orig_pc) || walk_read(w, w->regs.sp + at, &pc) ||
	    pc - blob > w->regs.pc - blob)
		return 0;
	return pc;
}

/*
 * Emits a frame of compiled code, and steps to its caller. KIND is what hotspot_find() has found at
 * PC, LIFE enum hotspot_life.
 */
KILN_GLOBAL int hotspot_compiled(uint32_t slot, uint64_t pc, uint32_t kind, uint32_t life)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t blob, address, given_up;
	uint32_t id = 0, frame;
	int32_t stub = 0;

	if (!w)
		return HOTSPOT_NOTHING;
	blob = w->scratch[HOTSPOT_AT_BLOB];
	frame = hotspot_frame_size(w);
	address = w->regs.pc;
	if (frame < 16 || frame > HOTSPOT_FRAME_MAX || hotspot_id(w, blob, &id))
		return HOTSPOT_NOTHING;
	if (kind == HOTSPOT_NMETHOD && !w->exact && pc >= w->scratch[HOTSPOT_AT_COMPLETE]) {
		if (env_read(&stub, 4, blob + hotspot_data(w)->nmethod_stub))
			return HOTSPOT_NOTHING;
		given_up = pc >= blob + (uint32_t)stub ? hotspot_given_up(slot, blob) : 0;
		if (given_up)
			address = given_up;
		else
			hotspot_keep(w, pc, blob, id, frame);
	}
	if (life != HOTSPOT_SILENT &&
	    hotspot_emit_code(w, KILN_HOTSPOT_COMPILED, address, id, blob))
		return HOTSPOT_STUCK;
	if (life == HOTSPOT_LIVES && kind == HOTSPOT_WRAPPER)
		return hotspot_leave_wrapper(w, frame);
	if (life == HOTSPOT_BARE_SP || life == HOTSPOT_SILENT)
		frame = 8;
	if (life == HOTSPOT_PUSHED)
		frame = 16;
	return hotspot_pop(w, w->regs.sp + frame, frame > 8 && life != HOTSPOT_UNSAVED);
}

/* ---- interpreted code ------------------------------------------------------------------------ */

/* Returns how many classes the JVM has unloaded, with bit 63 set; 0: not known. */
KILN_INLINE uint64_t hotspot_unloads(struct kiln_walk *w)
{
	uint64_t n = 0;

	if (!w->cursor.words[HOTSPOT_UNLOADS]) {
		if (!hotspot_data(w)->unloads || env_read(&n, 8, hotspot_data(w)->unloads))
			return 0;
		w->cursor.words[HOTSPOT_UNLOADS] = n | 1ULL << 63;
	}
	return w->cursor.words[HOTSPOT_UNLOADS];
}

/* Puts the cookie of METHOD, whose ConstMethod is at CODE, into the cursor. Non-zero: it is no
 * method. */
KILN_GLOBAL int hotspot_find_cookie(uint32_t slot, uint64_t method, uint64_t code)
{
	struct kiln_walk *w = env_walk(slot);
	const struct kiln_hotspot *v;
	uint64_t at = 0;
	uint16_t hash = 0, name = 0;

	if (!w)
		return -1;
	v = hotspot_data(w);
	if (env_read(&at, 8, code + v->const_pool) || env_read(&name, 2, code + v->const_name) ||
	    env_read(&at, 8, at + v->pool_holder) || env_read(&at, 8, at + v->klass_name) ||
	    env_read(&hash, 2, at + v->symbol_hash))
		return -1;
	w->cursor.words[HOTSPOT_METHOD] = method;
	w->cursor.words[HOTSPOT_COOKIE] = kiln_hotspot_cookie(code, at, hash, name);
	return 0;
}

/*
 * Puts the cookie of METHOD into the cursor. Non-zero: it is no method. The rule cache keeps it,
 * at the method's address, for as long as no class is unloaded and the method has the same
 * ConstMethod.
 */
KILN_GLOBAL int hotspot_cookie(uint32_t slot, uint64_t method)
{
	struct kiln_walk *w = env_walk(slot);
	struct kiln_cache_entry *entry;
	uint64_t code = 0, unloads;

	if (!w)
		return -1;
	if (w->cursor.words[HOTSPOT_METHOD] == method)
		return 0;
	if (env_read(&code, 8, method + hotspot_data(w)->method_const))
		return -1;
	unloads = hotspot_unloads(w);
	entry = env_cache(w, method);
	if (unloads && entry && entry->pc == method && entry->tag == w->tag &&
	    entry->rule.kind == KILN_RULE_INVALID && entry->rule.cfa_off == (int32_t)unloads &&
	    entry->rule.deref_off == (int32_t)code) {
		w->cursor.words[HOTSPOT_METHOD] = method;
		w->cursor.words[HOTSPOT_COOKIE] = (uint16_t)entry->rule.extra_off;
		return 0;
	}
	if (hotspot_find_cookie(slot, method, code))
		return -1;
	if (!unloads || !entry)
		return 0;
	entry->pc = method;
	entry->tag = w->tag;
	entry->rule = (struct kiln_rule){.kind = KILN_RULE_INVALID,
					 .cfa_off = (int32_t)unloads,
					 .deref_off = (int32_t)code,
					 .extra_off = (int16_t)w->cursor.words[HOTSPOT_COOKIE]};
	return 0;
}

/*
 * Emits the frame of METHOD. A frame that deoptimization has made and not yet filled in has no
 * method: it is shown as code of the interpreter.
 */
KILN_INLINE int hotspot_emit_method(struct kiln_walk *w, uint64_t method, uint64_t bytecode)
{
	if (hotspot_cookie(w->slot, method))
		return hotspot_emit_stub(w);
	return walk_emit(w, KILN_HOTSPOT_INTERPRETED, method,
			 KILN_HOTSPOT_BCP(bytecode) | w->cursor.words[HOTSPOT_COOKIE] << 48);
}

/*
 * Emits the interpreted frame that rbp points to, and steps to its caller. FLAGS: those of its
 * rule.
 */
KILN_GLOBAL int hotspot_interpreted(uint32_t slot, uint32_t flags)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t fp, method, bytecode, sp;

	if (!w)
		return HOTSPOT_NOTHING;
	fp = w->regs.fp;
	if ((fp & 7) || fp < w->regs.sp)
		return HOTSPOT_NOTHING;
	/* The lowest address first: the stack window has the others then. */
	if (walk_read(w, fp - hotspot_data(w)->frame_bytecode, &bytecode) ||
	    walk_read(w, fp - HOTSPOT_FRAME_METHOD, &method) ||
	    walk_read(w, fp - HOTSPOT_SENDER_SP, &sp))
		return HOTSPOT_NOTHING;
	/* Code that runs has the bytecode pointer in r13, and saves it when it calls. */
	if (w->exact && w->leaf_valid && !(flags & KILN_HOTSPOT_BYTECODE_SAVED) &&
	    w->leaf[HOTSPOT_LEAF_R13] - bytecode + 65536 < 131072)
		bytecode = w->leaf[HOTSPOT_LEAF_R13];
	if (hotspot_emit_method(w, method, bytecode))
		return HOTSPOT_STUCK;
	return hotspot_leave(w, sp);
}

/*
 * Steps to the caller of an interpreted method whose frame is not built yet, or already left, by
 * the rule for AT. The rule's flags tell where the caller's rsp is: in a register, or in the frame.
 */
KILN_GLOBAL int hotspot_between(uint32_t slot, uint64_t at)
{
	struct kiln_walk *w = env_walk(slot);
	const struct kiln_cache_entry *entry = w ? env_cache(w, at) : 0;
	const struct kiln_rule *rule;
	uint64_t pc, sp, bp, caller = 0;
	uint32_t flags, enters;

	if (!w || !entry)
		return HOTSPOT_NOTHING;
	rule = &entry->rule;
	flags = (uint32_t)rule->deref_off;
	enters = flags & KILN_HOTSPOT_ENTERS;
	bp = w->regs.fp;
	sp = w->regs.sp;
	if (enters && w->leaf_valid)
		caller = w->leaf[HOTSPOT_LEAF_R13];
	else if ((flags & KILN_HOTSPOT_LEAVES) && w->leaf_valid)
		caller = w->leaf[ARCH_REG_EXTRA];
	if (rule->kind == KILN_RULE_RA_REG) {
		if (walk_register(w, (uint32_t)rule->ra_off, &pc) ||
		    walk_register(w, rule->reg, &caller))
			return HOTSPOT_NOTHING;
	} else {
		sp += (uint64_t)(int64_t)rule->cfa_off;
		if (((rule->flags & KILN_RULE_SAVED_FP) &&
		     walk_read(w, sp + (uint64_t)((int64_t)rule->fp_off * 8), &bp)) ||
		    walk_read(w, sp - 8, &pc))
			return HOTSPOT_NOTHING;
		/* At rbp - 8: the CFA is rbp + 16. */
		if ((flags & KILN_HOTSPOT_SENDER_SAVED) && walk_read(w, sp - 24, &caller))
			return HOTSPOT_NOTHING;
	}
	if (!pc)
		return HOTSPOT_NOTHING;
	if (caller - sp < HOTSPOT_FRAME_MAX && !(caller & 7))
		sp = caller;
	if (enters && w->leaf_valid && hotspot_emit_method(w, w->leaf[ARCH_REG_EXTRA], 0))
		return HOTSPOT_STUCK;
	return walk_enter(w, pc, sp, bp, w->regs.extra) ? HOTSPOT_STUCK : 0;
}

/* ---- all else -------------------------------------------------------------------------------- */

/*
 * Steps to the caller of an adapter that calls the JVM (patch_callers_callsite(),
 * src/hotspot/cpu/x86/sharedRuntime_x86_64.cpp). The adapter has copied rsp to r13 and the return
 * address there to rax, and saved all registers.
 */
KILN_INLINE int hotspot_calling_adapter(struct kiln_walk *w)
{
	uint64_t sp = w->regs.sp, caller, pc, top;

	if (walk_read(w, sp + HOTSPOT_SAVED_R13, &caller) ||
	    walk_read(w, sp + HOTSPOT_SAVED_RAX, &pc) || (caller & 7) ||
	    caller - sp >= HOTSPOT_ARGUMENTS_MAX || walk_read(w, caller, &top) || top != pc ||
	    !hotspot_is_code(hotspot_data(w), pc))
		return hotspot_pop(w, sp + 8, 0);
	return walk_enter(w, pc, caller + 8, w->regs.fp, w->regs.extra) ? HOTSPOT_STUCK : 0;
}

/*
 * Steps to the caller of an adapter (gen_c2i_adapter() and gen_i2c_adapter(),
 * src/hotspot/cpu/x86/sharedRuntime_x86_64.cpp). The return address is at rsp when the adapter is
 * entered. The adapter copies it to rax and the caller's rsp to r13, lays the arguments out for the
 * other calling convention, and stores the return address below them.
 */
KILN_INLINE int hotspot_adapter(struct kiln_walk *w)
{
	uint64_t top, pc, sp = w->regs.sp, caller;
	uint32_t code = 0;

	if (!w->exact || !w->leaf_valid)
		return hotspot_calling_adapter(w);
	if (walk_read(w, sp, &top))
		return HOTSPOT_NOTHING;
	pc = w->leaf[HOTSPOT_LEAF_RAX];
	/* The return address is not in rax yet, so r13 may be anything. */
	if (top != pc && hotspot_is_code(hotspot_data(w), top))
		return walk_enter(w, top, sp + 8, w->regs.fp, w->regs.extra) ? HOTSPOT_STUCK : 0;
	if (!hotspot_is_code(hotspot_data(w), pc) || env_read(&code, 3, w->regs.pc))
		return HOTSPOT_NOTHING;
	if (top == pc)
		sp += 8;
	caller = w->leaf[HOTSPOT_LEAF_R13];
	/* mov %rsp,%r13, in both encodings: r13 is not set yet. */
	if (code != 0xec8b4c && code != 0xe58949 && caller - sp < HOTSPOT_ARGUMENTS_MAX &&
	    !(caller & 7))
		sp = caller;
	return walk_enter(w, pc, sp, w->regs.fp, w->regs.extra) ? HOTSPOT_STUCK : 0;
}

/* Emits a stub that hotspot_find() has found, and steps to its caller. */
KILN_INLINE int hotspot_stub(struct kiln_walk *w)
{
	uint32_t frame = hotspot_frame_size(w);

	if (hotspot_emit_code(w, KILN_HOTSPOT_STUB, w->regs.pc, 0, w->scratch[HOTSPOT_AT_BLOB]))
		return HOTSPOT_STUCK;
	if (frame < 16 || frame > HOTSPOT_FRAME_MAX) {
		if (!hotspot_leave(w, 0))
			return 0;
		/* rbp may be anything while frames are brought back from the heap. */
		frame = 16;
	}
	return hotspot_pop(w, w->regs.sp + frame, 1);
}

/* Steps out of code that has no method's frame and no rule. KIND: what hotspot_find() has found. */
KILN_GLOBAL int hotspot_other(uint32_t slot, uint32_t kind)
{
	struct kiln_walk *w = env_walk(slot);

	if (!w)
		return HOTSPOT_NOTHING;
	switch (kind) {
	case HOTSPOT_ADAPTER:
		return hotspot_adapter(w);
	case HOTSPOT_BARE:
		return hotspot_pop(w, w->regs.sp + 8, 0);
	case HOTSPOT_STUB:
		return hotspot_stub(w);
	default:
		return HOTSPOT_NOTHING;
	}
}

/*
 * All further frames of a virtual thread are in the heap (frozen). Emits one frame that stands for
 * them, and goes on to the carrier thread's. Its frame of enterSpecial() begins ROOM bytes above
 * the stack pointer, or up to 63 bytes higher.
 */
KILN_GLOBAL int hotspot_frozen(uint32_t slot, uint32_t room)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t at;

	if (!w)
		return HOTSPOT_NOTHING;
	if (walk_emit(w, KILN_HOTSPOT_FROZEN, w->regs.pc, 0))
		return HOTSPOT_STUCK;
	at = hotspot_entered_from(slot, w->regs.sp + room, 0);
	return at ? hotspot_leave_entry(w, at) : HOTSPOT_STUCK;
}

/*
 * Steps to the caller of a stub that thaws frames: copies them from the heap to the stack. FLAGS
 * are those of the stub's rule. The stub itself runs, or a function that it has called. Once it has
 * lowered rsp, rbx tells how far it is:
 *   the size of the room for the frames: they count as frozen, until all of them are there;
 *   a stack address: they are thawed. It is the stack pointer of the innermost one, whose rbp and
 *   program counter are in the two words below.
 */
KILN_INLINE int hotspot_thaw(struct kiln_walk *w, uint32_t flags)
{
	uint64_t rbx = w->regs.extra, pc, bp;

	if (hotspot_emit_stub(w))
		return HOTSPOT_STUCK;
	if (flags & KILN_HOTSPOT_STILL_FROZEN)
		return hotspot_frozen(w->slot, 0);
	if (rbx && rbx < HOTSPOT_FRAME_MAX && !(rbx & 7))
		return hotspot_frozen(w->slot, (uint32_t)rbx);
	if (rbx - w->regs.sp < HOTSPOT_FRAME_MAX && !(rbx & 7) && !walk_read(w, rbx - 8, &pc) &&
	    !walk_read(w, rbx - 16, &bp) && pc)
		return walk_enter(w, pc, rbx, bp, 0) ? HOTSPOT_STUCK : 0;
	/* Nothing tells which frames are on the stack already. */
	walk_missing(w, KILN_MISSING_BROKEN);
	return HOTSPOT_STUCK;
}
