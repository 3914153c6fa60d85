// SPDX-License-Identifier: Apache-2.0
/*
 * Says that it is PHP 8.4 and is not: its structures are cycles, wild pointers and chains without
 * end, one after the other, while its "interpreter" runs. With VERSION: one that is not known.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef VERSION
#define VERSION "8.4.1"
#endif

__attribute__((used)) const char php_header[] = "X-Powered-By: PHP/" VERSION;
uint64_t executor_globals[512];

void zend_execute(const void *frame, const void *opline);

/* clang-format off */
__asm__(".text\n"
	".globl execute_ex, zend_execute, zend_generator_resume, zend_vm_kind, zend_get_executed_scope\n"
	".type execute_ex, @function\n"
	"execute_ex:\n"
	".cfi_startproc\n"
	"push %r14\n .cfi_def_cfa_offset 16\n .cfi_offset 14, -16\n"
	"push %r15\n .cfi_def_cfa_offset 24\n .cfi_offset 15, -24\n"
	"mov %rdi, %r14\n"
	"mov %rsi, %r15\n"
	"mov $20000000, %eax\n"
	"1: dec %eax\n"
	"jne 1b\n"
	"mov 8(%rsp), %r14\n"
	"pop %r15\n .cfi_def_cfa_offset 16\n .cfi_restore 15\n"
	"pop %r14\n .cfi_def_cfa_offset 8\n .cfi_restore 14\n"
	"ret\n"
	".cfi_endproc\n"
	".size execute_ex, . - execute_ex\n"
	".type zend_execute, @function\n"
	"zend_execute:\n"
	".cfi_startproc\n"
	"sub $8, %rsp\n .cfi_def_cfa_offset 16\n"
	"call execute_ex\n"
	"add $8, %rsp\n .cfi_def_cfa_offset 8\n"
	"ret\n"
	".cfi_endproc\n"
	".size zend_execute, . - zend_execute\n"
	".type zend_generator_resume, @function\n"
	"zend_generator_resume: ud2\n"
	".size zend_generator_resume, . - zend_generator_resume\n"
	".type zend_vm_kind, @function\n"
	"zend_vm_kind: mov $4, %eax\n ret\n"
	".size zend_vm_kind, . - zend_vm_kind\n"
	".type zend_get_executed_scope, @function\n"
	"zend_get_executed_scope: lea executor_globals(%rip), %rax\n"
	"mov 0x1e8(%rax), %rax\n ret\n"
	".size zend_get_executed_scope, . - zend_get_executed_scope\n");
/* clang-format on */

/* Offsets of 8.4, in words: agent/runtime/php/. */
enum {
	FUNCTION_TABLE = 432 / 8,
	CLASS_TABLE = 440 / 8,
	CURRENT = 488 / 8,
	FRAME_WORDS = 10,
	FRAMES = 1 << 16,
	GOOD_FRAMES = 8,
	FRAME_FUNC = 3,
	FRAME_THIS = 4,
	FRAME_INFO = 5,
	FRAME_PREVIOUS = 6,
	TOP = 1 << 17,
	TYPE_USER = 2,
	FUNC_NAME = 1,
	FUNC_SCOPE = 2,
	FUNC_LAST = 96 / 8,
	FUNC_OPCODES = 104 / 8,
	FUNC_FILE = 168 / 8,
	FUNC_LINE = 176 / 8,
	OP_WORDS = 4,
	OP_LINE = 3,
	GENERATOR_FRAME = 56 / 8,
	GENERATOR_PARENT = 152 / 8,
	GENERATOR_FAKE = 184 / 8,
	STRING_HASH = 1,
	STRING_LENGTH = 2,
	STRING_TEXT = 3,
	CLASS_FUNCTIONS = 64 / 8,
	TABLE_MASK = 1, /* with the flags */
	TABLE_ENTRIES = 2,
	TABLE_USED = 3,
};

static uint64_t (*frames)[FRAME_WORDS];
static uint64_t func[32], name[8], file[8], class[32], table[8], generator[64], ops[8 * OP_WORDS];

static void set_string(uint64_t *s, const char *text)
{
	uint64_t hash = 5381;

	for (const char *at = text; *at; at++)
		hash = hash * 33 + (uint8_t)*at;
	s[STRING_HASH] = hash | 1ULL << 63;
	s[STRING_LENGTH] = strlen(text);
	memcpy(s + STRING_TEXT, text, s[STRING_LENGTH] + 1);
}

