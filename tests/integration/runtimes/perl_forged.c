// SPDX-License-Identifier: Apache-2.0
/*
 * Says that it is Perl 5.36 (or PERL_MINOR) with threads and is not: the structures that its
 * "interpreter" has are cycles, wild pointers and stacks without end, one after the other.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#ifndef PERL_MINOR
#define PERL_MINOR 36
#endif
#define EXPORTED __attribute__((visibility("default"), used))

extern const uint8_t PL_revision, PL_version, PL_subversion;
EXPORTED const uint8_t PL_revision = 5, PL_version = PERL_MINOR, PL_subversion = 0;
extern int PL_thr_key;
EXPORTED int PL_thr_key;

/* Offsets of 5.36: agent/runtime/perl/layout.c, walker_data.h. */
enum { OP = 8, CURCOP = 0xd0, STACKINFO = 0xe0, TOP_ENV = 0x2f8 };
enum { SI_CXSTACK = 8, SI_PREV = 0x10, SI_CXIX = 0x20, SI_TYPE = 0x28 };
enum { CX_SIZE = 0x68, CX_OLDCOP = 0x10, CX_RETOP = 0x30, CX_CV = 0x48, CXT_SUB = 9 };
enum { OP_PPADDR = 0x10, OP_TYPE = 0x20, NEXTSTATE = 195, COP_FILE = 0x30 };
enum { CONTEXTS = 1 << 16, DEPTH = 300 };

static uint8_t interpreter[4096], stackinfo[64], other_stackinfo[64], op[128], cop[128], cv[64],
    cv_body[128], gv[64], gv_body[128], gp[128], stash[64], stash_body[128], hek[64];
static uint8_t *contexts;
static unsigned int ways;

/* As gcc compiles run.c: the state is in rbx while ops run. */
extern int Perl_runops_standard(void *state);
__asm__(".pushsection .text\n"
	".globl Perl_runops_standard\n"
	".type Perl_runops_standard,@function\n"
	"Perl_runops_standard:\n"
	".cfi_startproc\n"
	"push %rbx\n"
	".cfi_adjust_cfa_offset 8\n"
	".cfi_offset rbx,-16\n"
	"mov 8(%rdi),%rax\n"
	"mov %rdi,%rbx\n"
	"1: mov %rbx,%rdi\n"
	"call *16(%rax)\n"
	"mov %rax,8(%rbx)\n"
	"test %rax,%rax\n"
	"jne 1b\n"
	"xor %eax,%eax\n"
	"pop %rbx\n"
	".cfi_adjust_cfa_offset -8\n"
	"ret\n"
	".cfi_endproc\n"
	".size Perl_runops_standard,.-Perl_runops_standard\n"
	".popsection\n");

static void put(uint8_t *at, uint64_t value)
{
	memcpy(at, &value, sizeof(value));
}

static uint8_t *context(uint64_t i)
{
	return contexts + i * CX_SIZE;
}

static void stack(uint8_t *at, uint8_t *previous, uint64_t last)
{
	put(at + SI_CXSTACK, (uint64_t)contexts);
	put(at + SI_PREV, (uint64_t)previous);
	put(at + SI_CXIX, (last & 0xffffffff) | (uint64_t)CONTEXTS << 32);
	put(at + SI_TYPE, 2ULL << 32); /* PERLSI_MAGIC */
}

/* Fills two stacks of contexts; every context is a valid sub. */
static void reset(void)
{
	for (uint64_t i = 0; i < CONTEXTS; i++) {
		put(context(i), CXT_SUB);
		put(context(i) + CX_OLDCOP, (uint64_t)cop);
		put(context(i) + CX_RETOP, (uint64_t)op);
		put(context(i) + CX_CV, (uint64_t)cv);
	}
	stack(stackinfo, other_stackinfo, 5);
	stack(other_stackinfo, 0, 5);
	put(other_stackinfo + SI_TYPE, 1ULL << 32); /* PERLSI_MAIN */
	put(interpreter + STACKINFO, (uint64_t)stackinfo);
	put(interpreter + CURCOP, (uint64_t)cop);
	put(interpreter + OP, (uint64_t)op);
	put(interpreter + TOP_ENV, 0);
	put(cop + OP_TYPE, NEXTSTATE | 7ULL << 32);
	put(cop + COP_FILE, (uint64_t) "forged.pl");
	put(cv, (uint64_t)cv_body);
	put(cv + 8, 1 | 13ULL << 32); /* SVt_PVCV */
	put(cv_body + 0x38, (uint64_t)gv);
	put(gv, (uint64_t)gv_body);
	put(gv + 8, 1 | 9ULL << 32);
	put(gv + 16, (uint64_t)gp);
	put(gv_body + 0x20, (uint64_t)hek);
	put(gv_body + 0x28, (uint64_t)stash);
	put(stash, (uint64_t)stash_body);
	put(stash + 8, 1 | 0x0200000cULL << 32);
	put(stash_body + 0x20, (uint64_t)hek);
	put(hek, 6ULL << 32);
	memcpy(hek + 8, "forged", 7);
}

