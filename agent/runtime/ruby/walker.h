/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The walk of Ruby frames (2.5 to 4.0), on top of bpf/unwind.h; for BPF and for the host.
 * docs/unwinding/ruby.md has the sources of all this.
 *
 * A native frame of rb_vm_exec() stands for a group of control frames: those pushed since it was
 * entered, up to the one with the flag FINISH. It runs them by vm_exec_core() or in JIT code. The
 * group is emitted at the first native frame of the three that the walk meets, and rb_vm_exec()
 * ends it. A method in C has a control frame of its own, which belongs to the group of its caller.
 *
 * A group and its native frame are not made and removed at the same moment. At the leaf, registers
 * tell which of the two exists (vm_exec_core() has the control frame in r15 and the program counter
 * in r14, JIT code has the control frame in r13); above the leaf, the program counter of a control
 * frame tells that it has not begun.
 *
 * The control frames lie in one array, each caller behind its callee, so a walk over them ends.
 */
#pragma once

#include "agent/runtime/ruby/walker_data.h"

/* Words of w->cursor. */
enum {
	RUBY_FRAME,   /* the next control frame */
	RUBY_END,     /* the end of the array of control frames */
	RUBY_STATE,   /* number of frames read << 16 | enum ruby_state */
	RUBY_ISEQ,    /* the last frame's instruction sequence */
	RUBY_ENCODED, /* address of its first instruction */
	RUBY_HASH,    /* its kiln_ruby_code_hash() */
};

enum ruby_state {
	RUBY_WALKING = 1,    /* the context was found */
	RUBY_OVER = 2,	     /* there is no context, or it makes no sense */
	RUBY_SHOWN = 4,	     /* the group of the current rb_vm_exec() was emitted */
	RUBY_LEAF = 8,	     /* the next frame's program counter is in r14 */
	RUBY_NOT_SAID = 16,  /* the next frame's pc is unknown: JIT code does not update it */
	RUBY_EVALUATED = 32, /* the current frame's code is that of a string, or lies in it */
};

/* Kinds of native frames. */
enum ruby_where { RUBY_IN_LOOP, RUBY_IN_EXEC, RUBY_IN_JIT };

/* Offsets and constants by vm_core.h of 2.5 to 4.0. Offsets are in words unless noted. */
enum {
	RUBY_EC_STACK = 0, /* rb_execution_context_t.vm_stack */
	RUBY_EC_SIZE = 1,
	RUBY_EC_FRAME = 2,
	RUBY_CFP_PC = 0, /* rb_control_frame_t */
	RUBY_CFP_ISEQ = 2,
	RUBY_CFP_EP = 4,
	RUBY_CFP_WORDS = 5,
	RUBY_ISEQ_BODY = 16,	/* bytes: rb_iseq_t.body */
	RUBY_BODY_SIZE = 0,	/* rb_iseq_constant_body; its upper half */
	RUBY_BODY_ENCODED = 1,	/* rb_iseq_constant_body */
	RUBY_BODY_OPTIONAL = 3, /* its upper half: param.opt_num */
	RUBY_BODY_OPT_TABLE = 6,
	RUBY_BODY_PATH = 8, /* location.pathobj */
	RUBY_BODY_LABEL = 10,
	RUBY_BODY_WORDS = 11,
	RUBY_ENV_WORDS = 3,	    /* ep[-2 .. 0] */
	RUBY_METHOD_DEFINITION = 2, /* rb_callable_method_entry_t */
	RUBY_METHOD_OWNER = 4,
	RUBY_METHOD_WORDS = 5,
	RUBY_METHOD_ENV = 7, /* word of the scratch: ep[0] of the environment with the entry */
	RUBY_DEFINITION_FUNCTION = 1, /* rb_method_definition_t.body.cfunc.func */
	RUBY_DEFINITION_ID = 4,	      /* .original_id */
	RUBY_DEFINITION_WORDS = 5,
	RUBY_OBJECT_CLASS = 8,	  /* bytes: struct RBasic.klass */
	RUBY_STACK_MAX = 1 << 27, /* words */
	RUBY_TAIL_MAX = 8,
	RUBY_MAIN_MAX = 3, /* control frames of the main program and of the dummies below */

