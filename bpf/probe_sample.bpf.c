// SPDX-License-Identifier: GPL-2.0
/*
 * Makes the sample of a probe's hit that is taken, up to the record in the ring. Loaded once for
 * each type of program that probes have, with a set of walkers of that type.
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
#include "task_id.h"
#include "env.h"
#include "policy.h"
#include "registers.h"
#include "dump.h"
#include "share.h"
#include "switch.h"
#include "sample.h"
#include "labels.h"
#include "probe.h"

static __always_inline uint64_t samples_dropped(const struct kiln_cpu *cpu)
{
	return cpu->stats.n[KILN_STAT_RING_FULL] + cpu->stats.n[KILN_STAT_SHED_SAMPLE];
}

/* Called when the sample is in the ring or was dropped: counts dropped samples, and releases the
 * scratch. */
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

enum { TRACE_FRAMES_MAX = 8 };

/*
 * Counts the kernel frames from a tracepoint's program, which is the leaf, to the function that
 * calls the tracepoint's programs. The number depends on the kernel. It is counted once for each
 * probe and CPU, in the same function that later takes the stack.
 */
static __always_inline void count_trace_frames(void *ctx, struct kiln_probe *probe, uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	struct record *r = w ? env_record(w) : 0;

	if (!r || bpf_get_stack(ctx, r->bytes, TRACE_FRAMES_MAX * 8, 0) != TRACE_FRAMES_MAX * 8) {
		probe->trace_start = 0;
		return;
	}
	for (uint64_t i = 0; i < TRACE_FRAMES_MAX; i++)
		if (r->words[i] >= probe->trace_start && r->words[i] < probe->trace_end) {
			probe->skip = i + 1;
			return;
		}
	probe->trace_start = 0;
}

static __attribute__((noinline)) int begin_hit(void *ctx, struct kiln_cpu *cpu,
					       struct kiln_probe_hit *hit)
{
	uint32_t number = hit->number, slot = bpf_get_smp_processor_id();
	struct kiln_probe *probe = bpf_map_lookup_elem(&probes, &number);

	if (!probe)
		return -1;
	if (probe->trace_start && !probe->skip)
		count_trace_frames(ctx, probe, slot);
	const struct beginning b = {
	    .verdict = &cpu->verdict,
	    .value = hit->value,
	    .tgid = process_id(current_task()),
	    .tid = thread_id(current_task()),
	    .origin = KILN_ORIGIN_PROBE,
	    .detail = (uint8_t)hit->number,
	    .leaf = hit->leaf,
	    .skip = (uint8_t)probe->skip,
	};

	hit->dropped = samples_dropped(cpu);
	return begin_sample(ctx, cpu, &b);
}

/* noinline, or begin() would need more of the BPF stack than the 384 of 512 bytes that
 * tests/bpf/test_verifier.c allows. */
static __attribute__((noinline)) int meet_current(struct kiln_cpu *cpu)
{
	meet_process(cpu, process_id(current_task()));
	return 0;
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
	(void)meet_current(cpu);
	begun = begin_hit(ctx, cpu, hit);
	w = env_walk(slot);
	if (begun > 0 && w) {
		if (env_record(w)->head.flags & KILN_SAMPLE_LABELS)
			read_labels(slot);
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
