/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The few kernel types that the programs look into. Only the fields that are used: libbpf finds
 * their real offsets in the running kernel's BTF (CO-RE), so this fits every kernel with these
 * names.
 */
#pragma once

#include "arch.h"

#define KERNEL_TYPE __attribute__((preserve_access_index))

struct kernfs_node {
	uint64_t id;
} KERNEL_TYPE;

struct cgroup;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	uint64_t serial_nr;
} KERNEL_TYPE;

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
} KERNEL_TYPE;

enum cgroup_subsys_id { memory_cgrp_id = 1 };

struct css_set {
	struct cgroup_subsys_state *subsys[16];
	struct cgroup *dfl_cgrp; /* of the v2 hierarchy */
} KERNEL_TYPE;

typedef struct {
	int counter;
} atomic_t;

struct ns_common {
	unsigned int inum;
} KERNEL_TYPE;

struct pid_namespace {
	struct ns_common ns;
} KERNEL_TYPE;

struct upid {
	int nr;
	struct pid_namespace *ns;
} KERNEL_TYPE;

/* The ids of a task: numbers[level] is its id in its own pid namespace, numbers[0] the one in the
 * machine's first namespace. */
struct pid {
	unsigned int level;
	struct upid numbers[1];
} KERNEL_TYPE;

enum pid_type { PIDTYPE_TGID = 1 }; /* since Linux 4.19 */

struct signal_struct {
	atomic_t live;
	struct pid *pids[4];
} KERNEL_TYPE;

struct mm_struct {
	unsigned long start_stack, arg_start, end_code, task_size;
} KERNEL_TYPE;

/* A CPU's run queue. `clock`: the scheduler's time, updated at the start of each switch. */
struct rq {
	uint64_t clock;
} KERNEL_TYPE;

struct cfs_rq {
	struct rq *rq;
} KERNEL_TYPE;

struct sched_entity {
	uint64_t sum_exec_runtime;
	struct cfs_rq *cfs_rq; /* of the task's CPU; only with CONFIG_FAIR_GROUP_SCHED */
} KERNEL_TYPE;

struct task_struct {
	int pid, tgid;
	struct mm_struct *mm;
	struct task_struct *group_leader, *real_parent;
	uint64_t start_boottime;
	uint64_t self_exec_id;
	void *stack;
	struct css_set *cgroups;
	struct signal_struct *signal;
	struct pid *thread_pid;
	char comm[16];
	unsigned int __state;
	unsigned int in_iowait : 1;
	struct sched_entity se;
	struct thread_struct thread;
} KERNEL_TYPE;

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
} KERNEL_TYPE;

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} KERNEL_TYPE;

/* Before Linux 5.14, task_struct.__state was called state and was a long. */
struct task_struct___long_state {
	long state;
} KERNEL_TYPE;

/* start_boottime was real_start_time before Linux 5.5. Kiln needs 5.10, so it always exists. */

/*
 * Does this kernel have the BPF helper? libbpf looks it up in the kernel's BTF when the program is
 * loaded, so the verifier sees a constant and drops the branch that is not taken.
 */
#define KERNEL_HAS(helper) bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_##helper)

/*
 * The task that is interrupted. From Linux 5.11 on the program may dereference the pointer; on
 * older kernels only the helpers that read kernel memory may. kernel_read() does what the kernel
 * allows.
 */
static __always_inline struct task_struct *current_task(void)
{
	if (KERNEL_HAS(get_current_task_btf))
		return bpf_get_current_task_btf();
	return (struct task_struct *)bpf_get_current_task();
}

/* FIELD of the struct that P points to. P comes from current_task() or from the kernel by BTF. */
#define kernel_read(p, field)                                                                      \
	({                                                                                         \
		__typeof__(p) p_ = (p);                                                            \
		KERNEL_HAS(get_current_task_btf) ? p_->field : BPF_CORE_READ(p_, field);           \
	})

const volatile uint32_t page_size = 4096; /* set between open and load */

/*
 * The address at which the kernel saved the user registers of TASK. Before Linux 5.15 there is no
 * helper for it; the registers are at the top of the task's kernel stack.
 */
static __always_inline const void *saved_registers(struct task_struct *task)
{
	if (KERNEL_HAS(task_pt_regs))
		return (const void *)bpf_task_pt_regs(task);
	return (const void *)((uint64_t)BPF_CORE_READ(task, stack) + ARCH_STACK_SIZE -
			      ARCH_PTREGS_SIZE);
}

/*
 * Copies the name of TASK, which must be the current task. It ends with a NUL; the bytes after the
 * NUL are not cleared. Uses two direct loads where the kernel allows them, and not the helper: at
 * low rates the helper's code is not in the CPU's caches, and took 9 % of a native sample's time at
 * 97 Hz.
 */
static __always_inline void copy_comm(uint64_t comm[2], struct task_struct *task)
{
	if (!KERNEL_HAS(get_current_task_btf)) {
		bpf_get_current_comm(comm, 16);
		return;
	}
	comm[0] = ((const uint64_t *)task->comm)[0];
	comm[1] = ((const uint64_t *)task->comm)[1] & ~0ULL >> 8;
}