	RUBY_REG_R13 = 13,
	RUBY_REG_R14 = 14,
	RUBY_REG_R15 = 15,
	/* ep[0] */
	RUBY_KIND_MASK = 0x7fff0001,
	RUBY_KIND_CLASS = 0x33330001,
	RUBY_KIND_TOP = 0x44440001, /* of a file */
	RUBY_KIND_C = 0x55550001,
	RUBY_KIND_C_BLOCK = 0x66660001,
	RUBY_KIND_EVAL = 0x77770001,
	RUBY_KIND_DUMMY = 0x79990001,
	RUBY_FINISH = 0x20,
	RUBY_BMETHOD = 0x40,
	RUBY_LOCAL = 2,
	/* Flags of an object of the kind imemo (internal/imemo.h). */
	RUBY_TYPE_MASK = 0x1f,
	RUBY_TYPE_IMEMO = 0x1a,
	RUBY_IMEMO_SHIFT = 12,
	RUBY_IMEMO_SVAR = 2,
	RUBY_IMEMO_METHOD = 6,
};

KILN_INLINE const struct kiln_ruby *ruby_data(const struct kiln_walk *w)
{
	return (const struct kiln_ruby *)w->runtime.data;
}

KILN_INLINE uint64_t ruby_word(uint64_t address)
{
	uint64_t v = 0;

	return env_read(&v, 8, address) ? 0 : v;
}

KILN_INLINE int ruby_stop(struct kiln_walk *w, enum kiln_missing why)
{
	w->cursor.words[RUBY_STATE] = RUBY_OVER;
	walk_missing(w, why);
	return 2;
}

/* Does the control frame at FRAME run instructions? Those of C code and dummies do not. */
KILN_GLOBAL int ruby_has_code(uint32_t slot, uint64_t frame)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t iseq, kind;

	if (!w || env_read(w->scratch, RUBY_CFP_WORDS * 8, frame))
		return 0;
	iseq = w->scratch[RUBY_CFP_ISEQ];
	kind = ruby_word(w->scratch[RUBY_CFP_EP]) & RUBY_KIND_MASK;
	return iseq && !(iseq & 7) && kind != RUBY_KIND_C && kind != RUBY_KIND_C_BLOCK &&
	       kind != RUBY_KIND_DUMMY;
}

/* ---- the context ----------------------------------------------------------------------------- */

/* Sets the cursor to the newest control frame of the context EC. Non-zero: EC is not valid. */
KILN_INLINE int ruby_take_context(struct kiln_walk *w, uint64_t ec)
{
	const struct kiln_ruby *r = ruby_data(w);
	uint64_t stack, end, frame;

	if (!ec || ec & 7 || env_read(w->scratch, 24, ec))
		return -1;
	stack = w->scratch[RUBY_EC_STACK];
	frame = w->scratch[RUBY_EC_FRAME];
	if (!stack || stack & 7 || !w->scratch[RUBY_EC_SIZE] ||
	    w->scratch[RUBY_EC_SIZE] > RUBY_STACK_MAX)
		return -1;
	end = stack + w->scratch[RUBY_EC_SIZE] * 8;
	if (frame & 7 || frame < stack || frame > end || r->frame_size < RUBY_CFP_WORDS * 8)
		return -1;
	w->cursor.words[RUBY_FRAME] = frame;
	w->cursor.words[RUBY_END] = end;
	w->cursor.words[RUBY_STATE] = RUBY_WALKING;
	return 0;
}

/* The thread's context, from its thread-local variable; 0: none. */
KILN_INLINE uint64_t ruby_own_context(struct kiln_walk *w)
{
	const struct kiln_ruby *r = ruby_data(w);
	uint64_t block = w->thread_pointer;

	if (!r->has_tls || !block)
		return 0;
	/* The thread control block's second word is its vector of blocks (glibc, musl). */
	if (r->tls_module) {
		block = ruby_word(block + 8);
		block = ruby_word(block + ((uint64_t)r->tls_module << (r->tls_shift & 7)));
		/* Not allocated yet (glibc 2.36, elf/dl-tls.c: TLS_DTV_UNALLOCATED). */
		if (!block || block == ~0ULL)
			return 0;
	}
	return ruby_word(block + (uint64_t)r->tls_offset);
}

