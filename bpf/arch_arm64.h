/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * arm64: which register has which role (types.h), where a frame keeps its return address, the
 * signal frame, pointer authentication, and how the kernel side reads registers.
 *
 * A call leaves the return address in x30. Functions that call others save it, mostly beside x29,
 * anywhere in their frame. So each rule tells where the return address is.
 *
 * DWARF numbers: DWARF for the Arm 64-bit Architecture (AADWARF64) 2023Q3, table "DWARF register
 * names". Signal frame: Linux arch/arm64/kernel/signal.c (struct rt_sigframe: siginfo, of 128
 * bytes, and ucontext); include/uapi/asm/ucontext.h and sigcontext.h (uc_mcontext at 176, behind
 * 128 bytes of signal mask and aligned to 16; in it fault_address, regs[31], sp, pc).
 */
#pragma once

#include "types.h"

enum {
	/* x19. No compiler computes a CFA from it (gcc and clang use x29 when they cannot use sp).
	 * But it is clang's base pointer, and the first register in which gcc keeps a value across
	 * calls: an interpreter's loop keeps values there that the runtime's walker needs. */
	ARCH_REG_EXTRA = 19,
	ARCH_REG_FP = 29,
	ARCH_REG_RA = 30,
	ARCH_REG_SP = 31,
	ARCH_REG_PC = 32,
	ARCH_REG_ARG0 = 0,	    /* a function's first argument */
	ARCH_REG_ARG1 = 1,	    /* and its second */
	ARCH_GENERAL_REGS = 32,	    /* registers that can be the base of a CFA */
	ARCH_REGS = 33,		    /* x0..x30 sp pc */
	ARCH_REGS_FREE = 19,	    /* functions may change lower registers (AAPCS64, 6.1.1) */
	ARCH_LEAF_ROOM = 64,	    /* ARCH_REGS, rounded up to a power of two */
	ARCH_UCONTEXT_REGS = 184,   /* bytes from the ucontext's start to its registers */
	ARCH_UCONTEXT_N = 33,	    /* its registers, in the order of DWARF numbers */
	ARCH_SIGNAL_UCONTEXT = 128, /* from sp to the ucontext after a signal handler's return */
	ARCH_RA_UNIT = 8,	    /* bytes */
	ARCH_RA_OFFSET = -1,	 /* ra_off of compilers and built-in rules: above the saved x29 */
	ARCH_ENTRY_CFA = 0,	 /* CFA - sp at a function's first instruction */
	ARCH_RA_IN_REGISTER = 1, /* a call leaves the return address in a register: x30 */
	ARCH_HAS_BASE = 1,	 /* rules may have KILN_RULE_AT_BASE */
	ARCH_CODE_UNIT = 4,	 /* the size of an instruction is a multiple of this, in bytes */
	ARCH_CODE_ALIGN = 4,	 /* compilers align functions to at least so many bytes */
	ARCH_SIGNS_RA = 1,	 /* code may sign return addresses */
};

/*
 * For walk_usual_step(): the bits of kiln_rule_head() in which usual rules may differ, the ra_off
 * in the head that usual rules share, and the ra_off of a usual rule.
 */
#define ARCH_HEAD_VARIES                                                                           \
	((uint32_t)(KILN_RULE_SAVED_FP | KILN_RULE_SAVED_EXTRA | KILN_RULE_AT_BASE)                \
	     << KILN_HEAD_FLAGS |                                                                  \
	 (uint32_t)0xff << KILN_HEAD_RA)
#define ARCH_HEAD_RA	    0
#define ARCH_RA_OFF(ra_off) (ra_off)

/*
 * Functions that sign their return address (pointer authentication) put a signature into the bits
 * above the address space. User addresses have no other bits there, so the signature is removed
 * without a key. The size of the address space is that of the task: 39 to 52 bits. Source: Linux
 * Documentation/arch/arm64/pointer-authentication.rst; arch/arm64/include/asm/pointer_auth.h,
 * ptrauth_user_pac_mask(); asm/processor.h, TASK_SIZE_64, which exec puts into mm.task_size.
 */
struct arch_walk {
	uint64_t code_mask; /* the bits of a return address that are the address */
};

static inline void arch_walk_init(struct arch_walk *a, uint64_t code_mask)
{
	a->code_mask = code_mask;
}

static inline uint64_t arch_code_mask(const struct arch_walk *a)
{
	return a->code_mask;
}

static inline __attribute__((always_inline)) uint64_t arch_code_address(const struct arch_walk *a,
									uint64_t ra)
{
	return ra & a->code_mask;
}

