// SPDX-License-Identifier: GPL-2.0
/*
 * A hit of one probe. Loaded once for each probe, as a kprobe program (uprobes too) or a raw
 * tracepoint program. Hits of the agent itself are ignored, and hits of policies that are off or of
 * processes that are not profiled are only counted as skipped; both cost a few loads. All other
 * hits are counted, and one in so many is taken (draw.h).
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
#include "draw.h"
#include "probe.h"

/* Set between open and load. In a section of their own, because they differ between the objects
 * that share the variables of knobs.h. */
const volatile uint32_t probe_number SEC(".rodata.probe") = 0;
const volatile uint32_t agent_tgid SEC(".rodata.probe") = 0;
const volatile uint8_t probe_leaf SEC(".rodata.probe") = KILN_LEAF_SAVED;
const volatile uint64_t probe_period SEC(".rodata.probe") = NS_PER_SECOND / 100;

static __always_inline int is_ignored(struct task_struct *task, uint32_t tgid)
{
	struct kiln_process *p;

	if (filter_pids && !bpf_map_lookup_elem(&pid_filter, &tgid))
		return 1;
	p = bpf_map_lookup_elem(&processes, &tgid);
	return p && (p->flags & KILN_PROCESS_IGNORE) &&
	       p->exec_id == kernel_read(task, self_exec_id);
}

/* Counts the hit. Returns non-zero if it is to be taken. */
static __always_inline int count_hit(struct task_struct *task, uint32_t tgid,
				     struct kiln_probe *probe, struct kiln_probe_hit *hit,
				     struct kiln_cpu *cpu)
{
	uint64_t now;

	find_policy(task, &cpu->verdict);
	if (!cpu->verdict.period || is_ignored(task, tgid)) {
		probe->skipped++;
		return 0;
	}
	probe->hits++;
	now = bpf_ktime_get_ns();
	if (draw_is_over(&probe->draw, now, probe_period))
		draw_begin(&probe->draw, now, probe_period, bpf_get_prandom_u32());
	hit->value = draw_hit(&probe->draw);
	if (!hit->value)
		return 0;
	probe->samples++;
	hit->number = (uint16_t)probe_number;
	hit->leaf = probe_leaf;
	return 1;
}

SEC("kprobe")
int on_hit(void *ctx)
{
	struct task_struct *task = current_task();
	uint32_t tgid = process_id(task), number = probe_number, slot = bpf_get_smp_processor_id();
	struct kiln_probe_hit *hit = bpf_map_lookup_elem(&probe_hits, &slot);
	struct kiln_probe *probe = bpf_map_lookup_elem(&probes, &number);
	struct kiln_cpu *cpu = bpf_map_lookup_elem(&cpus, &slot);

	/* Without a process id (the idle task) there is nothing to sample. */
	if (!hit || !probe || !cpu || !tgid || tgid == agent_tgid)
		return 0;
	if (!probe_claim(hit)) {
		__sync_fetch_and_add(&probe->busy, 1);
		return 0;
	}
	if (count_hit(task, tgid, probe, hit, cpu)) {
		bpf_tail_call(ctx, &probe_sample, 0);
		probe->lost++;
		probe->lost_hits += hit->value;
	}
	probe_release(hit);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