/* The context that runs (2.x) if it belongs to this thread, else 0. */
KILN_INLINE uint64_t ruby_global_context(struct kiln_walk *w)
{
	const struct kiln_ruby *r = ruby_data(w);
	uint64_t ec = r->global ? ruby_word(r->global) : 0, thread;

	thread = ec ? ruby_word(ec + r->context_thread) : 0;
	return thread && ruby_word(thread + r->thread_id) == w->thread_pointer ? ec : 0;
}

/* Finds the thread's control frames. WHERE: the enum ruby_where of the native frame in w->regs.
 * Non-zero: not found. */
KILN_GLOBAL int ruby_begin(uint32_t slot, uint32_t where)
{
	struct kiln_walk *w = env_walk(slot);
	const struct kiln_ruby *r;
	uint64_t ec = 0;

	if (!w)
		return -1;
	r = ruby_data(w);
	/* Prefer the context that the native frame holds: it is right even if the thread does not
	 * hold the lock. */
	if (where == RUBY_IN_LOOP &&
	    (!w->exact || w->regs.pc - r->loop_start >= r->loop_prologue)) {
		if (r->place == KILN_RUBY_RBX)
			ec = w->regs.extra;
		else if (r->place == KILN_RUBY_STACK)
			ec = ruby_word(w->regs.sp + (uint64_t)(int64_t)r->place_offset);
	}
	if (ec && !ruby_take_context(w, ec))
		return 0;
	ec = r->has_tls ? ruby_own_context(w) : ruby_global_context(w);
	return ruby_take_context(w, ec);
}

/* ---- frames ---------------------------------------------------------------------------------- */

/* Reads the instruction sequence ISEQ into the cursor. Non-zero: it cannot be read. */
KILN_GLOBAL int ruby_read_code(uint32_t slot, uint64_t iseq)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t body;

	if (!w)
		return -1;
	if (w->cursor.words[RUBY_ISEQ] == iseq)
		return 0;
	w->cursor.words[RUBY_ISEQ] = 0;
	body = ruby_word(iseq + RUBY_ISEQ_BODY);
	if (!body || env_read(w->scratch, RUBY_BODY_WORDS * 8, body))
		return -1;
	w->cursor.words[RUBY_ISEQ] = iseq;
	w->cursor.words[RUBY_ENCODED] = w->scratch[RUBY_BODY_ENCODED];
	w->cursor.words[RUBY_HASH] =
	    kiln_ruby_code_hash(body, w->scratch[RUBY_BODY_ENCODED], w->scratch[RUBY_BODY_LABEL],
				w->scratch[RUBY_BODY_PATH]);
	return 0;
}

/* Is the object at ADDRESS a method entry? 1: its words are in the scratch. 2: it is an svar of a
 * LOCAL environment, whose second word may be a method entry. */
KILN_INLINE int ruby_is_method(struct kiln_walk *w, uint64_t address, int local)
{
	uint64_t flags;

	if (!address || address & 7 || env_read(w->scratch, RUBY_METHOD_WORDS * 8, address))
		return 0;
	flags = w->scratch[0];
	if ((flags & RUBY_TYPE_MASK) != RUBY_TYPE_IMEMO)
		return 0;
	switch (flags >> RUBY_IMEMO_SHIFT & 15) {
	case RUBY_IMEMO_METHOD:
		return 1;
	case RUBY_IMEMO_SVAR: /* vm_svar.cref_or_me */
		return local ? 2 : 0;
	default:
		return 0;
	}
}

/*
 * Makes one step from the environment whose three words are in the scratch towards its method.
 * Returns 1 if the method entry was found: it is in w->value, and its words and RUBY_METHOD_ENV are
 * in the scratch. 0: the environment is not in a method; w->value is 0. 2: the scratch has the
 * words of the parent environment. Negative: memory could not be read. A function of its own, so
 * that the verifier need not follow each round.
 */