/* An op of the interpreter that runs for 200 ms; it is the last one. */
static void *spin(void *state)
{
	struct timespec begun, now;
	volatile uint64_t sum = 0;

	(void)state;
	clock_gettime(CLOCK_MONOTONIC, &begun);
	do {
		for (int i = 0; i < 100000; i++)
			sum += (uint64_t)i;
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((now.tv_sec - begun.tv_sec) * 1000 + (now.tv_nsec - begun.tv_nsec) / 1000000 <
		 200);
	return NULL;
}

/* Nests native frames of the loop of ops, each with a copy of the interpreter. */
static void nest(int depth);
static int depth_left;

static void *run_nested(void *state)
{
	(void)state;
	if (--depth_left > 0)
		nest(depth_left);
	else
		spin(NULL);
	return NULL;
}

static __attribute__((noinline)) void nest(int depth)
{
	uint8_t *copy = malloc(sizeof(interpreter));

	(void)depth;
	if (!copy)
		return;
	memcpy(copy, interpreter, sizeof(interpreter));
	(void)Perl_runops_standard(copy);
	free(copy);
}

static void forge(unsigned int how)
{
	reset();
	put(op + OP_PPADDR, (uint64_t)spin);
	ways = 12;
	switch (how % ways) {
	case 0: /* stacks that lead to each other */
		put(other_stackinfo + SI_PREV, (uint64_t)stackinfo);
		put(other_stackinfo + SI_TYPE, 2ULL << 32);
		break;
	case 1: /* ... and are empty */
		stack(stackinfo, stackinfo, UINT32_MAX);
		break;
	case 2:
		put(stackinfo + SI_PREV, 0xdeadbeefdeadbee8);
		break;
	case 3:
		put(stackinfo + SI_CXSTACK, UINT64_MAX - 64);
		break;
	case 4:
		put(stackinfo + SI_CXIX, 0x7fffffff7fffffff);
		break;
	case 5: /* subs without end */
		stack(stackinfo, other_stackinfo, CONTEXTS - 1);
		break;
	case 6: /* blocks without end */
		for (uint64_t i = 0; i < CONTEXTS; i++)
			put(context(i), 2);
		stack(stackinfo, other_stackinfo, CONTEXTS - 1);
		break;
	case 7:
		put(context(3) + CX_CV, 0x4141414141414140);
		break;
	case 8: /* names that lead anywhere */
		put(gv_body + 0x20, 0x4141414141414140);
		put(hek, 0x7fffffffULL << 32);
		put(cop + COP_FILE, UINT64_MAX - 3);
		break;
	case 9: /* a name without end */
		memset(hek + 8, 'x', sizeof(hek) - 8);
		put(hek, 0xffffULL << 32);
		break;
	case 10: /* JMPENVs that lead to each other */
		put(interpreter + TOP_ENV, (uint64_t)&interpreter[0x800]);
		put(interpreter + 0x800, (uint64_t)&interpreter[0x800]);
		break;
	default:
		stack(stackinfo, other_stackinfo, CONTEXTS - 1);
		put(op + OP_PPADDR, (uint64_t)run_nested);
		break;
	}
}

int main(void)
{
	contexts = mmap(NULL, (size_t)CONTEXTS * CX_SIZE, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (contexts == MAP_FAILED)
		return 1;
	printf("{\"pid\": %d}\n", (int)getpid());
	fflush(stdout);
	for (unsigned int how = 0;; how++) {
		forge(how);
		depth_left = DEPTH;
		nest(0);
	}
}
