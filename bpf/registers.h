/* SPDX-License-Identifier: GPL-2.0 */
/* The user registers of the task that was interrupted, and whether it has a user stack yet. */
#pragma once

/* The registers at the interrupt, as programs of perf events get them. */
typedef __typeof__(((struct bpf_perf_event_data *)0)->regs) hit_registers;

static __always_inline void load_registers(struct kiln_walk *w, uint64_t *leaf)
{
	w->regs.pc = leaf[ARCH_REG_PC];
	w->regs.sp = leaf[ARCH_REG_SP];
	w->regs.fp = leaf[ARCH_REG_FP];
	w->regs.extra = leaf[ARCH_REG_EXTRA];
}

/*
 * Reads the user registers of TASK into w->leaf and w->regs. REGS: the registers at the interrupt;
 * NULL: the program was not started by an interrupt. *ret_syscall is set only if the registers are
 * those that the kernel saved at its entry: 1 after a system call, else 0. Returns 0, or -1 if the
 * registers cannot be read.
 */
static __always_inline int user_registers(const hit_registers *regs, struct task_struct *task,
					  struct kiln_walk *w, uint32_t *ret_syscall)
{
	if (regs && ARCH_USER_MODE(regs))
		ARCH_REGS_FROM_PTREGS(w->leaf, regs);
	else if (arch_saved_registers(w->leaf, saved_registers(task), ret_syscall))
		return -1;
	load_registers(w, w->leaf);
	w->exact = 1;
	w->leaf_valid = 1;
	return 0;
}

/*
 * Has the program in the task's memory begun to run? exec (Linux 6.18, fs/exec.c, fs/binfmt_elf.c)
 * switches to the new memory long before it sets the registers. Until create_elf_tables() has laid
 * out the arguments and the environment, the registers are those of the old program, and there is
 * no user stack. mm->end_code is 0 until right after that.
 */
static __always_inline int program_begun(struct task_struct *task)
{
	struct mm_struct *mm = kernel_read(task, mm);

	return mm && kernel_read(mm, end_code);
}

/* Is the pc mapped? It is not while an exec has switched to the new memory and the registers are
 * still those of the old program. */
static __always_inline int code_is_there(const struct kiln_walk *w)
{
	uint8_t byte;

	return !bpf_probe_read_user(&byte, sizeof(byte), (const void *)w->regs.pc);
}