KILN_GLOBAL int ruby_step_out(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t entry, parent, flags;
	int kind;

	if (!w)
		return -1;
	w->value = 0;
	entry = w->scratch[0];
	parent = w->scratch[1] & ~3ULL;
	flags = w->scratch[2];
	if ((flags & RUBY_KIND_MASK) == RUBY_KIND_EVAL)
		w->cursor.words[RUBY_STATE] |= RUBY_EVALUATED;
	kind = ruby_is_method(w, entry, flags & RUBY_LOCAL);
	if (kind == 2) {
		entry = w->scratch[1];
		kind = ruby_is_method(w, entry, 0);
	}
	if (kind) {
		w->value = entry;
		w->scratch[RUBY_METHOD_ENV] = flags;
		return 1;
	}
	if (flags & RUBY_LOCAL)
		return 0;
	return env_read(w->scratch, RUBY_ENV_WORDS * 8, parent - (RUBY_ENV_WORDS - 1) * 8) ? -1 : 2;
}

/* Finds the method of the environment whose words are in the scratch: its entry is in w->value, 0
 * if there is none. Returns 0, or -1 if memory could not be read. */
KILN_GLOBAL int ruby_find_method(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	int r = 0;

	for (int i = 0; i < KILN_RUBY_ENV_HOPS; i++) {
		r = ruby_step_out(slot);
		if (r != 2)
			break;
	}
	if (!w)
		return -1;
	if (r == 2)
		w->value = 0;
	return r < 0 ? -1 : 0;
}

/* The index of the instruction at PC, or KILN_RUBY_INDEX_NONE. */
KILN_INLINE uint32_t ruby_index(const struct kiln_walk *w, uint64_t pc)
{
	uint64_t index = (pc - w->cursor.words[RUBY_ENCODED]) >> 3;

	return pc && index < KILN_RUBY_INDEX_NONE ? (uint32_t)index : KILN_RUBY_INDEX_NONE;
}

/* Does native code at AT belong to the handler of the instruction at PC? */
KILN_INLINE int ruby_runs(uint64_t at, uint64_t pc)
{
	uint64_t handler = ruby_word(pc);

	return handler && at - handler < KILN_RUBY_HANDLER_MAX;
}

/* Is the frame's code a string, a file or the body of a class? ENV: the frame's ep[0]. */
KILN_INLINE int ruby_runs_once(uint64_t env)
{
	uint32_t kind = (uint32_t)env & RUBY_KIND_MASK;

	return kind == RUBY_KIND_EVAL || kind == RUBY_KIND_TOP || kind == RUBY_KIND_CLASS;
}

/*
 * Puts the two words of a frame, without the index, into w->scratch[0 .. 1]. ISEQ: the frame's
 * instruction sequence; 0: a method in C. In: w->value is the method entry or 0, and the scratch
 * has its words. Non-zero: the objects cannot be read.
 */
KILN_GLOBAL int ruby_pack(uint32_t slot, uint64_t iseq)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t entry, object = iseq, second, method, owner, hash = 0;
	uint32_t more = 0;

	if (!w)
		return -1;
	entry = w->value;
	method = entry ? w->scratch[RUBY_METHOD_DEFINITION] : 0;
	owner = second = entry ? w->scratch[RUBY_METHOD_OWNER] : 0;
	if (!iseq) {
		object = method;
		if (env_read(w->scratch, RUBY_DEFINITION_WORDS * 8, object))
			return -1;
		hash = kiln_ruby_definition_hash(w->scratch[RUBY_DEFINITION_FUNCTION],
						 w->scratch[RUBY_DEFINITION_ID]);
		method = ruby_word(owner + RUBY_OBJECT_CLASS);
	} else if (entry && w->scratch[RUBY_METHOD_ENV] & RUBY_BMETHOD) {
		second = entry;
		more = KILN_RUBY_ENTRY;
	} else if (entry) {
		method = ruby_word(owner + RUBY_OBJECT_CLASS);
	}
	if (iseq) {
		if (ruby_read_code(slot, iseq))
			return -1;
		hash = w->cursor.words[RUBY_HASH];
	}
	w->scratch[0] = KILN_RUBY_PACK(object, kiln_ruby_cookie(hash, method, owner));
	w->scratch[1] = KILN_RUBY_PACK(second, more);
	return 0;
}

#include "agent/runtime/ruby/walker_text.h"

/*
 * Emits the control frame at the cursor, unless it is one that Ruby itself does not show, and sets
 * the cursor to its caller. Returns 0 if the caller belongs to the same native frame, 1 if it does
 * not, 2 if there is none.
 */
