/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The walk of V8 frames, on top of bpf/unwind.h; for BPF and for the host (docs/unwinding/v8.md).
 *
 * V8's code keeps rbp as a frame pointer. One native frame is one JavaScript frame, or several
 * where functions were inlined; user space tells these apart. The word below the frame pointer is a
 * tagged context in a frame of JavaScript, else the frame's type. The code that a frame runs tells
 * whether the frame is interpreted: V8's interpreter is entered through one built-in function,
 * InterpreterEntryTrampoline, and all other JavaScript code lies in anonymous memory. A frame that
 * deoptimization has made returns to the first instruction of another built-in function, which goes
 * on in the interpreter.
 *
 * The built-in functions have unwind rules of their own (agent/elf/code_frames.h). A built-in
 * function that calls has a frame, but its code does not always tell the depth of its stack: some
 * functions take the return address off, push arguments below, and put it back. Deoptimization
 * takes the whole frame off the stack while rbp still points to where it was: other frames are
 * there by then. So the rules say KILN_RULE_FRAME_POINTER. Anonymous code has no rules: at the
 * leaf, the bytes around the program counter tell whether the frame is there, not built yet, or
 * already gone.
 *
 * Sources: V8 11.3 src/deoptimizer/deoptimizer.cc (DispatchBuiltinFor),
 * src/execution/frame-constants.h (CommonFrameConstants, StandardFrameConstants,
 * UnoptimizedFrameConstants), src/execution/frames.h (StackFrame::MarkerToType).
 */
#pragma once

#include "agent/runtime/v8/walker_data.h"

enum {
	V8_FRAMES_A_CALL = 16,
	V8_TAG = 1, /* lowest two bits of a pointer; the low 32 bits of a small integer are 0 */
	V8_TAG_MASK = 3,
	/* Distances below the frame pointer, bytes. */
	V8_FP_CONTEXT = 8, /* the context, or the frame's type << 1 */
	V8_FP_FUNCTION = 16,
	V8_FP_BYTECODE_OFFSET = 40,
	V8_CODE_BEFORE = 16,   /* bytes of code read before the program counter */
	V8_CODE_AFTER = 48,    /* bytes of code read from the program counter on */
	V8_LEAF_ARGUMENTS = 2, /* DWARF number of rcx: how many arguments, while they are dropped */
	V8_LEAF_FUNCTION = 5,  /* DWARF number of rdi: the function, when it is entered */
};

/* What w->cursor holds: the function that was looked up last. */
enum { V8_CURSOR_FUNCTION, V8_CURSOR_SHARED, V8_CURSOR_COOKIE };

/* FUNCTION's SharedFunctionInfo and its cookie. 0, or an enum kiln_missing. */
KILN_INLINE int v8_shared(struct kiln_walk *w, const struct kiln_v8 *v, uint64_t function,
			  uint64_t *ret_shared, uint32_t *ret_cookie)
{
	uint64_t shared = 0, words[2] = {0, 0};

	if ((function & V8_TAG_MASK) != V8_TAG)
		return KILN_MISSING_BROKEN;
	/* Recursion: the function of the last frame again. */
	if (w->cursor.words[V8_CURSOR_FUNCTION] == function) {
		*ret_shared = w->cursor.words[V8_CURSOR_SHARED];
		*ret_cookie = (uint32_t)w->cursor.words[V8_CURSOR_COOKIE];
		return 0;
	}
	if (env_read(&shared, 8, function - V8_TAG + v->shared))
		return KILN_MISSING_READ;
	if ((shared & V8_TAG_MASK) != V8_TAG)
		return KILN_MISSING_BROKEN;
	if (env_read(words, sizeof(words), shared - V8_TAG + v->lengths))
		return KILN_MISSING_READ;
	*ret_shared = shared;
	*ret_cookie = v8_cookie(words[0], words[1]);
	w->cursor.words[V8_CURSOR_FUNCTION] = function;
	w->cursor.words[V8_CURSOR_SHARED] = shared;
	w->cursor.words[V8_CURSOR_COOKIE] = *ret_cookie;
	return 0;
}

/* Emits the frame of FUNCTION. Non-zero: nothing was emitted. */
KILN_INLINE int v8_emit(struct kiln_walk *w, const struct kiln_v8 *v, uint32_t kind,
			uint64_t function, uint64_t value)
{
	uint64_t shared = 0;
	uint32_t cookie = 0;
	int r = v8_shared(w, v, function, &shared, &cookie);

	if (r) {
		walk_missing(w, (enum kiln_missing)r);
		return -1;
	}
	return walk_emit(w, kind, shared, KILN_V8_VALUE(value) | (uint64_t)cookie << 48);
}

