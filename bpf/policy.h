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
	v->policy.mode = policy ? policy->mode : KILN_POLICY_DISABLED;
	v->policy.hz = policy ? policy->hz : 0;
	v->policy.tracers = policy ? policy->tracers : 0;
	v->policy.runtimes = policy ? policy->runtimes : 0;
}

/*
 * Whether this hit is taken; the CPU's verdict says under which policy. A slower policy saves up
 * the time of its hits (in hz * ns: a second's worth is one sample) and takes one when it has its
 * period together; so its samples stand for the same time whatever the timers' rate is, and that
 * may change at any moment.
 */
static __always_inline int select_policy(struct task_struct *task, struct kiln_cpu *cpu)
{
	/* Before anything that it vouches for. */
	uint32_t epoch = *(volatile uint32_t *)&policy_epoch, index;
	struct kiln_verdict *v = &cpu->verdict;
	struct cgroup_subsys_state *css = 0;
	uint64_t serial = 0, *credit;

	if (use_cgroups) {
		css = task_css(task);
		serial = kernel_read(css, serial_nr);
	}
	if (v->css != serial || v->epoch != epoch)
		decide(css, serial, epoch, v);
	if (v->policy.mode == KILN_POLICY_DISABLED) {
		cpu->stats.n[KILN_STAT_SKIPPED]++;
		return 0;
	}
	/* The period is cut to whole ns: + 1, so that the timers' own rate is not below itself. */
	if (v->policy.hz * (timer_ns + 1) < NS_PER_SECOND) {
		index = v->index;
		credit = bpf_map_lookup_elem(&policy_credit, &index);
		if (!credit)
			return 0;
		*credit += v->policy.hz * timer_ns;
		if (*credit < NS_PER_SECOND) {
			cpu->stats.n[KILN_STAT_THINNED]++;
			return 0;
		}
		*credit -= NS_PER_SECOND;
	}
	return 1;
}
