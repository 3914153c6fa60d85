/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The variables by which user space controls the programs. Every object with an entry program
 * includes this file and kernel.h, and has no variables of its own in .bss and .rodata. So the
 * variables have the same offsets in all these objects, which can share one map of them
 * (agent/sampler/off_cpu.c, agent/probes/kernel.c).
 */
#pragma once

/* Set between open and load. */
const volatile uint32_t max_depth = KILN_MAX_USER_FRAMES;
const volatile uint32_t ring_shift = 20; /* log2 of the ring's bytes */
const volatile uint32_t ring_unasked;	 /* bytes a CPU may send without a query: ring_used() */

#define NS_PER_SECOND 1000000000ULL

/* One struct, because the compiler orders separate variables as each program uses them. */
struct kiln_knobs knobs;
#define cgroup_v1	      (knobs.cgroup_v1)
#define filter_pids	      (knobs.filter_pids)
#define cache_epoch	      (knobs.cache_epoch)
#define runtimes_epoch	      (knobs.runtimes_epoch)
#define timer_ns	      (knobs.timer_ns)
#define default_policy	      (knobs.default_policy)
#define use_cgroups	      (knobs.use_cgroups)
#define less_detail	      (knobs.less_detail)
#define policy_epoch	      (knobs.policy_epoch)
/* That of the process TGID. */
#define processes_epoch(tgid) (knobs.processes_epoch[(tgid) & (KILN_KNOWN_PROCESSES - 1)])
#define off_cpu_shift	      (knobs.off_cpu_shift)
#define own_pid_namespace     (knobs.pid_namespace)
