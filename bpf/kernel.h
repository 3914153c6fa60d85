/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The few kernel types that the programs look into. Only the fields that are used: libbpf finds
 * their real offsets in the running kernel's BTF (CO-RE), so this fits every kernel with these
 * names.
 */
#pragma once

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

struct signal_struct {
	atomic_t live;
} KERNEL_TYPE;

struct mm_struct {
	unsigned long start_stack, env_end;
} KERNEL_TYPE;

struct thread_struct {
	unsigned long fsbase; /* x86-64 */
} KERNEL_TYPE;

struct task_struct {
	int pid, tgid;
	struct mm_struct *mm;
	struct task_struct *group_leader;
	uint64_t start_boottime;
	uint64_t self_exec_id;
	struct css_set *cgroups;
	struct signal_struct *signal;
	struct thread_struct thread;
} KERNEL_TYPE;

/* start_boottime was real_start_time before Linux 5.5; the floor is 5.15, so it is always there. */