KILN_GLOBAL int ruby_frame(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t frame, pc, iseq, ep, env, first, second;
	uint32_t flags = 0, state, index = KILN_RUBY_INDEX_NONE;

	if (!w)
		return 2;
	frame = w->cursor.words[RUBY_FRAME];
	state = (uint32_t)w->cursor.words[RUBY_STATE];
	if (frame >= w->cursor.words[RUBY_END])
		return 2;
	if (state >> 16 >= KILN_RUBY_STEPS_MAX)
		return ruby_stop(w, KILN_MISSING_BUDGET);
	if (env_read(w->scratch, RUBY_CFP_WORDS * 8, frame))
		return ruby_stop(w, KILN_MISSING_READ);
	w->cursor.words[RUBY_STATE] =
	    (state + 65536) & ~(uint32_t)(RUBY_LEAF | RUBY_NOT_SAID | RUBY_EVALUATED);
	w->cursor.words[RUBY_FRAME] = frame + ruby_data(w)->frame_size;
	pc = w->scratch[RUBY_CFP_PC];
	iseq = w->scratch[RUBY_CFP_ISEQ];
	ep = w->scratch[RUBY_CFP_EP];
	if (env_read(w->scratch, RUBY_ENV_WORDS * 8, ep - (RUBY_ENV_WORDS - 1) * 8))
		return ruby_stop(w, KILN_MISSING_READ);
	env = w->scratch[2];
	if ((env & RUBY_KIND_MASK) == RUBY_KIND_C) {
		flags = KILN_RUBY_C;
		iseq = 0;
	} else if (!iseq || iseq & 7 || (env & RUBY_KIND_MASK) == RUBY_KIND_C_BLOCK ||
		   (env & RUBY_KIND_MASK) == RUBY_KIND_DUMMY) {
		/* A block that is a C function, or a dummy frame: the thread's oldest one, or that
		 * of `require`. It never starts an rb_vm_exec(), whatever its flags are. */
		return 0;
	}
	if (ruby_find_method(w->slot))
		return ruby_stop(w, KILN_MISSING_READ);
	if (!iseq && !w->value)
		return ruby_stop(w, KILN_MISSING_BROKEN);
	if (ruby_pack(w->slot, iseq))
		return ruby_stop(w, KILN_MISSING_READ);
	first = w->scratch[0];
	second = w->scratch[1];
	if (iseq) {
		if (ruby_runs_once(env) &&
		    w->cursor.words[RUBY_END] - frame > RUBY_MAIN_MAX * ruby_data(w)->frame_size)
			walk_hurry(w, iseq, w->cursor.words[RUBY_HASH]);
		if (state & RUBY_LEAF) {
			index = ruby_index(w, w->leaf[RUBY_REG_R14]);
			/* Else the frame has just been pushed, and r14 does not have its program
			 * counter yet. */
			if (index != KILN_RUBY_INDEX_NONE)
				pc = w->leaf[RUBY_REG_R14];
			if (ruby_runs(w->regs.pc, pc))
				flags |= KILN_RUBY_EXACT;
		}
		index = state & RUBY_NOT_SAID ? KILN_RUBY_INDEX_NONE : ruby_index(w, pc);
		if (env & RUBY_BMETHOD)
			flags |= KILN_RUBY_BMETHOD;
	}
	second |= KILN_RUBY_PACK(0, index);
	if (walk_emit(w, flags, first, second))
		return 2;
	if (iseq && w->cursor.words[RUBY_STATE] & RUBY_EVALUATED) {
		first |= (uint64_t)flags << KILN_FRAME_FLAG_SHIFT |
			 (uint64_t)KILN_FRAME_RUNTIME(w->runtime_id & 31) << KILN_FRAME_KIND_SHIFT;
		(void)ruby_send_text(w->slot, iseq, first, second);
	}
	return env & RUBY_FINISH ? 1 : 0;
}

/*
 * Are only a few control frames left, all of methods in C? Then the walk meets no other
 * rb_vm_exec(): the thread or fiber has begun with C code.
 */
