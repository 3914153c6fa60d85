// SPDX-License-Identifier: GPL-2.0
/*
 * The kernel side: a timer hit on a CPU becomes one record in the ring buffer.
 *
 * The order keeps the cost low: policy and process filter come first, so that tasks that are not
 * selected cost little more than the interrupt; then the kernel stack, the user registers, the walk
 * (unwind.h), and one copy into the ring buffer. When the user stack has frames of a runtime, the
 * walk goes on in that runtime's walker, a program of its own that is loaded when it is needed
 * (switch.h). User space drains the ring on a timer. It is woken for a process that it does not
 * know yet, because the process may be gone soon, and while the ring is more than half full.
 *
 * If a walk ends for want of mappings or of a table, the record has a copy of the stack, and user
 * space completes the walk. So a process's first samples are as good as its later ones.
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

/* Not inlined into sample(), so that hits that are not taken fetch little code. */
static __attribute__((noinline)) int begin_hit(struct bpf_perf_event_data *ctx,
					       struct kiln_cpu *cpu, uint64_t value, uint32_t tgid)
{
	const struct beginning b = {
	    .regs = &ctx->regs,
	    .verdict = &cpu->verdict,
	    .value = value,
	    .tgid = tgid,
	    .tid = thread_id(current_task()),
	    .period = cpu->verdict.period,
	    .origin = KILN_ORIGIN_CPU,
	};

	return begin_sample(ctx, cpu, &b);
}

SEC("perf_event")
int sample(struct bpf_perf_event_data *ctx)
{
	struct task_struct *task = current_task();
	uint32_t tgid = process_id(task), number = bpf_get_smp_processor_id();
	struct kiln_cpu *cpu;
	struct kiln_walk *w;
	uint64_t value;
	int begun;

	if (!tgid)
		return 0;
	cpu = bpf_map_lookup_elem(&cpus, &number);
	if (!cpu)
		return 0;
	cpu->stats.n[KILN_STAT_RUNS]++;
	if (filter_pids && !bpf_map_lookup_elem(&pid_filter, &tgid)) {
		cpu->stats.n[KILN_STAT_SKIPPED]++;
		return 0;
	}
	value = select_policy(task, cpu);
	if (!value)
		return 0;
	meet_process(cpu, tgid);
	begun = begin_hit(ctx, cpu, value, tgid);
	if (begun < 0)
		return 0;
	w = env_walk(number);
	if (begun && w) {
		/* Not in begin_sample(), which has much on its stack. */
		if (env_record(w)->head.flags & KILN_SAMPLE_LABELS)
			read_labels(number);
		/* Most processes have no walker, and a call is expensive on kernels that guard
		 * returns. */
		begun = w->walker ? begin_in_walker(number) : 0;
		if (begun)
			jump_to_walker(ctx, begun);
		walk_on(ctx, number, w);
	}
	return end_sample(number);
}

/* The end of a sample whose walk has ended in a runtime's walker. */
SEC("perf_event")
int finish(struct bpf_perf_event_data *ctx)
{
	return end_sample(bpf_get_smp_processor_id());
}

/*
 * A new process (not a thread) has the same code at the same addresses as its parent, so it gets a
 * copy of the parent's entry. An entry that the new pid already has is of an earlier process with
 * that pid, whose exec id may be the same: it is replaced or deleted.
 */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	uint32_t from = process_id(parent), to = process_id(child);
	struct kiln_process *p, copy;

	if (child->pid != child->tgid)
		return 0;
	p = bpf_map_lookup_elem(&processes, &from);
	if (!p || (p->flags & KILN_PROCESS_PENDING) || p->exec_id != child->self_exec_id) {
		bpf_map_delete_elem(&processes, &to);
	} else {
		copy = *p;
		bpf_map_update_elem(&processes, &to, &copy, BPF_ANY);
	}
	__sync_fetch_and_add(&processes_epoch(to), 1);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	uint32_t tgid = process_id(task);

	/* signal->live is 0 when the last thread exits; the main thread may exit long before. */
	if (task->signal->live.counter == 0)
		bpf_map_delete_elem(&processes, &tgid);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
