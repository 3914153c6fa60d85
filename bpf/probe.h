/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the programs of a probe share. A hit runs probe_hit.bpf.c's program, one for each probe,
 * which decides whether it is taken; one that is goes on in probe_sample.bpf.c's.
 *
 * A probe fires in a task, and may be interrupted by the timers' program, by another probe, and on
 * some kernels by another task: so samples of probes have scratch of their own (the maps `scratch`
 * and `cpus` of this set of programs), which belongs to one hit at a time. Another hit on the CPU
 * meanwhile is counted and not taken.
 */
#pragma once

/* By CPU number; max_entries is set to the CPUs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct kiln_probe_hit);
} probe_hits SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, KILN_MAX_PROBES);
	__type(key, uint32_t);
	__type(value, struct kiln_probe);
} probes SEC(".maps");

/* The program that a hit which is taken goes on in, at 0. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(uint32_t));
	__uint(value_size, sizeof(uint32_t));
} probe_sample SEC(".maps");

/*
 * Takes the scratch of HIT's CPU; 0: it is another hit's. Linux 5.10 has no atomic operation that
 * returns something: so each that comes is counted first, and has it who then finds itself alone.
 * Of two that come at once neither may have it.
 */
static __always_inline int probe_claim(struct kiln_probe_hit *hit)
{
	__sync_fetch_and_add(&hit->busy, 1);
	if (*(volatile uint32_t *)&hit->busy == 1)
		return 1;
	__sync_fetch_and_add(&hit->busy, -1);
	return 0;
}

/* The scratch is free again. */
static __always_inline void probe_release(struct kiln_probe_hit *hit)
{
	asm volatile("" ::: "memory");
	__sync_fetch_and_add(&hit->busy, -1);
}
