// SPDX-License-Identifier: GPL-2.0
/*
 * A hit of a probe that is taken, from its beginning to the record in the ring. Loaded once for
 * each type of program that has probes, with a set of walkers of that type.
 */
#include <linux/types.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#include "types.h"
#include "kernel.h"
#include "unwind.h"
#include "maps.h"
#include "knobs.h"
#include "env.h"
#include "policy.h"
#include "registers.h"
#include "dump.h"
#include "share.h"
#include "switch.h"
#include "sample.h"
#include "probe.h"

static __always_inline uint64_t samples_dropped(const struct kiln_cpu *cpu)
{
	return cpu->stats.n[KILN_STAT_RING_FULL] + cpu->stats.n[KILN_STAT_SHED_SAMPLE];
}

/* The sample is in the ring, or was dropped. */
static __attribute__((noinline)) int release(uint32_t slot)
{
	struct kiln_probe_hit *hit = bpf_map_lookup_elem(&probe_hits, &slot);
	struct kiln_cpu *cpu = bpf_map_lookup_elem(&cpus, &slot);
	struct kiln_probe *probe;
	uint32_t number;

	if (!hit || !cpu)
		return 0;
	number = hit->number;
	probe = bpf_map_lookup_elem(&probes, &number);
	if (probe && samples_dropped(cpu) != hit->dropped) {
		probe->lost++;
		probe->lost_hits += hit->value;
	}
	probe_release(hit);
	return 0;
}

static __attribute__((noinline)) int begin_hit(void *ctx, struct kiln_cpu *cpu,
					       struct kiln_probe_hit *hit)
{
	const struct beginning b = {
	    .verdict = &cpu->verdict,
	    .value = hit->value,
	    .origin = KILN_ORIGIN_PROBE,
	    .detail = (uint8_t)hit->number,
	    .leaf = hit->leaf,
	};

	hit->dropped = samples_dropped(cpu);
	return begin_sample(ctx, cpu, &b);
}

SEC("kprobe")
int begin(void *ctx)
{
	uint32_t slot = bpf_get_smp_processor_id();
	struct kiln_probe_hit *hit = bpf_map_lookup_elem(&probe_hits, &slot);
	struct kiln_cpu *cpu = bpf_map_lookup_elem(&cpus, &slot);
	struct kiln_walk *w;
	int begun;

	if (!hit || !cpu)
		return 0;
	begun = begin_hit(ctx, cpu, hit);
	w = env_walk(slot);
	if (begun > 0 && w) {
		begun = w->walker ? begin_in_walker(slot) : 0;
		if (begun)
			jump_to_walker(ctx, begun);
		walk_on(ctx, slot, w);
	}
	if (begun >= 0)
		end_sample(slot);
	return release(slot);
}

/* The end of a sample whose walk has ended in a runtime's walker. */
SEC("kprobe")
int finish(void *ctx)
{
	uint32_t slot = bpf_get_smp_processor_id();

	end_sample(slot);
	return release(slot);
}

char LICENSE[] SEC("license") = "GPL";
