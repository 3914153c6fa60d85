/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library that has what a file must have to be Ruby, and runs numbers. The files of
 * tests/fuzz/corpus/ruby_probe are made of it:
 *   gcc -x c -shared -fPIC -O2 -s [-DVERSION='"3.3.8"'] small.h -o so-3.3
 */
#pragma once

#include <stdint.h>

#ifndef VERSION
#define VERSION "3.3.8"
#endif

/* clang-format off */
#define HIDDEN	__attribute__((visibility("hidden")))
#define TEN(x)	x(0) x(1) x(2) x(3) x(4) x(5) x(6) x(7) x(8) x(9)
#define ROW0(n) &&l0##n,
#define ROW1(n) &&l1##n,
#define ROW2(n) &&l2##n,
#define ROW3(n) &&l3##n,
#define ROW4(n) &&l4##n,
#define ROW5(n) &&l5##n,
#define ROW6(n) &&l6##n,
#define ROW7(n) &&l7##n,
#define ROW8(n) &&l8##n,
#define ROW9(n) &&l9##n,
#define ROWA(n) &&la##n,
#define ROWB(n) &&lb##n,
#define ROWC(n) &&lc##n,
#define ROWD(n) &&ld##n,
#define ROWE(n) &&le##n,
#define ROWF(n) &&lf##n,
#define CODE(r, n)                                                                                 \
	l##r##n : ec[20] += helper(0x##r##n);                                                      \
	pc++;                                                                                      \
	goto *labels[*pc];
#define CODE0(n) CODE(0, n)
#define CODE1(n) CODE(1, n)
#define CODE2(n) CODE(2, n)
#define CODE3(n) CODE(3, n)
#define CODE4(n) CODE(4, n)
#define CODE5(n) CODE(5, n)
#define CODE6(n) CODE(6, n)
#define CODE7(n) CODE(7, n)
#define CODE8(n) CODE(8, n)
#define CODE9(n) CODE(9, n)
#define CODEA(n) CODE(a, n)
#define CODEB(n) CODE(b, n)
#define CODEC(n) CODE(c, n)
#define CODED(n) CODE(d, n)
#define CODEE(n) CODE(e, n)
#define CODEF(n) CODE(f, n)

const char ruby_version[] = VERSION;
__thread uint64_t *ruby_current_ec;
#ifdef GLOBAL
uint64_t *ruby_current_execution_context_ptr;
#endif
HIDDEN struct {
	uint64_t last_id, strings, ids;
} symbols = {1, 0, 0};

__attribute__((noipa)) static uint64_t helper(uint64_t n)
{
	__asm__ volatile("" : "+r"(n));
	return n;
}

__attribute__((noinline)) static uint64_t vm_exec_core(uint64_t *context)
{
	static const void *const labels[] = {
	    TEN(ROW0) TEN(ROW1) TEN(ROW2) TEN(ROW3) TEN(ROW4) TEN(ROW5) TEN(ROW6) TEN(ROW7)
		TEN(ROW8) TEN(ROW9) TEN(ROWA) TEN(ROWB) TEN(ROWC) TEN(ROWD) TEN(ROWE) TEN(ROWF) &&
	    end};
	register uint64_t *ec __asm__("rbx") = context;
	uint64_t *pc;

	__asm__ volatile("" : "+r"(ec));
	pc = (uint64_t *)ec[21];

	if (!pc)
		return (uint64_t)labels;
	goto *labels[*pc];
	TEN(CODE0)
	TEN(CODE1)
	TEN(CODE2)
	TEN(CODE3)
	TEN(CODE4)
	TEN(CODE5)
	TEN(CODE6) TEN(CODE7) TEN(CODE8) TEN(CODE9) TEN(CODEA) TEN(CODEB) TEN(CODEC) TEN(CODED)
	    TEN(CODEE) TEN(CODEF) end : return ec[20];
}

/* clang-format on */
uint64_t exec(uint64_t *ec);
HIDDEN __attribute__((noinline)) uint64_t exec(uint64_t *ec)
{
	uint64_t r = vm_exec_core(ec);

	ec[22] = r;
	return r + 1;
}

uint64_t rb_funcall(uint64_t *ec);
uint64_t rb_funcall(uint64_t *ec)
{
	return exec(ec) + 1;
}

uint64_t rb_thread_current(void);
uint64_t rb_thread_current(void)
{
#ifdef GLOBAL
	return ruby_current_execution_context_ptr[6];
#else
	return ruby_current_ec[6];
#endif
}

uint64_t rb_id2str(uint64_t id);
uint64_t rb_id2str(uint64_t id)
{
	return id <= symbols.last_id ? symbols.ids : 0;
}
