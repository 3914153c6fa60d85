// SPDX-License-Identifier: Apache-2.0
/*
 * A small library with the parts of PHP that a probe needs, for test_probe.c: execute_ex() as gcc
 * compiles it, with a part of it elsewhere, getters from which offsets are read, and the entry of a
 * fiber. Never run.
 *   VERSION   the version that it tells
 *   CURRENT   the offset of the current frame in executor_globals
 *   POINTER   execute_ex() keeps a frame pointer
 *   THREADS   a build for threads
 */
#define TEXT(x)	 TEXT_(x)
#define TEXT_(x) #x

const char header[] = "X-Powered-By: PHP/" VERSION;
#ifdef THREADS
unsigned long executor_globals_offset = 8;
#else
__attribute__((visibility("protected"))) char executor_globals[4096];
#endif

/* clang-format off */
__asm__(".text\n"
	".globl execute_ex, zend_execute, zend_generator_resume, zend_vm_kind, zend_get_executed_scope\n"
	".type execute_ex, @function\n"
	".p2align 4\n"
	"execute_ex:\n"
	".cfi_startproc\n"
#ifdef POINTER
	"endbr64\n"
	"push %rbp\n .cfi_def_cfa_offset 16\n .cfi_offset 6, -16\n"
	"mov %rsp, %rbp\n .cfi_def_cfa_register 6\n"
	"sub $0x98, %rsp\n"
	"mov %fs:0x28, %rax\n"
	"mov %rax, -0x28(%rbp)\n"
	"mov %r14, -0x38(%rbp)\n"
	"mov %rdi, %r14\n"
	"mov (%rdi), %r15\n"
	"test %rdi, %rdi\n"
	"je execute_ex_cold\n"
	"jmp *(%r15)\n"
	"mov -0x38(%rbp), %r14\n"
	"add $0x98, %rsp\n"
	"pop %rbp\n .cfi_def_cfa 7, 8\n"
	"ret\n"
#else
	"push %r13\n .cfi_def_cfa_offset 16\n"
	"push %rbx\n .cfi_def_cfa_offset 24\n"
	"sub $0x78, %rsp\n .cfi_def_cfa_offset 144\n"
	"mov %fs:0x28, %rax\n"
	"mov %rax, 0x68(%rsp)\n"
	"mov %r14, 0x48(%rsp)\n"
	"mov %rdi, %r14\n"
	"mov (%rdi), %r15\n"
	"test %rdi, %rdi\n"
	"je execute_ex_cold\n"
	"jmp *(%r15)\n"
	"mov 0x48(%rsp), %r14\n"
	"add $0x78, %rsp\n .cfi_def_cfa_offset 24\n"
	"pop %rbx\n .cfi_def_cfa_offset 16\n"
	"pop %r13\n .cfi_def_cfa_offset 8\n"
	"ret\n"
#endif
	".cfi_endproc\n"
	".size execute_ex, . - execute_ex\n"
	".type zend_execute, @function\n"
	"zend_execute: call execute_ex\n ret\n"
	".size zend_execute, . - zend_execute\n"
	".type zend_generator_resume, @function\n"
	"zend_generator_resume: call execute_ex\n ret\n"
	".size zend_generator_resume, . - zend_generator_resume\n"
	".type zend_vm_kind, @function\n"
	"zend_vm_kind: mov $4, %eax\n ret\n"
	".size zend_vm_kind, . - zend_vm_kind\n"
#ifndef THREADS
	".type zend_get_executed_scope, @function\n"
	"zend_get_executed_scope: lea executor_globals(%rip), %rax\n"
	"mov " TEXT(CURRENT) "(%rax), %rax\n ret\n"
	".size zend_get_executed_scope, . - zend_get_executed_scope\n"
#endif
	".p2align 4\n"
	"make_fcontext: mov %rdi, %rax\n"
	"lea -0x48(%rax), %rax\n"
	"mov %rdx, 0x30(%rax)\n"
	"stmxcsr (%rax)\n"
	"fnstcw 4(%rax)\n"
	"lea 1f(%rip), %rcx\n"
	"mov %rcx, 0x40(%rax)\n"
	"lea 2f(%rip), %rcx\n"
	"mov %rcx, 0x38(%rax)\n"
	"ret\n"
	"1: push %rbp\n jmp *%rbx\n"
	"2: xor %rdi, %rdi\n call zend_execute\n hlt\n"
	".section .text.unlikely, \"ax\", @progbits\n"
	"execute_ex_cold:\n"
	".cfi_startproc\n"
#ifdef POINTER
	".cfi_def_cfa 6, 16\n .cfi_offset 6, -16\n"
#else
	".cfi_def_cfa_offset 144\n"
#endif
	"nop\n ud2\n"
	".cfi_endproc\n"
	".text\n");
/* clang-format on */
