// SPDX-License-Identifier: Apache-2.0
/*
 * Says that it is Ruby 3.3 and is not: its structures are cycles, wild pointers and stacks without
 * end, one after the other, while its "interpreter" runs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit/agent/runtime/ruby/small.h"

/* Offsets of 3.3: agent/runtime/ruby/. */
enum {
	FRAME_SIZE = 56,
	FRAMES = 1 << 16,
	GOOD_FRAMES = 8,
	STACK = FRAMES * FRAME_SIZE,
	METHOD = 0x11110001,
	FINISH = 0x20,
	LOCAL = 2,
	IMEMO_ISEQ = 0x1a | 7 << 12,
	IMEMO_METHOD = 0x1a | 6 << 12,
	IMEMO_SVAR = 0x1a | 2 << 12,
	T_CLASS = 2,
	T_STRING = 5,
	NOEMBED = 1 << 13,
	ROUNDS = 1 << 20,
	END = 160,
};

static uint8_t *stack;
static uint64_t context[64], env[8], iseq[8], body[64], method[8], definition[8], class[64],
    path[8], encoded[64], lines[64], table[64];
static uint64_t *rounds;

static uint64_t *frame(uint64_t i)
{
	return (uint64_t *)(stack + STACK - (i + 1) * FRAME_SIZE);
}

static void set_string(uint64_t *s, const char *text)
{
	s[0] = T_STRING;
	s[2] = strlen(text);
	memcpy(s + 3, text, s[2] + 1);
}

/* GOOD_FRAMES frames of one method, the first of which rb_vm_exec() was entered with. */
static void reset(void)
{
	memset(body, 0, sizeof(body));
	memset(class, 0, sizeof(class));
	env[0] = (uint64_t)method;
	env[1] = 0;
	env[2] = METHOD | LOCAL;
	env[3] = (uint64_t)method;
	env[4] = 0;
	env[5] = METHOD | LOCAL | FINISH;
	iseq[0] = IMEMO_ISEQ;
	iseq[2] = (uint64_t)body;
	body[0] = 1 | 64ULL << 32; /* a method of 64 words */
	body[1] = (uint64_t)encoded;
	body[8] = body[9] = body[10] = (uint64_t)path;
	body[14] = (uint64_t)lines;
	body[16] = 1;
	body[17] = (uint64_t)table;
	method[0] = IMEMO_METHOD;
	method[2] = (uint64_t)definition;
	method[4] = (uint64_t) class;
	class[0] = T_CLASS;
	class[4 + 15] = (uint64_t)path;
	set_string(path, "Forged");
	lines[0] = 7;
	context[0] = (uint64_t)stack;
	context[1] = STACK / 8;
	context[2] = (uint64_t)frame(GOOD_FRAMES - 1);
	for (uint64_t i = 0; i < FRAMES; i++) {
		frame(i)[0] = (uint64_t)(encoded + 3);
		frame(i)[2] = (uint64_t)iseq;
		frame(i)[4] = (uint64_t)(i % GOOD_FRAMES ? env + 2 : env + 5);
	}
	ruby_current_ec = context;
}

static void forge(unsigned int how)
{
	reset();
	switch (how % 12) {
	case 0: /* the block's environment is its own parent */
		env[0] = 0;
		env[1] = (uint64_t)(env + 2);
		env[2] = METHOD;
		break;
	case 1:
		frame(3)[2] = 0xdeadbeefdeadbee8;
		break;
	case 2:
		frame(2)[4] = UINT64_MAX - 7;
		break;
	case 3: /* instructions that end where nothing is any more */
		iseq[2] = (uint64_t)(stack + STACK - 16);
		break;
	case 4: /* 65,536 frames of one native frame */
		for (uint64_t i = 0; i < FRAMES; i++)
			frame(i)[4] = (uint64_t)(env + 2);
		context[2] = (uint64_t)frame(FRAMES - 1);
		break;
	case 5:
		path[0] = T_STRING | NOEMBED;
		path[2] = UINT64_MAX;
		path[3] = (uint64_t)(stack + STACK - 3);
		break;
	case 6:
		method[0] = IMEMO_SVAR;
		method[1] = (uint64_t)method;
		break;
	case 7:
		method[4] = (uint64_t)method;
		body[20] = (uint64_t)iseq; /* an iseq in itself, and no method */
		body[0] = 2;
		break;
	case 8:
		context[1] = UINT64_MAX;
		break;
	case 9:
		body[16] = 1 << 20;
		body[17] = UINT64_MAX - 100;
		break;
	case 10: /* all of the body, anything */
		for (size_t i = 2; i < 64; i++)
			body[i] = i * 0x9e3779b97f4a7c15;
		break;
	default:
		context[2] = context[0] - 8;
		break;
	}
}

int main(void)
{
	/* Behind it there is nothing. */
	uint8_t *at = mmap(NULL, STACK + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	rounds = calloc(ROUNDS + 1, sizeof(*rounds));
	if (at == MAP_FAILED || !rounds || mprotect(at, STACK, PROT_READ | PROT_WRITE))
		return 1;
	stack = at;
	rounds[ROUNDS] = END;
	printf("{\"pid\": %d}\n", (int)getpid());
	fflush(stdout);
	for (unsigned int how = 0;; how++) {
		forge(how);
		for (int i = 0; i < 100; i++) {
			context[21] = (uint64_t)rounds;
			(void)rb_funcall(context);
		}
	}
}
