/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * x86-64: which register has which role (types.h), where a frame keeps its return address, the
 * signal frame, and how the kernel side reads registers.
 *
 * DWARF numbers: System V ABI AMD64, fig. 3.36. Signal frame: Linux arch/x86/include/uapi/asm/
 * sigcontext.h (struct sigcontext_64 lies 40 bytes into struct ucontext, asm-generic/ucontext.h).
 */
#pragma once

#include "types.h"

enum {
	ARCH_REG_EXTRA = 3, /* rbx: clang's base pointer of realigned frames */
	ARCH_REG_FP = 6,    /* rbp */
	ARCH_REG_SP = 7,
	ARCH_REG_RA = 16,
	ARCH_REG_PC = 16,
	ARCH_REG_ARG0 = 5,	/* rdi: a function's first argument */
	ARCH_REG_ARG1 = 4,	/* rsi: and its second */
	ARCH_GENERAL_REGS = 16, /* registers that can be the base of a CFA */
	ARCH_REGS = 17,
	ARCH_REGS_FREE = 12,	  /* functions may change lower registers (except extra, fp, sp) */
	ARCH_LEAF_ROOM = 32,	  /* ARCH_REGS, rounded up to a power of two */
	ARCH_UCONTEXT_REGS = 40,  /* bytes from the ucontext's start to its registers */
	ARCH_UCONTEXT_N = 17,	  /* r8..r15 rdi rsi rbp rbx rdx rax rcx rsp rip */
	ARCH_SIGNAL_UCONTEXT = 0, /* from sp to the ucontext after a signal handler's return */
	ARCH_RA_UNIT = 1,	  /* bytes */
	ARCH_RA_OFFSET = -8,	  /* a call pushes the return address: 8 bytes below the CFA */
	ARCH_ENTRY_CFA = 8,	  /* CFA - sp at a function's first instruction */
	ARCH_RA_IN_REGISTER = 0,  /* a call leaves the return address in a register */
	ARCH_HAS_BASE = 0,	  /* no rule has KILN_RULE_AT_BASE */
	ARCH_CODE_UNIT = 1,	  /* the size of an instruction is a multiple of this, in bytes */
	ARCH_CODE_ALIGN = 16,	  /* compilers align functions to at least so many bytes */
	ARCH_SIGNS_RA = 0,	  /* code may sign return addresses */
};

/*
 * For walk_usual_step(): the bits of kiln_rule_head() in which usual rules may differ, the ra_off
 * in the head that usual rules share, and the ra_off of a usual rule.
 */
#define ARCH_HEAD_VARIES    ((uint32_t)(KILN_RULE_SAVED_FP | KILN_RULE_SAVED_EXTRA) << KILN_HEAD_FLAGS)
#define ARCH_HEAD_RA	    ARCH_RA_OFFSET
#define ARCH_RA_OFF(ra_off) ARCH_RA_OFFSET

/* State of a walk that depends on the architecture: none on x86-64. */
struct arch_walk {
};

static inline void arch_walk_init(struct arch_walk *a, uint64_t code_mask)
{
	(void)a;
	(void)code_mask;
}

static inline uint64_t arch_code_mask(const struct arch_walk *a)
{
	(void)a;
	return ~0ULL;
}

/* The address in the return address RA: RA itself, since x86-64 does not sign return addresses. */
static inline __attribute__((always_inline)) uint64_t arch_code_address(const struct arch_walk *a,
									uint64_t ra)
{
	(void)a;
	return ra;
}

/* The DWARF number of the Nth register in the signal frame. */
static inline __attribute__((always_inline)) uint32_t arch_ucontext_dwarf(uint32_t n)
{
	/* A switch, so that no table in memory is needed. */
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

#ifdef __bpf__
#include <linux/bpf_perf_event.h>
#include <bpf/bpf_helpers.h>

struct thread_struct {
	unsigned long fsbase;
} __attribute__((preserve_access_index));

/* Copies the registers of pt_regs P (UAPI names) to LEAF: ARCH_REGS words in DWARF order. */
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
#define ARCH_USER_MODE(p) (((p)->cs & 3) == 3)

/*
 * Copies the user registers that the kernel saved on its stack at SAVED to LEAF. *ret_syscall: 1 if
 * the task entered the kernel by a system call, 0 if by a fault or an interrupt. Returns 0, or -1
 * if the registers cannot be read or the saved stack pointer is 0.
 */
static inline __attribute__((always_inline)) int
arch_saved_registers(uint64_t *leaf, const void *saved, uint32_t *ret_syscall)
{
	struct pt_regs copy;

	if (bpf_probe_read_kernel(&copy, sizeof(copy), saved))
		return -1;
	if (!copy.rsp)
		return -1;
	*ret_syscall = (long)copy.orig_rax >= 0;
	ARCH_REGS_FROM_PTREGS(leaf, &copy);
	return 0;
}

/*
 * Where the task entered the kernel, from the registers at SAVED: the number of the system call,
 * the pc and the sp. Returns 0, or -1 if they cannot be read.
 */
static inline __attribute__((always_inline)) int arch_entry_place(uint64_t place[3],
								  const void *saved)
{
	uint64_t from[5]; /* orig_rax, rip, cs, eflags, rsp */

	if (bpf_probe_read_kernel(from, sizeof(from),
				  (const char *)saved +
				      __builtin_offsetof(struct pt_regs, orig_rax)))
		return -1;
	place[0] = from[0];
	place[1] = from[1];
	place[2] = from[4];
	return 0;
}

/* Bytes of a kernel stack (page_64_types.h, THREAD_SIZE: only KASAN makes it larger), and of the
 * registers at its top (processor.h, task_pt_regs(): no padding). */
#define ARCH_STACK_SIZE		  16384
#define ARCH_PTREGS_SIZE	  sizeof(struct pt_regs)
/* The thread pointer, which thread-local variables are relative to: its value when the kernel last
 * saved it, which it does when the thread is set up or switched out. */
#define ARCH_THREAD_POINTER(task) kernel_read(task, thread.fsbase)
/* Bytes from the thread pointer to the address of the vector of TLS blocks: glibc,
 * sysdeps/x86_64/nptl/tls.h, tcbhead_t.dtv; musl, src/internal/pthread_impl.h, struct pthread. */
#define ARCH_DTV		  8
#define ARCH_CODE_MASK(task)	  (~0ULL)
#endif
