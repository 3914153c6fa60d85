/* SPDX-License-Identifier: GPL-2.0 */
/* Finds the policy of a hit, and decides whether the hit becomes a sample. */
#pragma once

/*
 * The task's cgroup_subsys_state in the hierarchy that policies refer to: v2, or the v1 memory
 * controller. Uses plain loads, which the kernel guards against faults, where the kernel has them:
 * a helper call for each pointer would cost more than the rest of the policy lookup.
 */
static __always_inline struct cgroup_subsys_state *task_css(struct task_struct *task)
{
	uint32_t memory = bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id);
	struct css_set *set = kernel_read(task, cgroups);

	if (!cgroup_v1)
		return &kernel_read(set, dfl_cgrp)->self;
	return kernel_read(set, subsys[memory & 15]);
}

/*
 * Looks up the policy of the cgroup of CSS (0: cgroups have no policies) and stores it in V. SERIAL
 * is the serial number of CSS, EPOCH the policy_epoch. The cgroup is not read from the task again,
 * because the task may have been moved meanwhile.
 */
static __attribute__((noinline)) void decide(struct cgroup_subsys_state *css, uint64_t serial,
					     uint32_t epoch, struct kiln_verdict *v)
{
	uint32_t index = default_policy, *found;
	struct kiln_policy *policy;
	uint64_t cgroup = 0;

	if (css) {
		struct kernfs_node *node = kernel_read(kernel_read(css, cgroup), kn);

		cgroup = kernel_read(node, id);
		found = bpf_map_lookup_elem(&cgroup_policy, &cgroup);
		if (found)
			index = *found;
	}
	policy = bpf_map_lookup_elem(&policies, &index);
	v->css = serial;
	v->cgroup = cgroup;
	v->epoch = epoch;
	v->index = index;
	v->period = 0;
	v->runtimes = 0;
	if (policy && policy->mode != KILN_POLICY_DISABLED && policy->hz) {
		v->period = (uint32_t)kiln_period(policy->hz);
		v->runtimes = policy->runtimes;
	}
}

/*
 * The ns between the timer's last hit and the last change of its rate, if this hit is the first
 * one since that change; else 0. See struct kiln_cpu.
 */
static __attribute__((noinline)) uint64_t take_carry(struct kiln_cpu *cpu)
{
	uint64_t carry = cpu->carry;

	cpu->carry = 0;
	return bpf_ktime_get_ns() < cpu->carry_until ? carry : 0;
}

/* Makes V, the CPU's last verdict, the verdict on TASK. Looks nothing up if V still holds. */
static __always_inline void find_policy(struct task_struct *task, struct kiln_verdict *v)
{
	/* The epoch is read before the data that it vouches for. */
	uint32_t epoch = *(volatile uint32_t *)&policy_epoch;
	struct cgroup_subsys_state *css = 0;
	uint64_t serial = 0;

	if (use_cgroups) {
		css = task_css(task);
		serial = kernel_read(css, serial_nr);
	}
	if (v->css != serial || v->epoch != epoch)
		decide(css, serial, epoch, v);
}

/*
 * Decides whether this timer hit becomes a sample. Returns the ns of CPU time that the sample
 * stands for; 0: no sample. Afterwards the CPU's verdict is the one on TASK.
 *
 * A hit stands for the timer's period. A policy with another period saves up the time of its hits,
 * and takes a sample when it has saved up a period; after several periods, one sample for all of
 * them. It saves up ns, not hits, because both periods may change at any moment. So the sum of a
 * policy's samples is the time of its hits, except for less than one period on each CPU.
 */
static __always_inline uint64_t select_policy(struct task_struct *task, struct kiln_cpu *cpu)
{
	struct kiln_verdict *v = &cpu->verdict;
	uint64_t *credit, carry = 0, value;
	uint32_t index;

	find_policy(task, v);
	if (cpu->carry)
		carry = take_carry(cpu);
	if (!v->period) {
		cpu->stats.n[KILN_STAT_SKIPPED]++;
		return 0;
	}
	if (v->period == timer_ns && !carry)
		return v->period;
	index = v->index;
	credit = bpf_map_lookup_elem(&policy_credit, &index);
	if (!credit)
		return 0;
	*credit += timer_ns + carry;
	if (*credit < v->period) {
		cpu->stats.n[KILN_STAT_THINNED]++;
		return 0;
	}
	value = *credit - *credit % v->period;
	*credit -= value;
	return value;
}
