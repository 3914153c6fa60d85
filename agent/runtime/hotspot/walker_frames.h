/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Emits the frames of interpreted methods and of all other code that is not compiled from a method,
 * and steps to their callers; a part of walker.h.
 */
#pragma once

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
		w->cursor.words[HOTSPOT_COOKIE] =
		    (uint16_t)entry->rule.extra_off | (uint32_t)(uint16_t)entry->rule.fp_off << 16;
		return 0;
	}
	if (hotspot_find_cookie(slot, method, code))
		return -1;
	if (!unloads || !entry)
		return 0;
	entry->pc = method;
	entry->tag = w->tag;
	entry->rule =
	    (struct kiln_rule){.kind = KILN_RULE_INVALID,
			       .cfa_off = (int32_t)unloads,
			       .deref_off = (int32_t)code,
			       .extra_off = (int16_t)w->cursor.words[HOTSPOT_COOKIE],
			       .fp_off = (int16_t)(w->cursor.words[HOTSPOT_COOKIE] >> 16)};
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
			 KILN_HOTSPOT_METHOD(bytecode, w->cursor.words[HOTSPOT_COOKIE]));
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
 * Finds the caller of an adapter that calls the JVM and has saved its registers at SAVED: its stack
 * pointer, and its pc in w->value. Returns 0 if they are not there.
 */
KILN_INLINE uint64_t hotspot_adapter_caller(struct kiln_walk *w, uint64_t saved)
{
	uint64_t caller, pc, top;

	if (walk_read(w, saved + HOTSPOT_SAVED_R13, &caller) ||
	    walk_read(w, saved + HOTSPOT_SAVED_RAX, &pc) || (caller & 7) ||
	    caller - saved >= HOTSPOT_ARGUMENTS_MAX || walk_read(w, caller, &top) || top != pc ||
	    !hotspot_is_code(hotspot_data(w), pc))
		return 0;
	w->value = pc;
	return caller;
}

/*
 * Steps to the caller of an adapter that calls the JVM (patch_callers_callsite(),
 * src/hotspot/cpu/x86/sharedRuntime_x86_64.cpp). The adapter has copied rsp to r13 and the return
 * address there to rax, and saved all registers.
 */
KILN_INLINE int hotspot_calling_adapter(struct kiln_walk *w)
{
	uint64_t sp = w->regs.sp, caller = hotspot_adapter_caller(w, sp + HOTSPOT_FPU_9);

	if (!caller)
		caller = hotspot_adapter_caller(w, sp + HOTSPOT_FPU_8);
	if (!caller)
		return hotspot_pop(w, sp + 8, 0);
	return walk_enter(w, w->value, caller + 8, w->regs.fp, w->regs.extra) ? HOTSPOT_STUCK : 0;
}

/* Is the instruction that begins with CODE mov %rsp,%r13, in one of its two encodings? */
KILN_INLINE int hotspot_is_sender_move(uint32_t code)
{
	return (code & 0xffffff) == 0xec8b4c || (code & 0xffffff) == 0xe58949;
}

/*
 * Steps to the caller of an adapter (gen_c2i_adapter() and gen_i2c_adapter(),
 * src/hotspot/cpu/x86/sharedRuntime_x86_64.cpp). The return address is at rsp when the adapter is
 * entered. The adapter pops it into rax, has the caller's rsp in r13, lays the arguments out for
 * the other calling convention, and stores the return address below them. Until it does, what is
 * at rsp is left over from earlier calls, and may look like a return address.
 *
 * Callers that are compiled have a stack pointer that is divisible by 16; their adapters set r13
 * themselves (8 to 20: after the return address was popped). Callers that are interpreted have set
 * r13 before.
 */
KILN_INLINE int hotspot_adapter(struct kiln_walk *w)
{
	const struct kiln_hotspot *v = hotspot_data(w);
	uint64_t top, pc, sp = w->regs.sp, caller, there = 0;
	uint32_t code = 0, popped;

	if (!w->exact || !w->leaf_valid)
		return hotspot_calling_adapter(w);
	if (walk_read(w, sp, &top) || env_read(&code, 3, w->regs.pc))
		return HOTSPOT_NOTHING;
	pc = w->leaf[HOTSPOT_LEAF_RAX];
	caller = hotspot_is_sender_move(code) ? sp : w->leaf[HOTSPOT_LEAF_R13];
	popped = caller == sp && hotspot_is_code(v, pc);
	if (caller == sp + 8 ||
	    (!popped && top != pc && ((sp & 8) || caller == sp) && hotspot_is_code(v, top))) {
		pc = top;
		caller = sp + 8;
	} else if ((caller & 15) == 8 && caller - sp < HOTSPOT_ARGUMENTS_MAX &&
		   !walk_read(w, caller, &there) && hotspot_is_code(v, there)) {
		/* On its way into the JVM and back, r13 points to the return address. */
		pc = there;
		caller += 8;
	}
	if (!hotspot_is_code(v, pc))
		return HOTSPOT_NOTHING;
	if (caller - sp >= HOTSPOT_ARGUMENTS_MAX || (caller & 7))
		caller = top == pc ? sp + 8 : sp;
	return walk_enter(w, pc, caller, w->regs.fp, w->regs.extra) ? HOTSPOT_STUCK : 0;
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
