/* SPDX-License-Identifier: Apache-2.0 */
/* The policies in the kernel: their rates, and which cgroup has which. */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "agent/sampler/sampler_internal.h"

/* Invalidates the policy decisions that the BPF programs have cached. */
static void forget_verdicts(struct sampler *s)
{
	uint32_t *epoch = &s->skel->bss->knobs.policy_epoch;

	if (__atomic_add_fetch(epoch, 1, __ATOMIC_RELEASE) == 0)
		__atomic_store_n(epoch, 1, __ATOMIC_RELEASE);
}

void sampler_set_detail(struct sampler *s, uint32_t less)
{
	s->skel->bss->knobs.less_detail = less;
}

int sampler_set_policy(struct sampler *s, uint32_t index, const struct kiln_policy *policy)
{
	if (bpf_map_update_elem(bpf_map__fd(s->skel->maps.policies), &index, policy, BPF_ANY) < 0)
		return -errno;
	forget_verdicts(s);
	return 0;
}

int sampler_limit_policy(struct sampler *s, uint32_t index, uint32_t hz)
{
	struct kiln_policy policy;

	if (bpf_map_lookup_elem(bpf_map__fd(s->skel->maps.policies), &index, &policy) < 0)
		return -errno;
	policy.hz = hz;
	/* Off-CPU walks cost CPU time too: they are reduced by the same factor. */
	policy.off_cpu = (uint32_t)((uint64_t)s->own_off_cpu * hz / MAX(s->own_hz, 1U));
	return sampler_set_policy(s, index, &policy);
}

void sampler_set_default_policy(struct sampler *s, uint32_t index)
{
	s->skel->bss->knobs.default_policy = index;
	forget_verdicts(s);
}

void sampler_use_cgroups(struct sampler *s)
{
	s->skel->bss->knobs.use_cgroups = 1;
	forget_verdicts(s);
}

int sampler_cgroup_policies_fd(const struct sampler *s)
{
	return bpf_map__fd(s->skel->maps.cgroup_policy);
}

int sampler_set_cgroup_policy(struct sampler *s, uint64_t cgroup, uint32_t index)
{
	if (bpf_map_update_elem(sampler_cgroup_policies_fd(s), &cgroup, &index, BPF_ANY) < 0)
		return -errno;
	sampler_use_cgroups(s);
	return 0;
}

int sampler_delete_cgroup_policy(struct sampler *s, uint64_t cgroup)
{
	if (bpf_map_delete_elem(sampler_cgroup_policies_fd(s), &cgroup) < 0)
		return -errno;
	forget_verdicts(s);
	return 0;
}