/* The DWARF number of the Nth register in the signal frame. */
static inline __attribute__((always_inline)) uint32_t arch_ucontext_dwarf(uint32_t n)
{
	return n;
}

#ifdef __bpf__
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

/* Copies of structs of UAPI asm/ptrace.h and linux/bpf_perf_event.h, because other machines do not
 * have arm64's headers. */
struct user_pt_regs {
	uint64_t regs[31];
	uint64_t sp, pc, pstate;
};

struct bpf_perf_event_data {
	struct user_pt_regs regs;
	uint64_t sample_period, addr;
};

/* The kernel's struct, which begins with a struct user_pt_regs. */
struct pt_regs {
	int syscallno; /* -1: not in a system call (asm/ptrace.h, NO_SYSCALL) */
} __attribute__((preserve_access_index));

struct thread_struct {
	struct {
		unsigned long tp_value;
	} uw;
} __attribute__((preserve_access_index));

/* Copies the registers of user_pt_regs P to LEAF: ARCH_REGS words in DWARF order. */
#define ARCH_REGS_FROM_PTREGS(leaf, p)                                                             \
	do {                                                                                       \
		_Pragma("unroll") for (int i_ = 0; i_ < 31; i_++)(leaf)[i_] = (p)->regs[i_];       \
		(leaf)[31] = (p)->sp;                                                              \
		(leaf)[32] = (p)->pc;                                                              \
	} while (0)

/* Interrupted in user mode? asm/ptrace.h, user_mode(): PSR_MODE_MASK, PSR_MODE_EL0t. */
#define ARCH_USER_MODE(p) (((p)->pstate & 0xf) == 0)

/*
 * Copies the user registers that the kernel saved on its stack at SAVED to LEAF. *ret_syscall: 1 if
 * the task entered the kernel by a system call, 0 if by a fault or an interrupt. Returns 0, or -1
 * if the registers cannot be read or the saved stack pointer is 0.
 */
static inline __attribute__((always_inline)) int
arch_saved_registers(uint64_t *leaf, const void *saved, uint32_t *ret_syscall)
{
	const struct pt_regs *regs = saved;

	if (bpf_probe_read_kernel(leaf, ARCH_REGS * sizeof(*leaf), saved) || !leaf[ARCH_REG_SP])
		return -1;
	*ret_syscall = BPF_CORE_READ(regs, syscallno) >= 0;
	return 0;
}

/*
 * Where the task entered the kernel, from the registers at SAVED: the number of the system call,
 * the pc and the sp. Returns 0, or -1 if they cannot be read.
 */
static inline __attribute__((always_inline)) int arch_entry_place(uint64_t place[3],
								  const void *saved)
{
	const struct pt_regs *regs = saved;
	uint64_t from[2]; /* sp, pc */

	if (bpf_probe_read_kernel(from, sizeof(from), (const uint64_t *)saved + ARCH_REG_SP))
		return -1;
	place[0] = (uint64_t)BPF_CORE_READ(regs, syscallno);
	place[1] = from[1];
	place[2] = from[0];
	return 0;
}

/* Bytes of a kernel stack (asm/memory.h, THREAD_SIZE: 16 KiB, a page where that is more; only KASAN
 * makes it larger), and of the registers at its top (asm/processor.h, task_pt_regs()). */
#define ARCH_STACK_SIZE		  (page_size > 16384 ? page_size : 16384)
#define ARCH_PTREGS_SIZE	  bpf_core_type_size(struct pt_regs)
/* The thread pointer, which thread-local variables are relative to: its value when the kernel last
 * saved it, which it does when the thread is set up or switched out. */
#define ARCH_THREAD_POINTER(task) kernel_read(task, thread.uw.tp_value)
/* Bytes from the thread pointer to the address of the vector of TLS blocks: glibc,
 * sysdeps/aarch64/nptl/tls.h, tcbhead_t.dtv. */
#define ARCH_DTV		  0
/* A mask of the bits of a user address: 48 where mm.task_size is unknown, since a program gets
 * higher addresses only if it asks for them. */
#define ARCH_CODE_MASK(task)                                                                       \
	({                                                                                         \
		struct mm_struct *mm_ = kernel_read(task, mm);                                     \
		uint64_t size_ = 1ULL << 48;                                                       \
		if (mm_ && bpf_core_field_exists(mm_->task_size))                                  \
			size_ = kernel_read(mm_, task_size);                                       \
		size_ - 1;                                                                         \
	})
#endif