/* GOOD_FRAMES frames of one function. */
static void reset(void)
{
	memset(func, 0, sizeof(func));
	func[0] = TYPE_USER;
	func[FUNC_NAME] = (uint64_t)name;
	func[FUNC_LAST] = 8;
	func[FUNC_OPCODES] = (uint64_t)ops;
	func[FUNC_FILE] = (uint64_t)file;
	func[FUNC_LINE] = 7;
	set_string(name, "forged");
	set_string(file, "/forged.php");
	ops[OP_LINE] = 8;
	for (uint64_t i = 0; i < FRAMES; i++) {
		memset(frames[i], 0, sizeof(frames[i]));
		frames[i][0] = (uint64_t)ops;
		frames[i][FRAME_FUNC] = (uint64_t)func;
		frames[i][FRAME_PREVIOUS] = i + 1 < FRAMES ? (uint64_t)frames[i + 1] : 0;
	}
	frames[GOOD_FRAMES - 1][FRAME_INFO] = TOP;
	frames[GOOD_FRAMES - 1][FRAME_PREVIOUS] = 0;
	executor_globals[CURRENT] = (uint64_t)frames[0];
	executor_globals[FUNCTION_TABLE] = executor_globals[CLASS_TABLE] = (uint64_t)table;
	memset(table, 0, sizeof(table));
}

static void forge(unsigned int how)
{
	reset();
	switch (how % 12) {
	case 1:
		frames[5][FRAME_PREVIOUS] = (uint64_t)frames[1];
		break;
	case 2:
		frames[3][FRAME_FUNC] = 0xdeadbeefdeadbee8;
		break;
	case 3:
		frames[2][FRAME_PREVIOUS] = UINT64_MAX - 7;
		break;
	case 4: /* 65,536 frames of one native frame */
		frames[GOOD_FRAMES - 1][FRAME_INFO] = 0;
		frames[GOOD_FRAMES - 1][FRAME_PREVIOUS] = (uint64_t)frames[GOOD_FRAMES];
		break;
	case 5:
		name[STRING_LENGTH] = UINT64_MAX;
		file[STRING_LENGTH] = 1 << 20;
		break;
	case 6: /* its class's name is itself, and its tables have no end */
		func[FUNC_SCOPE] = (uint64_t) class;
		class[1] = (uint64_t) class;
		table[TABLE_MASK] = 0xfffffff8ULL << 32;
		table[TABLE_ENTRIES] = (uint64_t)table;
		table[TABLE_USED] = UINT32_MAX;
		memcpy(class + CLASS_FUNCTIONS, table, sizeof(table));
		break;
	case 7:
		func[0] = 0x77;
		break;
	case 8: /* a generator that yields from itself */
		memset(generator, 0, sizeof(generator));
		generator[GENERATOR_PARENT] = (uint64_t)generator;
		generator[GENERATOR_FRAME] = (uint64_t)frames[3];
		generator[GENERATOR_FAKE + FRAME_THIS] = (uint64_t)generator;
		generator[GENERATOR_FAKE + FRAME_PREVIOUS] = (uint64_t)frames[4];
		frames[3][FRAME_PREVIOUS] = (uint64_t)(generator + GENERATOR_FAKE);
		break;
	case 9: /* a function whose end lies in unmapped memory */
		frames[1][FRAME_FUNC] = (uint64_t)(frames + FRAMES) - 16;
		break;
	case 10: /* random words in all of the function */
		for (size_t i = 0; i < 32; i++)
			func[i] = i * 0x9e3779b97f4a7c15;
		func[0] = TYPE_USER;
		break;
	case 11: /* no name, no file */
		func[FUNC_NAME] = func[FUNC_FILE] = 0;
		break;
	default:
		break;
	}
}

int main(void)
{
	size_t size = (size_t)FRAMES * sizeof(*frames);
	/* The memory behind the frames cannot be read. */
	void *at = mmap(NULL, size + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED || mprotect(at, size, PROT_READ | PROT_WRITE))
		return 1;
	frames = at;
	printf("{\"pid\": %d}\n", (int)getpid());
	fflush(stdout);
	for (unsigned int how = 0;; how++) {
		forge(how);
		zend_execute(frames[0], how % 5 ? (void *)ops : (void *)0x1234567890);
	}
}
