/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pretends to be BEAM: exports the same symbols, and has code in anonymous memory with a
 * process_main() that begins as the JIT's does. Until its standard input ends the list of JIT
 * modules is valid, so that the agent attaches. Then all of it is wrong: stacks that are nothing
 * but return addresses, that have none, or that point to themselves, registers of no scheduler, and
 * a list of modules that is a cycle or ends at an address that is not mapped.
 */
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))

struct entry {
	struct entry *next, *prev;
	const void *symfile;
	uint64_t size;
};

EXPORT extern struct descriptor {
	uint32_t version, action;
	struct entry *relevant, *first;
} __jit_debug_descriptor;
EXPORT struct descriptor __jit_debug_descriptor = {.version = 1};

EXPORT extern const char greeting[256];
EXPORT char erts_system_version[256] = "Erlang/OTP 27%s [erts-15.0] [jit:ns%s]\n";

EXPORT int enif_schedule_nif(void);
EXPORT int enif_schedule_nif(void)
{
	return 0;
}

/* A description: header, base, ranges, code size, length of the name; then the functions. */
static uint8_t text[256];
static struct entry module = {.symfile = text, .size = sizeof(text)};
static struct {
	uint64_t header;
	uint64_t layout;
	uint64_t normal_exit;
} emulator;
static struct entry machine = {.symfile = &emulator, .size = sizeof(emulator)};

static const uint8_t process_main[] = {
    0x48, 0x81, 0xec, 0x10, 0x41, 0, 0,	   /* sub $0x4110,%rsp */
    0x48, 0x83, 0xe4, 0xc0,		   /* and $-64,%rsp */
    0x48, 0x89, 0x27,			   /* mov %rsp,(%rdi) */
    0x48, 0x8d, 0x9c, 0x24, 0x80, 0, 0, 0, /* lea 0x80(%rsp),%rbx */
    0x49, 0x8b, 0x65, 0x58,		   /* mov 0x58(%r13),%rsp */
};

/* Counts down from RDI with its stack at RSI and with RDX in rbx and r13; then returns. */
static const uint8_t leaf[] = {
    0x53,	      /* push %rbx */
    0x41, 0x55,	      /* push %r13 */
    0x48, 0x89, 0xe0, /* mov %rsp,%rax */
    0x48, 0x89, 0xd3, /* mov %rdx,%rbx */
    0x49, 0x89, 0xd5, /* mov %rdx,%r13 */
    0x48, 0x89, 0xf4, /* mov %rsi,%rsp */
    0x48, 0xff, 0xcf, /* dec %rdi */
    0x75, 0xfb,	      /* jne */
    0x48, 0x89, 0xc4, /* mov %rax,%rsp */
    0x41, 0x5d,	      /* pop %r13 */
    0x5b,	      /* pop %rbx */
    0xc3,	      /* ret */
};

enum { CODE = 1 << 16, MAIN = 1024, LEAF = 2048, WORDS = 4096 };

static void put32(size_t at, uint32_t v)
{
	memcpy(text + at, &v, sizeof(v));
}

static void describe(uint64_t base)
{
	static const char name[] = "global", function[] = "global::process_main";
	uint16_t length = sizeof(name);
	size_t at = 32 + sizeof(name);

	put32(0, 1);
	memcpy(text + 8, &base, sizeof(base));
	put32(16, 2);
	put32(20, CODE);
	memcpy(text + 24, &length, sizeof(length));
	memcpy(text + 26, name, sizeof(name));
	put32(at, MAIN);
	put32(at + 4, MAIN + 512);
	length = sizeof(function);
	memcpy(text + at + 12, &length, sizeof(length));
	memcpy(text + at + 14, function, sizeof(function));
	at += 16 + sizeof(function);
	put32(at, LEAF);
	put32(at + 4, LEAF + 512);
	length = sizeof("a:b/1");
	memcpy(text + at + 12, &length, sizeof(length));
	memcpy(text + at + 14, "a:b/1", sizeof("a:b/1"));
}

static void lie(unsigned int turn, uint64_t *stack, uint64_t base, uint64_t *registers)
{
	for (unsigned int i = 0; i < WORDS; i++) {
		switch (turn % 5) {
		case 0: /* return addresses only */
			stack[i] = base + LEAF + 16;
			break;
		case 1: /* terms only */
			stack[i] = 15;
			break;
		case 2: /* the end at once */
			stack[i] = emulator.normal_exit;
			break;
		case 3:
			stack[i] = i % 7 ? 0xfffffffffffffffcULL : base + LEAF + 4 * (i % 64);
			break;
		default:
			stack[i] = (uint64_t)(uintptr_t)&stack[i];
			break;
		}
	}
	*registers = turn % 3 ? (uint64_t)(uintptr_t)stack + 64 * 8 : ~0ULL << 6;
	module.next = turn / 4 % 3 == 1	  ? &module
		      : turn / 4 % 3 == 2 ? (struct entry *)8
					  : &machine;
	module.size = turn / 8 % 3 == 1 ? ~0ULL : sizeof(text);
}

/* Polls: a signal's frame would have no room on the stacks on which this program runs. */
static int input_has_ended(void)
{
	struct pollfd input = {.fd = 0, .events = POLLIN};

	return poll(&input, 1, 0) > 0;
}

int main(void)
{
	static uint64_t stack[WORDS + 512];
	uint8_t *code = mmap(NULL, CODE, PROT_READ | PROT_WRITE | PROT_EXEC,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void (*run)(uint64_t n, uint64_t * sp, uint64_t rbx);
	uint64_t base = (uint64_t)(uintptr_t)code, registers = 0;

	if (code == MAP_FAILED)
		return 1;
	memcpy(code + MAIN, process_main, sizeof(process_main));
	memcpy(code + LEAF, leaf, sizeof(leaf));
	*(uint8_t **)&run = code + LEAF;
	emulator.normal_exit = base + 64;
	describe(base);
	module.next = &machine;
	__jit_debug_descriptor.first = &module;
	puts("begin");
	fflush(stdout);
	for (;;) {
		int lies = input_has_ended();
		unsigned int turn = lies ? (unsigned int)time(NULL) : 2;

		lie(turn, stack, base, &registers);
		if (!lies)
			module.next = &machine, module.size = sizeof(text);
		run(20000000, stack + 256 + turn % 64, registers);
	}
}
