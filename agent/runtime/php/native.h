/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Unwinds the native frames that no unwind table describes: code that PHP's JIT or PCRE's JIT has
 * compiled, and the outermost frame of a fiber's stack. Part of walker.h.
 */
#pragma once

#include "agent/runtime/php/frame.h"

/* Does a call instruction end at ADDRESS? */
KILN_INLINE int php_is_called_from(uint64_t address)
{
	uint64_t code = php_word(address - 8);

	if ((code >> 24 & 0xff) == 0xe8 || (code >> 16 & 0xffff) == 0x15ff)
		return 1; /* call d; call *d(%rip) */
	/* call *r; call *(r); call *d(r) */
	return (code >> 48 & 0x38ff) == 0x10ff || (code >> 40 & 0x38ff) == 0x10ff;
}

/*
 * Unwinds from JIT code as from execute_ex(): JIT code runs in the stack frame of execute_ex(), and
 * leaves the registers that execute_ex() has saved where they are. Some JIT code uses more stack
 * during calls, so the stack pointer of execute_ex()'s frame is searched.
 */
KILN_GLOBAL int php_leave_compiled(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	const struct kiln_php *p;
	uint64_t canary = 0, sp;

	if (!w)
		return 0;
	p = php_data(w);
	sp = w->regs.sp;
	if (p->canary && w->thread_pointer)
		canary = php_word(w->thread_pointer + 0x28);
	for (int i = 0; i < PHP_CANARY_STEPS && p->frame; i++) {
		uint64_t at = sp + (uint64_t)i * 8;

		/* Stale words lie there too: both canary and return address have to match. */
		if (canary && php_word(at + p->canary) != canary)
			continue;
		if (php_is_called_from(php_word(at + p->frame - 8))) {
			w->regs.sp = at;
			break;
		}
	}
	w->regs.pc = p->loop + p->entered;
	w->exact = 1;
	w->hide_native = 1;
	return 0;
}

/* The index of the first scratch word that is the return address of an indirect call, going from
 * FROM to TO (exclusive) by STEP; -1: none. */
KILN_INLINE int php_find_return(struct kiln_walk *w, int from, int to, int step)
{
	uint64_t code;

	for (int i = from; i != to; i += step) {
		code = 0;
		/* call *%rax .. *%rdi: ff d0 .. d7 */
		if (!env_read(&code, 2, w->scratch[i & (PHP_STACK_WORDS - 1)] - 2) &&
		    (code & 0xf8ff) == 0xd0ff)
			return i;
	}
	return -1;
}

/*
 * Finds the return address of the compiled regular expression whose arguments are at ARGUMENTS, and
 * puts its address into w->value. Non-zero: not found.
 */
KILN_GLOBAL int php_regex_called(uint32_t slot, uint64_t arguments)
{
	struct kiln_walk *w = env_walk(slot);
	int i;

	if (!w)
		return -1;
	if (arguments <= w->regs.sp || arguments - w->regs.sp > PHP_REGEX_FRAME_MAX ||
	    env_read(w->scratch, PHP_STACK_WORDS * 8, arguments - PHP_STACK_WORDS * 8))
		return -1;
	i = php_find_return(w, PHP_STACK_WORDS - 1, -1, -1);
	w->value = arguments - (PHP_STACK_WORDS - (uint64_t)(i & (PHP_STACK_WORDS - 1))) * 8;
	return i < 0 || w->value < w->regs.sp;
}

/* The same at the first and last instructions of such code, which has pushed a few registers at
 * most. */
KILN_GLOBAL int php_regex_entered(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	int i;

	if (!w || env_read(w->scratch, PHP_STACK_WORDS * 8, w->regs.sp))
		return -1;
	i = php_find_return(w, 0, 6, 1);
	w->value = w->regs.sp + (uint64_t)(i & (PHP_STACK_WORDS - 1)) * 8;
	return i < 0;
}

/*
 * Unwinds from a regular expression that PCRE has compiled. It has no frame of fixed size, but
 * keeps the address of its arguments in rbp (ARGUMENTS, src/pcre2_jit_compile.c in PCRE2 10.36
 * to 10.46). The arguments lie on the stack in the frame of pcre2_jit_match(), right above the
 * return address. Below the return address the code pushes rbx, r15, r14, r13 and rbp; until it
 * has, the address of the arguments is in rdi, then in rbx. Goes to the caller only if the return
 * address is that of an indirect call.
 */
KILN_GLOBAL int php_leave_regex(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	const uint32_t rbx = 3, rdi = 5;
	uint64_t at, pc, bx, bp;

	if (!w)
		return 0;
	if (php_regex_called(w->slot, w->regs.fp) &&
	    (!w->leaf_valid ||
	     (php_regex_called(w->slot, w->leaf[rbx]) && php_regex_called(w->slot, w->leaf[rdi]) &&
	      php_regex_entered(w->slot))))
		return 0;
	at = w->value;
	pc = php_word(at);
	bx = at - w->regs.sp >= 8 ? php_word(at - 8) : w->regs.extra;
	bp = at - w->regs.sp >= 40 ? php_word(at - 40) : w->regs.fp;
	if (walk_emit(w, PHP_REGEX, 0, 0))
		return 0;
	(void)walk_enter(w, pc, at + 8, bp, bx);
	w->hide_native = 1;
	w->stepped = 1;
	return 0;
}

/* Is ADDRESS on the stack of the fiber CONTEXT? The main context has no stack of its own. */
KILN_INLINE int php_is_stack_of(uint64_t context, uint64_t address)
{
	uint64_t stack[2] = {0, 0}; /* zend_fiber_stack: start, size */

	if (!context || env_read(stack, sizeof(stack), php_word(context + PHP_CONTEXT_STACK)))
		return 0;
	return address - stack[0] <= stack[1];
}

/*
 * At the outermost frame of a fiber's stack: continues on the stack of the fiber that resumed it. A
 * fiber that is just ending has no resumer any more: the stack is complete there.
 */
KILN_GLOBAL int php_leave_fiber(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	const struct kiln_php *p;
	uint64_t context, next, main, saved, words[3] = {0, 0, 0};

	if (!w)
		return 0;
	p = php_data(w);
	w->hide_native = !w->exact;
	w->stepped = 1;
	w->regs.pc = 0;
	main = php_word(p->globals + p->main_context);
	context = w->cursor.words[PHP_FIBER];
	if (!context) {
		context = php_word(p->globals + p->current_context);
		/* current_context is set before the switch to another stack, and again after the
		 * switch back: in between it is that of the other fiber. */
		if (!php_is_stack_of(context, w->regs.sp))
			context = php_word(context - p->fiber_context + p->fiber_caller);
		if (!php_is_stack_of(context, w->regs.sp))
			return 0;
	}
	next = context == main ? 0 : php_word(context - p->fiber_context + p->fiber_caller);
	saved = php_word(next);
	if (!saved || (next != main && !php_is_stack_of(next, saved)) ||
	    env_read(words, sizeof(words), saved + p->saved_bx))
		return 0;
	w->cursor.words[PHP_FIBER] = next;
	(void)walk_enter(w, words[2], saved + p->saved_bx + 24, words[1], words[0]);
	return 0;
}
