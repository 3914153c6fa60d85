/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Shared by the programs of probes. A hit runs the program of probe_hit.bpf.c, which is loaded once
 * for each probe and decides whether the hit is taken. A hit that is taken continues in the program
 * of probe_sample.bpf.c.
 *
 * A probe's program runs in a task, and may be interrupted by the timers' program, by another
 * probe, and on some kernels by another task. So samples of probes have scratch memory of their own
 * (the maps `scratch` and `cpus` of this set of programs), which one hit owns at a time. A hit that
 * comes on the CPU meanwhile is counted but not taken.
 */
#pragma once

/* By CPU number; max_entries is that of `cpus`. */
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

/* At 0: the program of probe_sample.bpf.c, in which a hit that is taken continues. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(uint32_t));
	__uint(value_size, sizeof(uint32_t));
} probe_sample SEC(".maps");

/*
 * Claims the scratch memory of HIT's CPU. Returns 1, or 0 if another hit owns it. Linux 5.10 has no
 * atomic operation that returns a value: so each hit first increments the counter, and owns the
 * scratch if the counter is then 1. Of two hits that come at once, both may fail.
 */
static __always_inline int probe_claim(struct kiln_probe_hit *hit)
{
	__sync_fetch_and_add(&hit->busy, 1);
	if (*(volatile uint32_t *)&hit->busy == 1)
		return 1;
	__sync_fetch_and_add(&hit->busy, -1);
	return 0;
}

/* Releases the scratch memory that probe_claim() has claimed. */
static __always_inline void probe_release(struct kiln_probe_hit *hit)
{
	asm volatile("" ::: "memory");
	__sync_fetch_and_add(&hit->busy, -1);
}
