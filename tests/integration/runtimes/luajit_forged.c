// SPDX-License-Identifier: Apache-2.0
/*
 * Says that it is LuaJIT and is not: the structures that its "interpreter" has are cycles, wild
 * pointers and stacks without end, one after the other. With UNKNOWN its code is as of a build with
 * 32-bit references.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Offsets: agent/runtime/luajit/walker_data.h. */
enum { L_GLREF = 0x10, L_BASE = 0x20, L_STACK = 0x38, L_CFRAME = 0x50, L_SIZE = 0x58 };
enum { FUNC_PC = 0x20, P_SIZEBC = 0x0c, P_K = 0x20, P_SIZEPT = 0x38, P_CHUNK = 0x40 };
enum { P_LINES = 0x48, P_LINEINFO = 0x50, P_VARINFO = 0x60, P_SIZE = 0x68 };
enum { THREAD = 6, PROTO = 7, FUNC = 8, STR = 4, SLOTS = 1 << 16, CODE = 64, DEPTH = 60 };
enum { DISPATCH = 0x400, JIT_BASE = 0x40, VMSTATE = 0x48, TRACES = 0x50 };

static uint8_t state[128], global[4096], function[64], proto[P_SIZE + CODE * 4 + 512], chunk[4096];
static uint8_t trace[256];
static uint64_t traces[64];
static uint64_t *slots;
static uint8_t *jit;

/*
 * As in vm_x64.dasc: lj_vm(lua_State, pc, previous C frame, function). Some instructions never run:
 * the probe reads from them that GG_G2DISP is DISPATCH and that GCtrace.mcode is at 0x58.
 */
extern void lj_vm(void *l, const void *pc, const void *previous, void (*call)(void));
__asm__(".pushsection .text\n"
	".globl lj_vm\n"
	".type lj_vm,@function\n"
	"lj_vm:\n"
	".cfi_startproc\n"
	".cfi_def_cfa_offset 80\n"
	".cfi_offset rbp,-16\n"
	".cfi_offset rbx,-24\n"
	".cfi_offset r15,-32\n"
	".cfi_offset r14,-40\n"
	"push %rbp\n"
	"push %rbx\n"
	"push %r15\n"
	"push %r14\n"
	"sub $40,%rsp\n"
#ifndef UNKNOWN
	"mov %rdi,0x10(%rsp)\n"
#else
	"mov %edi,0x18(%rsp)\n"
#endif
	"mov %rdx,0x20(%rsp)\n"
	"movq $0,0x18(%rsp)\n"
	"movq $0,0x08(%rsp)\n"
	"mov %rsp,0x50(%rdi)\n"
	"mov %rsi,%rbx\n"
	"call *%rcx\n"
	"add $40,%rsp\n"
	"pop %r14\n"
	"pop %r15\n"
	"pop %rbx\n"
	"pop %rbp\n"
	"ret\n"
#ifndef UNKNOWN
	"add $0x400,%r14\n"
#endif
	"movl $-1,0x48-0x400(%r14)\n"
	"mov 0x50-0x400(%r14),%rcx\n"
	"mov (%rcx,%rax,8),%rax\n"
	"mov 0x58(%rax),%rax\n"
	"mov 0x10(%rsp),%rbp\n"
	"mov %rdx,0x40-0x400(%r14)\n"
	"mov %rbp,0x60-0x400(%r14)\n"
	"sub $16,%rsp\n"
	"mov %r12,0x10(%rsp)\n"
	"mov %r13,0x08(%rsp)\n"
	"jmp *%rax\n"
	"push %r13\n"
	"push %r12\n"
	"push %r11\n"
	"push %r10\n"
	"push %r9\n"
	"push %r8\n"
	"push %rdi\n"
	"push %rsi\n"
	"push %rbp\n"
	"mov %rcx,%rsp\n"
	".fill 8192,1,0xcc\n"
	".cfi_endproc\n"
	".size lj_vm,.-lj_vm\n"
	".popsection\n");

static void put(uint8_t *at, uint64_t value)
{
	memcpy(at, &value, sizeof(value));
}

static uint64_t tagged(const void *object, uint32_t type)
{
	return (uint64_t)(uintptr_t)object | (0x1ffffULL ^ type) << 47;
}

static uint8_t *code(void)
{
	return proto + P_SIZE;
}

/* DEPTH frames of one function, each called by its second instruction, and the stack's beginning.
 */