KILN_GLOBAL int ruby_is_tail(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t frame;
	uint32_t size;

	if (!w)
		return 0;
	frame = w->cursor.words[RUBY_FRAME];
	size = ruby_data(w)->frame_size;
	if (w->cursor.words[RUBY_END] - frame > RUBY_TAIL_MAX * size)
		return 0;
	for (uint32_t i = 0; i < RUBY_TAIL_MAX && frame < w->cursor.words[RUBY_END]; i++) {
		if (ruby_has_code(w->slot, frame))
			return 0;
		frame += size;
	}
	return 1;
}

KILN_INLINE void ruby_group(struct kiln_walk *w)
{
	for (int i = 0; i < KILN_MAX_USER_FRAMES + 1; i++) {
		if (ruby_frame(w->slot))
			break;
	}
	if (!w->full && ruby_is_tail(w->slot)) {
		for (int i = 0; i < RUBY_TAIL_MAX; i++) {
			if (ruby_frame(w->slot) == 2)
				break;
		}
	}
}

/* ---- which group ----------------------------------------------------------------------------- */

/*
 * Was the control frame at the cursor pushed for an rb_vm_exec() that has not been entered yet? If
 * so, it ends a group, its program counter is at an instruction where the code may begin, and the
 * native code in w->regs, a call in vm_exec_core(), is not the handler of that instruction.
 */
KILN_GLOBAL int ruby_is_pushed(uint32_t slot, uint32_t where)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t pc, iseq, ep, table;
	uint32_t index, optional;

	if (!w || env_read(w->scratch, RUBY_CFP_WORDS * 8, w->cursor.words[RUBY_FRAME]))
		return 0;
	pc = w->scratch[RUBY_CFP_PC];
	iseq = w->scratch[RUBY_CFP_ISEQ];
	ep = w->scratch[RUBY_CFP_EP];
	if (!pc || !iseq || iseq & 7 || !(ruby_word(ep) & RUBY_FINISH))
		return 0;
	w->cursor.words[RUBY_ISEQ] = 0;
	if (ruby_read_code(w->slot, iseq))
		return 0;
	index = ruby_index(w, pc);
	optional = (uint32_t)(w->scratch[RUBY_BODY_OPTIONAL] >> 32);
	table = w->scratch[RUBY_BODY_OPT_TABLE];
	/* Code with optional arguments begins where the first missing argument is computed. */
	for (uint32_t i = 1; index && i <= 8; i++) {
		if (i > optional)
			return 0;
		if (ruby_word(table + i * 8) == index)
			index = 0;
	}
	return !index && (where == RUBY_IN_JIT || !ruby_runs(w->regs.pc - 1, pc));
}

/*
 * For the loop or JIT code at the leaf, which has the control frame HELD in a register. Non-zero:
 * it has popped its own control frame and is about to return. The newest control frame is then
 * mostly that of a method in C.
 */
KILN_INLINE int ruby_is_left(struct kiln_walk *w, uint32_t where, uint64_t held)
{
	const struct kiln_ruby *r = ruby_data(w);
	uint64_t frame = w->cursor.words[RUBY_FRAME], at = w->regs.pc - r->loop_start;

	if (!ruby_has_code(w->slot, frame)) {
		/* JIT code pushes the control frame of a method in C before it calls the method.
		 * At a `ret` of JIT code the registers are the caller's again. */
		return where == RUBY_IN_LOOP || held != frame + r->frame_size ||
		       (ruby_word(w->regs.pc) & 0xff) == 0xc3;
	}
	return where == RUBY_IN_LOOP && at <= r->loop_return &&
	       at + KILN_RUBY_EPILOGUE > r->loop_return;
}

/*
 * For the first Ruby native frame of a stack: finds its newest control frame. Non-zero: the native
 * frame has popped its control frames already, and the rest are its caller's.
 */
