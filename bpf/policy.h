/* SPDX-License-Identifier: GPL-2.0 */
/* Which policy a hit comes under, and whether it is taken. */
#pragma once

/*
 * The task's state in the hierarchy that counts. Plain loads where the kernel has them, which it
 * guards: a helper's call for each pointer would cost more than all that follows.
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
 * Looks up what a hit comes under in the cgroup of CSS (0: cgroups have no policies), whose serial
 * number is SERIAL. The task is not asked again: it may have been moved meanwhile.
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

/* What the timer's last change of rate left over, when this is the first hit since: ns. */
static __attribute__((noinline)) uint64_t take_carry(struct kiln_cpu *cpu)
{
	uint64_t carry = cpu->carry;

	cpu->carry = 0;
	return bpf_ktime_get_ns() < cpu->carry_until ? carry : 0;
}

/* V, the CPU's last verdict, becomes the one on TASK; it costs nothing where it is the same. */
static __always_inline void find_policy(struct task_struct *task, struct kiln_verdict *v)
{
	/* Before anything that it vouches for. */
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
 * The ns of CPU time that the sample stands for which this hit becomes; 0: none is taken. The CPU's
 * verdict tells the policy.
 *
 * A hit stands for the timer's period. A policy whose period is another saves up the time of its
 * hits, and takes a sample when it has its period together, or one for several periods when it has
 * as many. What it saved up is ns, not hits: both periods may change at any moment, and the sum of
 * a policy's samples is the time of its hits, but for less than one period a CPU.
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
