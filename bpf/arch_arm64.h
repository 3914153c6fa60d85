/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * arm64: which register has which role (types.h), where a frame keeps its return address, the
 * signal frame, pointer authentication, and how the kernel side reads registers.
 *
 * A call leaves the return address in x30; functions that call others save it, mostly beside x29,
 * anywhere in their frame. So where it is is a matter of the rule, not of the architecture.
 *
 * DWARF numbers: DWARF for the Arm 64-bit Architecture (AADWARF64) 2023Q3, table "DWARF register
 * names". Signal frame: Linux arch/arm64/kernel/signal.c (struct rt_sigframe: siginfo, of 128
 * bytes, and ucontext); include/uapi/asm/ucontext.h and sigcontext.h (uc_mcontext at 176, behind
 * 128 bytes of signal mask and aligned to 16; in it fault_address, regs[31], sp, pc).
 */
#pragma once

#include "types.h"

enum {
	/* x19. No compiler computes a CFA from it (gcc and clang use x29 where sp does not do), but
	 * it is clang's base pointer, and the first register in which gcc keeps a value across
	 * calls: what interpreters' loops hold, and what their walkers ask for. */
	ARCH_REG_EXTRA = 19,
	ARCH_REG_FP = 29,
	ARCH_REG_RA = 30,
	ARCH_REG_SP = 31,
	ARCH_REG_PC = 32,
	ARCH_REG_ARG0 = 0,	    /* a function's first argument */
	ARCH_REG_ARG1 = 1,	    /* and its second */
	ARCH_GENERAL_REGS = 32,	    /* that a CFA can count from */
	ARCH_REGS = 33,		    /* x0..x30 sp pc */
	ARCH_REGS_FREE = 19,	    /* below: those that a function may change (AAPCS64, 6.1.1) */
	ARCH_LEAF_ROOM = 64,	    /* ARCH_REGS, rounded up to a power of two */
	ARCH_UCONTEXT_REGS = 184,   /* bytes from the ucontext */
	ARCH_UCONTEXT_N = 33,	    /* in the order of their numbers */
	ARCH_SIGNAL_UCONTEXT = 128, /* bytes from sp, where a handler returns to */
	ARCH_RA_UNIT = 8,	    /* bytes */
	ARCH_RA_OFFSET = -1, /* where compilers and built-in rules put it: above the saved x29 */
	ARCH_ENTRY_CFA = 0,  /* of the CFA above sp at a function's first instruction */
	ARCH_RA_IN_REGISTER = 1, /* a function that says nothing of it has it in x30 */
	ARCH_HAS_BASE = 1,	 /* rules may have KILN_RULE_AT_BASE */
	ARCH_CODE_UNIT = 4,	 /* bytes that instructions are multiples of */
	ARCH_CODE_ALIGN = 4,	 /* ... and that compilers align functions to, at least */
	ARCH_SIGNS_RA = 1,	 /* code may sign return addresses */
};

/* What the heads of usual rules differ in, and the ra_off that they have in common. */
#define ARCH_HEAD_VARIES                                                                           \
	((uint32_t)(KILN_RULE_SAVED_FP | KILN_RULE_SAVED_EXTRA | KILN_RULE_AT_BASE)                \
	     << KILN_HEAD_FLAGS |                                                                  \
	 (uint32_t)0xff << KILN_HEAD_RA)
#define ARCH_HEAD_RA	    0
#define ARCH_RA_OFF(ra_off) (ra_off)

/*
 * Functions that sign their return address (pointer authentication) put a signature into the bits
 * above the address space. User addresses have no other bits there, so it is taken off without a
 * key. How large the address space is the task tells: 39 to 52 bits. Source: Linux
 * Documentation/arch/arm64/pointer-authentication.rst; arch/arm64/include/asm/pointer_auth.h,
 * ptrauth_user_pac_mask(); asm/processor.h, TASK_SIZE_64, which exec puts into mm.task_size.
 */
struct arch_walk {
	uint64_t code_mask; /* the bits of an address */
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

/* UAPI: asm/ptrace.h and linux/bpf_perf_event.h. Here, so that any machine can compile this. */
struct user_pt_regs {
	uint64_t regs[31];
	uint64_t sp, pc, pstate;
};

struct bpf_perf_event_data {
	struct user_pt_regs regs;
	uint64_t sample_period, addr;
};

/* The kernel's own, which begins with a struct user_pt_regs. */
struct pt_regs {
	int syscallno; /* -1: not in a system call (asm/ptrace.h, NO_SYSCALL) */
} __attribute__((preserve_access_index));

struct thread_struct {
	struct {
		unsigned long tp_value;
	} uw;
} __attribute__((preserve_access_index));

/* LEAF: ARCH_REGS words in DWARF order from user_pt_regs P. */
#define ARCH_REGS_FROM_PTREGS(leaf, p)                                                             \
	do {                                                                                       \
		_Pragma("unroll") for (int i_ = 0; i_ < 31; i_++)(leaf)[i_] = (p)->regs[i_];       \
		(leaf)[31] = (p)->sp;                                                              \
		(leaf)[32] = (p)->pc;                                                              \
	} while (0)

/* Interrupted in user mode? asm/ptrace.h, user_mode(): PSR_MODE_MASK, PSR_MODE_EL0t. */
#define ARCH_USER_MODE(p) (((p)->pstate & 0xf) == 0)

/*
 * LEAF from what the kernel saved on its stack at SAVED. *ret_syscall: in a system call, as opposed
 * to a fault or an interrupt? 0, or -1.
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

/* Bytes of a kernel stack (asm/memory.h, THREAD_SIZE: 16 KiB, a page where that is more; only KASAN
 * makes it larger), and of the registers at its top (asm/processor.h, task_pt_regs()). */
#define ARCH_STACK_SIZE		  (page_size > 16384 ? page_size : 16384)
#define ARCH_PTREGS_SIZE	  bpf_core_type_size(struct pt_regs)
/* What thread-local variables are found by: as the kernel last saved it, when the thread was set up
 * or switched away from. */
#define ARCH_THREAD_POINTER(task) kernel_read(task, thread.uw.tp_value)
/* From there to the address of the vector of TLS blocks: glibc, sysdeps/aarch64/nptl/tls.h,
 * tcbhead_t.dtv. */
#define ARCH_DTV		  0
/* The bits of a user address; 48 are what a program gets that does not ask for more. */
#define ARCH_CODE_MASK(task)                                                                       \
	({                                                                                         \
		struct mm_struct *mm_ = kernel_read(task, mm);                                     \
		uint64_t size_ = 1ULL << 48;                                                       \
		if (mm_ && bpf_core_field_exists(mm_->task_size))                                  \
			size_ = kernel_read(mm_, task_size);                                       \
		size_ - 1;                                                                         \
	})
#endif