static void reset(void)
{
	static const uint32_t call = 66 | 0 << 8; /* CALL 0 */

	memset(proto, 0, sizeof(proto));
	memset(slots, 0, SLOTS * sizeof(*slots));
	state[9] = THREAD;
	put(state + L_GLREF, (uint64_t)global);
	put(state + L_STACK, (uint64_t)slots);
	put(state + L_SIZE, SLOTS);
	function[9] = FUNC;
	function[10] = 0;
	put(function + FUNC_PC, (uint64_t)code());
	proto[9] = PROTO;
	put(proto + 8, PROTO << 8 | (uint64_t)CODE << 32);
	put(proto + P_K, (uint64_t)(code() + CODE * 4));
	put(proto + P_SIZEPT, sizeof(proto));
	put(proto + P_CHUNK, (uint64_t)chunk);
	put(proto + P_LINES, 1 | 10ULL << 32);
	put(proto + P_LINEINFO, (uint64_t)(code() + CODE * 4));
	put(proto + P_VARINFO, (uint64_t)(code() + CODE * 4 + 128));
	for (int i = 0; i < CODE; i++)
		memcpy(code() + i * 4, &call, sizeof(call));
	code()[0] = 0x59;
	chunk[9] = STR;
	strcpy((char *)chunk + 24, "@forged.lua");
	slots[0] = tagged(state, THREAD);
	for (uint64_t i = 1; i <= DEPTH; i++) {
		slots[i * 2] = tagged(function, FUNC);
		slots[i * 2 + 1] = (uint64_t)(code() + 8);
	}
	slots[3] = 2 * 8 | 1; /* C code called the first one */
	put(state + L_BASE, (uint64_t)&slots[DEPTH * 2 + 2]);
	put(global + JIT_BASE, (uint64_t)&slots[DEPTH * 2 + 2]);
	put(global + VMSTATE, 1);
	put(global + TRACES, (uint64_t)traces);
	traces[1] = (uint64_t)trace;
	put(trace + 0x48, (uint64_t)(code() + 8));
	put(trace + 0x50, 4096ULL << 32);
	put(trace + 0x58, (uint64_t)jit);
	put(trace + 0x68, 0);
}

static void spin(void)
{
	struct timespec begun, now;
	volatile uint64_t sum = 0;

	clock_gettime(CLOCK_MONOTONIC, &begun);
	do {
		for (int i = 0; i < 100000; i++)
			sum += (uint64_t)i;
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((now.tv_sec - begun.tv_sec) * 1000 + (now.tv_nsec - begun.tv_nsec) / 1000000 <
		 200);
}

/* sub $0x48,%rsp; mov $spin,%rax; call *%rax; add $0x48,%rsp; ret */
static void make_jit(void)
{
	static const uint8_t from[] = {0x48, 0x83, 0xec, 0x48, 0x48, 0xb8},
			     to[] = {0xff, 0xd0, 0x48, 0x83, 0xc4, 0x48, 0xc3};
	uint64_t target = (uint64_t)(uintptr_t)spin;

	memcpy(jit, from, sizeof(from));
	memcpy(jit + sizeof(from), &target, 8);
	memcpy(jit + sizeof(from) + 8, to, sizeof(to));
}

static int depth_left;

/* Many C frames on one stack, of one lua_State. */
static void nest(void)
{
	uint64_t previous;

	memcpy(&previous, state + L_CFRAME, 8);
	if (depth_left-- > 0)
		lj_vm(state, code() + 8, (const void *)(uintptr_t)previous, nest);
	else
		spin();
}

static void forge(unsigned int how)
{
	void (*call)(void) = spin;

	reset();
	switch (how % 14) {
	case 0: /* a good one */
		break;
	case 1: /* frames that lead to themselves */
		slots[DEPTH * 2 + 1] = 3;
		break;
	case 2: /* ... without end */
		for (uint64_t i = 1; i < SLOTS / 2; i++) {
			slots[i * 2] = tagged(function, FUNC);
			slots[i * 2 + 1] = (uint64_t)(code() + 8);
		}
		put(state + L_BASE, (uint64_t)&slots[SLOTS - 2]);
		break;
	case 3:
		slots[10] = tagged((void *)0x414141414140, FUNC);
		break;
	case 4:
		put(function + FUNC_PC, 0x4141414141414140);
		break;
	case 5:
		put(state + L_STACK, UINT64_MAX - 7);
		break;
	case 6:
		put(state + L_BASE, UINT64_MAX - 7);
		break;
	case 7: /* a function that says that it is as long as memory */
		put(proto + 8, PROTO << 8 | 0xffffffffULL << 32);
		put(proto + P_SIZEPT, 0xffffffffffffffff);
		put(proto + P_LINES, UINT64_MAX);
		break;
	case 8: /* names without end, and variables */
		memset(chunk + 24, 'x', sizeof(chunk) - 24);
		memset(code() + CODE * 4 + 128, 'y', 128);
		break;
	case 9: /* links that lead anywhere */
		slots[DEPTH * 2 + 1] = 0x4141414141414140;
		break;
	case 10:
		depth_left = 300;
		call = nest;
		break;
	case 11: /* a trace */
		call = (void (*)(void))(uintptr_t)jit;
		break;
	case 12: /* ... of traces that lead to each other */
		put(global + VMSTATE, UINT64_MAX);
		put(trace + 0x58, 0);
		put(trace + 0x6c, 1ULL << 32 | 1 << 16 | 1);
		put(proto + 0x38, (uint64_t)sizeof(proto) | 1ULL << 48);
		call = (void (*)(void))(uintptr_t)jit;
		break;
	default:
		put(global + TRACES, 0x4141414141414140);
		put(global + JIT_BASE, 0x4141414141414140);
		call = (void (*)(void))(uintptr_t)jit;
		break;
	}
	put(state + L_CFRAME, 0);
	lj_vm(state, code() + 8, NULL, call);
}

int main(void)
{
	slots = mmap(NULL, SLOTS * sizeof(*slots), PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	jit = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		   0);
	if (slots == MAP_FAILED || jit == MAP_FAILED)
		return 1;
	make_jit();
	printf("{\"pid\": %d}\n", (int)getpid());
	fflush(stdout);
	for (unsigned int how = 0;; how++)
		forge(how);
}
