// SPDX-License-Identifier: Apache-2.0
/*
 * Small libraries that have what perl_probe() looks for, for tests/fuzz/corpus/perl_probe: as Debian builds Perl,
 * without threads (-DGLOBALS), and with the state in another register (-DOTHER).
 *
 *   gcc -shared -nostdlib -Wl,--build-id=none,-z,max-page-size=64,-z,noseparate-code -DMINOR=36 probe.S -o threaded
 *   strip threaded
 */
	.section .rodata
	.globl PL_revision, PL_version, PL_subversion
	.type PL_revision,@object
	.size PL_revision,1
PL_revision: .byte 5
	.type PL_version,@object
	.size PL_version,1
PL_version: .byte MINOR
	.type PL_subversion,@object
	.size PL_subversion,1
PL_subversion: .byte 3
	.data
	.globl PL_thr_key
	.type PL_thr_key,@object
	.size PL_thr_key,4
PL_thr_key: .long 0
#ifdef GLOBALS
	.irp name, PL_op, PL_curcop, PL_curstackinfo, PL_top_env, PL_compiling, PL_markstack, PL_markstack_ptr, PL_sortcop
	.globl \name
	.type \name,@object
	.size \name,8
\name:	.quad 0
	.endr
#endif
	.text
	.globl Perl_runops_standard
	.type Perl_runops_standard,@function
Perl_runops_standard:
	push %rbx
	mov 8(%rdi),%rax
#ifdef OTHER
	mov %rdi,%r12
1:	mov %r12,%rdi
	call *16(%rax)
	mov %rax,8(%r12)
#else
	mov %rdi,%rbx
1:	mov %rbx,%rdi
	call *16(%rax)
	mov %rax,8(%rbx)
#endif
	test %rax,%rax
	jne 1b
	xor %eax,%eax
	pop %rbx
	ret
	.size Perl_runops_standard,.-Perl_runops_standard