/*
 * Emits the interpreted frame at FP; FP 0: the leaf, whose frame is not built yet. Non-zero:
 * nothing was emitted.
 */
KILN_GLOBAL int v8_interpreted(uint32_t slot, uint64_t fp)
{
	struct kiln_walk *w = env_walk(slot);
	struct kiln_v8 *v;
	uint64_t context, function, offset;

	if (!w)
		return 0;
	v = (struct kiln_v8 *)w->runtime.data;
	if (!fp)
		return v8_emit(w, v, KILN_V8_BYTECODE, w->leaf[V8_LEAF_FUNCTION], 0);
	/* The lowest address first: the stack window has the others then. */
	if (walk_read(w, fp - V8_FP_BYTECODE_OFFSET, &offset) ||
	    walk_read(w, fp - V8_FP_FUNCTION, &function) ||
	    walk_read(w, fp - V8_FP_CONTEXT, &context)) {
		walk_missing(w, KILN_MISSING_READ);
		return -1;
	}
	if (!(context & V8_TAG))
		return -1;
	return v8_emit(w, v, KILN_V8_BYTECODE, function, offset & 0xffffffff ? 0 : offset >> 32);
}

/*
 * Emits the frame of anonymous code whose frame pointer is FP; FP 0: the leaf, whose frame is not
 * built yet. Non-zero: nothing was emitted.
 */
KILN_GLOBAL int v8_code(uint32_t slot, uint64_t fp)
{
	struct kiln_walk *w = env_walk(slot);
	struct kiln_v8 *v;
	uint64_t context, function, pc, type;
	uint32_t kind, stub = KILN_V8_OTHER;

	if (!w)
		return 0;
	v = (struct kiln_v8 *)w->runtime.data;
	pc = w->regs.pc - (w->exact ? 0 : 1);
	kind = KILN_V8_CODE | (w->exact ? 0 : KILN_V8_RETURN);
	if (!fp) {
		function = w->leaf[V8_LEAF_FUNCTION];
		/* Code that is no function has something else in that register. */
		if ((function & V8_TAG_MASK) == V8_TAG)
			return v8_emit(w, v, kind, function, pc);
	} else {
		if (walk_read(w, fp - V8_FP_FUNCTION, &function) ||
		    walk_read(w, fp - V8_FP_CONTEXT, &context)) {
			walk_missing(w, KILN_MISSING_READ);
			return -1;
		}
		if ((context & V8_TAG) && (function & V8_TAG_MASK) == V8_TAG)
			return v8_emit(w, v, kind, function, pc);
		type = context >> 1;
		if (type >= v->wasm_from && type < v->wasm_to)
			stub = KILN_V8_WASM;
		else if (v->regexp && type == v->regexp)
			stub = KILN_V8_REGEXP;
	}
	return walk_emit(w, KILN_V8_STUB | (kind & KILN_V8_RETURN), pc, stub);
}

/* Is `push %rbp; mov %rsp,%rbp` at P, in either encoding? */
KILN_INLINE int v8_is_entry(const uint8_t *p)
{
	return p[0] == 0x55 && p[1] == 0x48 &&
	       ((p[2] == 0x89 && p[3] == 0xe5) || (p[2] == 0x8b && p[3] == 0xec));
}

/* Does `mov %rbp,%rsp; pop %rbp` or `leave` end at P? */
KILN_INLINE int v8_is_popped(const uint8_t *p)
{
	return p[-1] == 0xc9 || (p[-1] == 0x5d && ((p[-3] == 0x8b && p[-2] == 0xe5) ||
						   (p[-3] == 0x89 && p[-2] == 0xec)));
}

/*
 * BYTES are the first three bytes of an instruction, the first one lowest. Returns its length if V8
 * uses it to drop the arguments once the frame is gone; 0: another instruction. A function of its
 * own, so that the verifier need not follow which instruction it was.
 */
KILN_GLOBAL int v8_drop_size(uint32_t bytes)
{
	switch (bytes & 0xff) {
	case 0x59: /* pop %rcx */
	case 0x51: /* push %rcx */
		return 1;
	case 0x7c: /* jl, jge, jle, jg */
	case 0x7d:
	case 0x7e:
	case 0x7f:
		return 2;
	default:
		break;
	}
	switch (bytes & 0xffff) {
	case 0x5a41: /* pop %r10 */
	case 0x5241: /* push %r10 */
		return 2;
	default:
		break;
	}
	switch (bytes & 0xffffff) {
	case 0xf98348: /* cmp $imm8,%rcx */
	case 0x248d48: /* lea (%rsp,%rcx,8),%rsp */
		return 4;
	case 0x648d48: /* ... with a displacement */
		return 5;
	case 0xf98148: /* cmp $imm32,%rcx */
		return 7;
	default:
		return 0;
	}
}

