/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * x86-64: register numbers, the signal frame and how registers are read from pt_regs. The only file
 * of the BPF side that differs between architectures.
 *
 * DWARF numbers: System V ABI AMD64, fig. 3.36. Signal frame: Linux arch/x86/include/uapi/asm/
 * sigcontext.h (struct sigcontext_64 lies 40 bytes into struct ucontext, asm-generic/ucontext.h).
 */
#pragma once

#include "types.h"

enum {
	ARCH_REG_EXTRA = 3,
	ARCH_REG_FP = 6,
	ARCH_REG_SP = 7,
	ARCH_REG_PC = 16,
	ARCH_REGS = 17,
	ARCH_REGS_FREE = 12,	 /* below: those that a function may change (and bx, bp, sp) */
	ARCH_LEAF_ROOM = 32,	 /* ARCH_REGS, rounded up to a power of two */
	ARCH_UCONTEXT_REGS = 40, /* bytes */
	ARCH_UCONTEXT_N = 17,	 /* r8..r15 rdi rsi rbp rbx rdx rax rcx rsp rip */
};

/* The DWARF number of the Nth register in the signal frame. */
static inline __attribute__((always_inline)) uint32_t arch_ucontext_dwarf(uint32_t n)
{
	/* One nibble or more a register, packed so that no table in memory is needed. */
	switch (n) {
	case 8:
		return 5; /* rdi */
	case 9:
		return 4; /* rsi */
	case 10:
		return 6; /* rbp */
	case 11:
		return 3; /* rbx */
	case 12:
		return 1; /* rdx */
	case 13:
		return 0; /* rax */
	case 14:
		return 2; /* rcx */
	case 15:
		return 7; /* rsp */
	case 16:
		return 16; /* rip */
	default:
		return 8 + n; /* r8..r15 */
	}
}

/* LEAF: ARCH_REGS words in DWARF order from pt_regs P (UAPI names). */
#define ARCH_REGS_FROM_PTREGS(leaf, p)                                                             \
	do {                                                                                       \
		(leaf)[0] = (p)->rax;                                                              \
		(leaf)[1] = (p)->rdx;                                                              \
		(leaf)[2] = (p)->rcx;                                                              \
		(leaf)[3] = (p)->rbx;                                                              \
		(leaf)[4] = (p)->rsi;                                                              \
		(leaf)[5] = (p)->rdi;                                                              \
		(leaf)[6] = (p)->rbp;                                                              \
		(leaf)[7] = (p)->rsp;                                                              \
		(leaf)[8] = (p)->r8;                                                               \
		(leaf)[9] = (p)->r9;                                                               \
		(leaf)[10] = (p)->r10;                                                             \
		(leaf)[11] = (p)->r11;                                                             \
		(leaf)[12] = (p)->r12;                                                             \
		(leaf)[13] = (p)->r13;                                                             \
		(leaf)[14] = (p)->r14;                                                             \
		(leaf)[15] = (p)->r15;                                                             \
		(leaf)[16] = (p)->rip;                                                             \
	} while (0)

/* Interrupted in user mode? Two low bits of cs are the privilege level. */
#define ARCH_USER_MODE(p)	  (((p)->cs & 3) == 3)
#define ARCH_SP(p)		  ((p)->rsp)
/* In a system call, as opposed to a fault or an interrupt? */
#define ARCH_IN_SYSCALL(p)	  ((long)(p)->orig_rax >= 0)
/* What thread-local variables are found by: as the kernel last saved it, when the thread was set up
 * or switched away from. */
#define ARCH_THREAD_POINTER(task) kernel_read(task, thread.fsbase)
