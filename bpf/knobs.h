/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What user space tells the programs in variables. Every object with an entry of its own includes
 * this and has no other variable outside of its maps: so they are at the same places in all, and
 * the objects share one map of them (agent/sampler/program_set.c).
 */
#pragma once

/* Set between open and load. */
const volatile uint32_t max_depth = KILN_MAX_USER_FRAMES;
const volatile uint32_t ring_shift = 20; /* log2 of the ring's bytes */
const volatile uint32_t ring_unasked;	 /* bytes; see ring_used() */

#define NS_PER_SECOND 1000000000ULL

/*
 * Written by user space; the first two before loading, but they are here because a hit that is not
 * taken should not touch a second cache line for its switches.
 */
uint8_t cgroup_v1;	 /* cgroup ids of the v1 memory controller */
uint8_t filter_pids;	 /* only processes in pid_filter */
uint32_t cache_epoch;	 /* a new value makes every cached rule void */
uint32_t runtimes_epoch; /* a new value, after a change of `runtimes`, makes copies of it void */
uint64_t timer_ns;	 /* between two hits of a timer: the time that a hit stands for */
uint32_t default_policy; /* of cgroups that are not in cgroup_policy */
uint32_t use_cgroups;	 /* cgroups have policies: look at the task's */
uint32_t less_detail;	 /* the budget: 1: no copies of stacks, 2: short stacks as well */
uint32_t policy_epoch;	 /* a new value, after a change of the above or of the maps, makes every
			  * verdict void; never 0 */
uint32_t off_cpu_shift;	 /* walks at switches are halved so often: see bpf/offcpu.bpf.c */