/* Is there nothing from P to the return but instructions that drop the arguments? */
KILN_INLINE int v8_is_dropping(const uint8_t *p)
{
	uint32_t at = 0, size;

	for (int i = 0; i < 8; i++) {
		const uint8_t *q;

		if (at > 31)
			return 0;
		asm volatile("" : "+r"(at));
		q = p + (at & 31);
		if (q[0] == 0xc3 || q[0] == 0xc2)
			return 1;
		size = (uint32_t)v8_drop_size(q[0] | (uint32_t)q[1] << 8 | (uint32_t)q[2] << 16);
		if (!size || size > 7)
			return 0;
		at += size;
	}
	return 0;
}

enum v8_leaf {
	V8_LEAF_FRAME,	/* the frame is complete */
	V8_LEAF_BEFORE, /* rbp is not pushed yet: the return address is at rsp */
	V8_LEAF_PUSHED, /* rbp is pushed, and not set yet */
	V8_LEAF_POPPED, /* rbp is popped: the return address is at rsp */
	/* As POPPED, while the arguments are dropped. Meanwhile the return address is in r10: */
	V8_LEAF_TAKEN, /* the arguments are still on the stack */
	V8_LEAF_MOVED, /* the arguments are dropped */
	V8_LEAF_PUT,   /* the arguments are dropped, and the return address is at rsp again */
};

/*
 * Returns the state of the frame of the code at PC, by the bytes around PC, which may be forged:
 * enum v8_leaf.
 */
KILN_GLOBAL int v8_leaf(uint32_t slot, uint64_t pc)
{
	struct kiln_walk *w = env_walk(slot);
	uint8_t code[V8_CODE_BEFORE + V8_CODE_AFTER] = {0};
	const uint8_t *p = code + V8_CODE_BEFORE;
	int popped = 0;

	if (!w || env_read(code, sizeof(code), pc - V8_CODE_BEFORE))
		return V8_LEAF_FRAME;
	if (p[-1] == 0x55 && v8_is_entry(p - 1))
		return V8_LEAF_PUSHED;
	if (p[0] == 0xc3)
		return p[-2] == 0x41 && p[-1] == 0x52 ? V8_LEAF_PUT : V8_LEAF_POPPED;
	if (p[0] == 0xc2)
		return V8_LEAF_POPPED;
	if (v8_is_dropping(p)) {
		if (p[0] == 0x41 && p[1] == 0x52)
			return V8_LEAF_MOVED;
		if (p[-2] == 0x41 && p[-1] == 0x5a)
			return V8_LEAF_TAKEN;
		for (int i = 0; i < 13; i++)
			if (v8_is_popped(p - i))
				popped = 1;
		if (popped)
			return V8_LEAF_POPPED;
	}
	for (int i = 0; i < V8_CODE_AFTER - 4; i++) {
		/* This function ends first. */
		if (p[i] == 0xcc && p[i + 1] == 0xcc)
			break;
		if (v8_is_entry(p + i))
			return V8_LEAF_BEFORE;
	}
	return V8_LEAF_FRAME;
}

/* Steps to the caller. Its pc is KNOWN; KNOWN 0: at rsp + SKIP. */
KILN_INLINE void v8_step(struct kiln_walk *w, uint64_t skip, uint64_t known)
{
	uint64_t pc = known, bp = w->regs.fp;

	if (!pc && walk_read(w, w->regs.sp + skip, &pc))
		return;
	if (!walk_enter(w, pc, w->regs.sp + skip + (known ? 0 : 8), bp, w->regs.extra))
		w->stepped = 1;
}

/*
 * Emits the leaf, which is anonymous code. Steps to its caller if the leaf's frame is not complete.
 */