KILN_GLOBAL int ruby_enter(uint32_t slot, uint32_t where)
{
	struct kiln_walk *w = env_walk(slot);
	const struct kiln_ruby *r;
	uint64_t frame, held;

	if (!w)
		return 0;
	r = ruby_data(w);
	frame = w->cursor.words[RUBY_FRAME];
	if (where == RUBY_IN_LOOP &&
	    w->regs.pc - (w->exact ? 0 : 1) - r->loop_start < r->loop_prologue)
		return 0;
	if (!w->exact || !w->leaf_valid) {
		if (where != RUBY_IN_EXEC && ruby_is_pushed(w->slot, where))
			w->cursor.words[RUBY_FRAME] = frame + r->frame_size;
		return 0;
	}
	if (where == RUBY_IN_EXEC)
		return !ruby_has_code(w->slot, frame);
	held = w->leaf[where == RUBY_IN_JIT ? RUBY_REG_R13 : RUBY_REG_R15];
	/* A push or pop changes the register first, or memory first. */
	if (held == frame - r->frame_size)
		w->cursor.words[RUBY_FRAME] = held;
	else if (ruby_is_left(w, where, held))
		return 1;
	else if (where == RUBY_IN_LOOP && held != frame && held != frame + r->frame_size)
		return 0;
	w->cursor.words[RUBY_STATE] |= where == RUBY_IN_LOOP ? RUBY_LEAF : RUBY_NOT_SAID;
	return 0;
}

/* ---- JIT code -------------------------------------------------------------------------------- */

KILN_INLINE int ruby_is_exec(const struct kiln_ruby *r, uint64_t pc)
{
	return (pc >= r->exec_start && pc < r->exec_end) ||
	       (pc >= r->cold_start && pc < r->cold_end);
}

/* Is the word at AT an address in vm_exec_core() or rb_vm_exec()? If so, w->value is the word. */
KILN_GLOBAL int ruby_is_return(uint32_t slot, uint64_t at)
{
	struct kiln_walk *w = env_walk(slot);
	const struct kiln_ruby *r;

	if (!w)
		return 0;
	r = ruby_data(w);
	w->value = ruby_word(at);
	return ruby_is_exec(r, w->value) || w->value - r->loop_start < r->loop_size;
}

/*
 * Unwinds from JIT code, which has no unwind information. It keeps little on the native stack: the
 * registers that its entry has saved (r13, r12, rbx: yjit_codegen.c), and above them the return
 * address, in vm_exec_core() or rb_vm_exec(). Returns 0, or negative if that was not found.
 */
KILN_GLOBAL int ruby_leave_jit(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t at, bx, bp;
	int found = 0;

	if (!w)
		return -1;
	at = w->regs.sp;
	for (int i = 0; i < KILN_RUBY_JIT_WORDS; i++) {
		found = ruby_is_return(slot, at);
		if (found)
			break;
		at += 8;
	}
	if (!found)
		return -1;
	bp = w->regs.fp;
	bx = at - w->regs.sp < 24 ? w->regs.extra : ruby_word(at - 24);
	/* The entry has set up a frame pointer. */
	if (bp == at - 8)
		bp = ruby_word(at - 8);
	if (!walk_enter(w, w->value, at + 8, bp, bx))
		w->stepped = 1;
	return 0;
}

KILN_GLOBAL int ruby_walk(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	const struct kiln_ruby *r;
	uint32_t where = RUBY_IN_LOOP;
	uint64_t pc;

	if (!w)
		return 0;
	r = ruby_data(w);
	if (r->native_only)
		return 0;
	pc = w->regs.pc - (w->exact ? 0 : 1);
	if ((pc < w->map_start || pc >= w->map_end) && walk_find_mapping(w->slot, pc))
		return 0;
	if (!w->map_image)
		where = RUBY_IN_JIT;
	else if (ruby_is_exec(r, pc))
		where = RUBY_IN_EXEC;
	if (!w->cursor.words[RUBY_STATE]) {
		if (ruby_begin(w->slot, where))
			ruby_stop(w, KILN_MISSING_NO_THREAD);
		else if (ruby_enter(w->slot, where))
			w->cursor.words[RUBY_STATE] |= RUBY_SHOWN;
	}
	if (w->cursor.words[RUBY_STATE] & RUBY_WALKING) {
		if (!(w->cursor.words[RUBY_STATE] & RUBY_SHOWN))
			ruby_group(w);
		w->cursor.words[RUBY_STATE] |= RUBY_SHOWN;
		if (where == RUBY_IN_EXEC || !r->exec_end)
			w->cursor.words[RUBY_STATE] &= ~(uint64_t)RUBY_SHOWN;
	}
	if (where == RUBY_IN_JIT && !ruby_leave_jit(w->slot))
		w->hide_native = 1;
	return 0;
}