KILN_INLINE int v8_walk_leaf(struct kiln_walk *w)
{
	uint64_t sp = w->regs.sp, known = 0, skip = 0, fp = w->regs.fp;
	/* Bytes of arguments. A rcx that is no number of arguments leads to no function. */
	uint64_t arguments = (w->leaf[V8_LEAF_ARGUMENTS] & 0xffff) * 8;
	int r = v8_leaf(w->slot, w->regs.pc);

	/* After the frame is gone, its words are still below the stack pointer. */
	switch (r) {
	case V8_LEAF_BEFORE:
		fp = 0;
		break;
	case V8_LEAF_PUSHED:
		fp = 0;
		skip = 8;
		break;
	case V8_LEAF_POPPED:
		fp = sp - 8;
		break;
	case V8_LEAF_TAKEN:
		fp = sp - 16;
		known = w->leaf[10];
		break;
	case V8_LEAF_MOVED:
		fp = sp - 16 - arguments;
		known = w->leaf[10];
		break;
	case V8_LEAF_PUT:
		fp = sp - 8 - arguments;
		break;
	default:
		break;
	}
	if (v8_code(w->slot, fp))
		return -1;
	if (r != V8_LEAF_FRAME)
		v8_step(w, skip, known);
	return 0;
}

/*
 * Was the interpreter's function interrupted at PC where its frame is gone, or where it jumps to
 * other code without a frame? Then rbp is the caller's. The rule for PC tells: it counts from rbp
 * for as long as the frame is there.
 */
KILN_INLINE int v8_is_left(struct kiln_walk *w, uint64_t pc)
{
	const struct kiln_cache_entry *entry = env_cache(w, pc);

	return w->exact && entry &&
	       (entry->rule.kind != KILN_RULE_CFA || entry->rule.reg != ARCH_REG_FP);
}

/* Is the return address, TO bytes from the interpreter's function, that of a deoptimized frame? */
KILN_INLINE int v8_is_entered(const struct kiln_v8 *v, uint64_t to)
{
	return (v->enter_either && to == (uint64_t)v->enter_either) ||
	       (v->enter_next && to == (uint64_t)v->enter_next);
}

/* Emits the frame at PC, whose rule is of KIND. Non-zero: nothing was emitted. */
KILN_INLINE int v8_frame(struct kiln_walk *w, uint64_t pc, uint32_t kind)
{
	const struct kiln_v8 *v = (const struct kiln_v8 *)w->runtime.data;
	uint64_t at, fp = w->regs.fp;

	/* Only V8's code in anonymous memory has this kind of rule. */
	if (kind == KILN_RULE_FP)
		return w->exact && w->leaf_valid ? v8_walk_leaf(w) : v8_code(w->slot, fp);
	if ((pc < w->map_start || pc >= w->map_end) && walk_find_mapping(w->slot, pc))
		return -1;
	at = pc - w->map_bias - v->interpreter;
	if (at < v->interpreter_size) {
		if (at >= v->interpreter_frame && !v8_is_left(w, pc))
			return v8_interpreted(w->slot, fp);
		if (at < v->interpreter_frame && w->exact && w->leaf_valid)
			return v8_interpreted(w->slot, 0);
		return -1;
	}
	return !w->exact && v8_is_entered(v, at + 1) ? v8_interpreted(w->slot, fp) : -1;
}

/*
 * As walk_leave(), for anonymous code: steps to the caller by the frame pointer, if the caller's
 * rule is cached.
 */
KILN_INLINE int v8_leave(struct kiln_walk *w)
{
	const struct kiln_cache_entry *entry;
	uint64_t fp = w->regs.fp, caller, pc;

	w->stepped = 0;
	w->runtime_done = 1;
	if ((fp & 7) || fp < w->regs.sp || walk_peek(w, fp, &caller) || walk_peek(w, fp + 8, &pc) ||
	    !pc)
		return -1;
	entry = env_cache(w, pc - 1);
	if (!entry || entry->pc != pc - 1 || entry->tag != w->tag)
		return -1;
	w->stepped = !walk_enter(w, pc, fp + 16, caller, w->regs.extra);
	return w->stepped ? 0 : -1;
}

KILN_GLOBAL int v8_walk(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	const struct kiln_cache_entry *entry;
	uint64_t pc;
	uint32_t kind;

	if (!w || ((const struct kiln_v8 *)w->runtime.data)->native_only)
		return 0;
	for (int i = 0; i < V8_FRAMES_A_CALL; i++) {
		pc = w->regs.pc - (w->exact ? 0 : 1);
		entry = env_cache(w, pc);
		/* For the first frame the native walk has checked that the cache has its rule. */
		if (!entry || (i && !walk_is_runtime_rule(w, entry, pc, KILN_RUNTIME_V8)))
			return 0;
		kind = entry->rule.kind;
		if (v8_frame(w, pc, kind))
			return 0;
		/* V8's frame stands for the native frame, which has no name. */
		w->hide_native = 1;
		if (w->full || (!i && w->stepped) ||
		    (kind == KILN_RULE_FP ? v8_leave(w) : walk_leave(w, pc)))
			return 0;
	}
	return 0;
}
