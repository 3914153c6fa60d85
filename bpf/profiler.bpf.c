// SPDX-License-Identifier: GPL-2.0
/*
 * The kernel side: a timer hit on a CPU becomes one record in the ring buffer.
 *
 * Order matters for cost: policy and process filter first, so that what nobody selected pays for
 * little more than the interrupt; then the kernel stack, the user registers, the walk (unwind.h),
 * one ring-buffer copy without wakeup. User space drains on a timer; it is woken only for a process
 * that it does not know yet, because that may be gone soon.
 *
 * A walk that ends for want of mappings or of a table sends the stack's bytes along, and user space
 * completes it: a process's first samples are as good as its later ones.
 */
#include <linux/types.h>
#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#include "types.h"
#include "kernel.h"
#include "unwind.h"
#include "maps.h"

/* Set between open and load. */
const volatile uint32_t max_depth = KILN_MAX_USER_FRAMES;

#define NS_PER_SECOND 1000000000ULL

/*
 * Written by user space; the first two before loading, but they are here because a hit that is not
 * taken should not touch a second cache line for its switches.
 */
uint8_t cgroup_v1;	 /* cgroup ids of the v1 memory controller */
uint8_t filter_pids;	 /* only processes in pid_filter */
uint32_t cache_epoch;	 /* a new value makes every cached rule void */
uint64_t timer_ns;	 /* between two hits of a timer: the time that a hit stands for */
uint32_t default_policy; /* of cgroups that are not in cgroup_policy */
uint32_t use_cgroups;	 /* cgroups have policies: look at the task's */
uint32_t policy_epoch;	 /* a new value, after a change of the above or of the maps, makes every
			  * verdict void; never 0 */

KILN_INLINE const struct kiln_mapping *env_mapping(uint32_t index)
{
	uint32_t key = index >> 1;
	struct mapping_pair *pair = bpf_map_lookup_elem(&mapping_slab, &key);

	return pair ? &pair->m[index & 1] : 0;
}

KILN_INLINE const struct kiln_table *env_table(uint32_t image)
{
	return bpf_map_lookup_elem(&tables, &image);
}

KILN_INLINE const uint32_t *env_slot(uint32_t slot)
{
	struct slot *s = bpf_map_lookup_elem(&unwind_slab, &slot);

	return s ? s->words : 0;
}

KILN_INLINE int env_read(void *dst, uint32_t len, uint64_t address)
{
	if (len > KILN_WINDOW_WORDS * 8)
		return -1;
	return (int)bpf_probe_read_user(dst, len, (const void *)address);
}

KILN_INLINE struct kiln_cache_entry *env_cache(struct kiln_walk *w, uint64_t pc)
{
	uint32_t h = (uint32_t)(((pc + w->tag) * 0x9e3779b97f4a7c15ULL) >> 40);
	uint32_t key = w->cpu * KILN_CACHE_ENTRIES + (h & (KILN_CACHE_ENTRIES - 1));

	return bpf_map_lookup_elem(&frame_cache, &key);
}

KILN_INLINE const struct kiln_runtime *env_runtime(struct kiln_walk *w, uint32_t id)
{
	struct kiln_runtime_key key = {.mapset = w->mapset, .id = id};

	return bpf_map_lookup_elem(&runtimes, &key);
}

KILN_INLINE uint64_t *env_words(struct kiln_walk *w)
{
	uint32_t cpu = bpf_get_smp_processor_id();
	struct record_scratch *r = bpf_map_lookup_elem(&record_scratch, &cpu);

	return r ? r->words : 0;
}

/* The task's state in the hierarchy that counts. Plain loads, which the kernel guards: a helper's
 * call for each pointer would cost more than all that follows. */
static __always_inline struct cgroup_subsys_state *task_css(struct task_struct *task)
{
	uint32_t memory = bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id);

	if (!cgroup_v1)
		return &task->cgroups->dfl_cgrp->self;
	return task->cgroups->subsys[memory & 15];
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
		cgroup = css->cgroup->kn->id;
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
		serial = css->serial_nr;
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

/*
 * The process's entry when it is this very program's (exec changes exec_id). Else NULL; *ret_new is
 * set when user space has to be told of it.
 */
static __always_inline struct kiln_process *find_process(uint32_t tgid, uint64_t exec_id,
							 struct kiln_stats *stat, int *ret_new)
{
	struct kiln_process pending = {.flags = KILN_PROCESS_PENDING, .exec_id = exec_id};
	struct kiln_process *p = bpf_map_lookup_elem(&processes, &tgid);

	if (p && p->exec_id == exec_id)
		return p;
	if (bpf_map_update_elem(&processes, &tgid, &pending, BPF_ANY)) {
		stat->n[KILN_STAT_PROCESS_FULL]++;
		return 0;
	}
	*ret_new = 1;
	return 0;
}

/*
 * The loops below are global functions: the verifier looks at each once, with unknown arguments,
 * instead of once for every way that leads to it. They find the scratch themselves, and keep what
 * changes from round to round in memory, where the verifier does not follow it.
 */

static __always_inline struct record_scratch *own_record(void)
{
	uint32_t cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&record_scratch, &cpu);
}

/*
 * Copies page I of the dump, if it can be read, into the record from byte AT on. Non-zero: the dump
 * ends there.
 */
__attribute__((noinline)) int dump_page(uint32_t at, uint32_t i)
{
	uint32_t zero = 0;
	struct record_scratch *r = own_record();
	struct kiln_walk *w = bpf_map_lookup_elem(&walk_scratch, &zero);
	struct kiln_resume *resume;
	uint64_t address, first, len = KILN_PAGE, to;

	if (!r || !w)
		return 1;
	address = (w->regs.sp & ~7ULL) - KILN_RED_ZONE;
	if (i) {
		address = (address & ~(KILN_PAGE - 1ULL)) + (uint64_t)i * KILN_PAGE;
		if (w->dump.end && address >= w->dump.end)
			return 1;
	} else {
		len -= address & (KILN_PAGE - 1);
	}
	first = at;
	to = first + sizeof(*resume) + w->dump.done;
	/* 64 bits wide: older verifiers forget the bounds of a narrow value in the stack. */
	asm volatile("" : "+r"(first), "+r"(to), "+r"(len));
	if (w->dump.done + len > w->dump.limit)
		return 1;
	if (len == 0 || len > KILN_PAGE || to > KILN_RECORD_MAX - KILN_PAGE ||
	    first > KILN_RECORD_MAX - KILN_DUMP_MAX - sizeof(*resume))
		return 1;
	if (bpf_probe_read_user(r->bytes + to, (uint32_t)len, (const void *)address))
		/* The end of a stack that is not the main one is where nothing is any more. */
		return (!w->dump.end || w->dump.limit < KILN_DUMP_MAX) &&
		       ++w->dump.gap > KILN_DUMP_GAP;
	resume = (struct kiln_resume *)(r->bytes + first);
	resume->pages[(i / 64) & (KILN_DUMP_PAGES / 64 - 1)] |= 1ULL << (i & 63);
	w->dump.done += (uint32_t)len;
	w->dump.gap = 0;
	return 0;
}

/*
 * How much of the stack this sample may take along. Large dumps are for the moment in which a
 * process is new; code that never gets a table must not cost that at each sample, and what fills
 * the ring takes the place of others' samples.
 */
static __always_inline uint32_t dump_limit(struct kiln_walk *w, uint64_t now)
{
	if (w->dump.second != now >> 30) {
		w->dump.second = now >> 30;
		w->dump.large = 0;
	}
	if (w->dump.large >= KILN_DUMPS_LARGE || bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) * 4 >
						     bpf_ringbuf_query(&ring, BPF_RB_RING_SIZE))
		return KILN_DUMP_SMALL;
	return KILN_DUMP_MAX;
}

/*
 * Puts a struct kiln_resume and the user stack from SP on into the record, from byte AT on. Returns
 * the bytes of stack.
 */
__attribute__((noinline)) int dump_stack(uint32_t at)
{
	uint32_t zero = 0;
	struct record_scratch *r = own_record();
	struct kiln_walk *w = bpf_map_lookup_elem(&walk_scratch, &zero);
	struct kiln_resume *resume;
	uint64_t first = at;

	if (!r || !w)
		return 0;
	asm volatile("" : "+r"(first));
	if (first > KILN_RECORD_MAX - KILN_DUMP_MAX - sizeof(*resume))
		return 0;
	resume = (struct kiln_resume *)(r->bytes + first);
	resume->regs = w->regs;
	for (int i = 0; i < KILN_LEAF_REGS; i++)
		resume->leaf[i] = i < ARCH_REGS ? w->leaf[i] : 0;
	for (int i = 0; i < KILN_DUMP_PAGES / 64; i++)
		resume->pages[i] = 0;
	w->dump.done = w->dump.gap = 0;
	w->dump.limit = dump_limit(w, r->head.time);
	for (uint32_t i = 0; i < KILN_DUMP_PAGES; i++) {
		if (dump_page(at, i))
			break;
		/* Large is what costs much, which unreadable pages do as well. */
		if (i == KILN_DUMP_SMALL / KILN_PAGE + 1)
			w->dump.large++;
	}
	return (int)w->dump.done;
}

/*
 * Walks the user stack of the registers in the walk scratch; frames go to the record from word AT
 * on. Returns the number of words; the walk's `end` tells why it ended.
 */
__attribute__((noinline)) int walk_user(uint32_t at, uint32_t syscall)
{
	uint32_t zero = 0, limit = max_depth;
	struct kiln_walk *w = bpf_map_lookup_elem(&walk_scratch, &zero);

	if (!w)
		return 0;
	if (limit > KILN_MAX_USER_FRAMES)
		limit = KILN_MAX_USER_FRAMES;
	walk_begin(w, at, limit);
	/* After a system call instruction the name is that of the instruction before. */
	(void)walk_put(w, walk_frame(w) | (syscall ? KILN_FRAME_RETURN : 0));
	walk_on(w);
	return (int)w->n;
}

static __always_inline void load_registers(struct kiln_walk *w, uint64_t *leaf)
{
	w->regs.pc = leaf[ARCH_REG_PC];
	w->regs.sp = leaf[ARCH_REG_SP];
	w->regs.bp = leaf[ARCH_REG_BP];
	w->regs.bx = leaf[ARCH_REG_BX];
}

static __always_inline int user_registers(struct bpf_perf_event_data *ctx, struct task_struct *task,
					  struct kiln_walk *w, uint32_t *ret_syscall)
{
	struct pt_regs *saved;

	if (ARCH_USER_MODE(&ctx->regs)) {
		ARCH_REGS_FROM_PTREGS(w->leaf, &ctx->regs);
	} else {
		struct pt_regs copy;

		saved = (struct pt_regs *)bpf_task_pt_regs(task);
		if (bpf_probe_read_kernel(&copy, sizeof(copy), saved))
			return -1;
		if (!ARCH_SP(&copy))
			return -1;
		*ret_syscall = ARCH_IN_SYSCALL(&copy);
		ARCH_REGS_FROM_PTREGS(w->leaf, &copy);
	}
	load_registers(w, w->leaf);
	w->exact = 1;
	w->leaf_valid = 1;
	return 0;
}

/*
 * A walk that leaves all known mappings may have gone wrong frames ago, by tables of a library that
 * has just been replaced. So user space starts it over from the leaf, if the stack from there on is
 * what the dump will hold. True: the walk stands at the leaf again.
 */
static __always_inline int rewind_walk(struct kiln_walk *w)
{
	uint64_t way = w->regs.sp - w->leaf[ARCH_REG_SP];

	/* Frames of runtimes could not be found again from a dump. */
	if (w->runtime_frames)
		return 0;
	if (way >= KILN_DUMP_SMALL / 2 && way < KILN_FAR_STACK)
		return 0;
	load_registers(w, w->leaf);
	w->leaf_valid = 1;
	return 1;
}

/* Where the main thread's stack ends, if that is what the walk stands on. Else 0. */
static __always_inline uint64_t main_stack_end(struct task_struct *task, const struct kiln_walk *w)
{
	struct mm_struct *mm = task->mm;
	uint64_t end = mm ? mm->start_stack : 0;

	return end - w->regs.sp < KILN_FAR_STACK ? end : 0;
}

/*
 * Has the program in the task's memory begun? exec (Linux 6.18, fs/exec.c, fs/binfmt_elf.c)
 * switches to the new memory long before the registers: until create_elf_tables() has laid out the
 * arguments and, last, the environment, they are still those of the program before, and there is no
 * user stack.
 */
static __always_inline int program_begun(struct task_struct *task)
{
	struct mm_struct *mm = task->mm;

	return mm && mm->env_end;
}

/* What a hit that is taken becomes. No part of sample(), which has little code to fetch so. */
static __attribute__((noinline)) int take_sample(struct bpf_perf_event_data *ctx,
						 struct kiln_cpu *cpu)
{
	struct task_struct *task = bpf_get_current_task_btf();
	uint64_t exec_id;
	uint32_t tgid = (uint32_t)task->tgid, zero = 0, n_kernel = 0, n_user = 0, size, syscall = 0,
		 native;
	struct kiln_stats *stat = &cpu->stats;
	struct kiln_process *process = 0;
	struct record_scratch *r;
	struct kiln_walk *w;
	int fresh = 0, has_user;
	uint64_t len;
	long got;

	has_user = task->mm != 0;
	exec_id = task->self_exec_id;
	if (has_user) {
		process = find_process(tgid, exec_id, stat, &fresh);
		if (process && (process->flags & KILN_PROCESS_IGNORE)) {
			stat->n[KILN_STAT_SKIPPED]++;
			return 0;
		}
	}
	r = own_record();
	w = bpf_map_lookup_elem(&walk_scratch, &zero);
	if (!r || !w)
		return 0;

	r->head.type = KILN_RECORD_SAMPLE;
	r->head.time = bpf_ktime_get_ns();
	r->head.start_time = task->group_leader->start_boottime;
	r->head.exec_id = exec_id;
	r->head.cgroup = cpu->verdict.cgroup;
	r->head.tgid = tgid;
	r->head.tid = (uint32_t)task->pid;
	r->head.policy = cpu->verdict.index;
	r->head.cpu = (uint16_t)bpf_get_smp_processor_id();
	r->head.flags = (uint16_t)((has_user ? 0 : KILN_SAMPLE_KTHREAD) |
				   cpu->verdict.policy.tracers << KILN_SAMPLE_TRACERS_SHIFT);
	r->head.mapset = process ? process->mapset : 0;
	r->head.dump_len = 0;
	r->head.end = KILN_END_NONE;
	bpf_get_current_comm(r->head.comm, sizeof(r->head.comm));

	if (!ARCH_USER_MODE(&ctx->regs)) {
		r->head.flags |= KILN_SAMPLE_KERNEL_MODE;
		got = bpf_get_stack(ctx, r->bytes + sizeof(r->head), KILN_MAX_KERNEL_FRAMES * 8, 0);
		if (got > 0)
			n_kernel = (uint32_t)got / 8;
		if (n_kernel > KILN_MAX_KERNEL_FRAMES)
			n_kernel = KILN_MAX_KERNEL_FRAMES;
	}

	if (program_begun(task) && !user_registers(ctx, task, w, &syscall)) {
		w->window_len = 0;
		w->window_base = 0;
		w->first = process ? process->first : 0;
		w->count = process ? process->count : 0;
		w->tag = ((uint64_t)r->head.mapset << 32) | (uint32_t)(cache_epoch + 1);
		w->cpu = r->head.cpu;
		w->map_start = w->map_end = 0;
		w->misses = 0;
		w->mapset = r->head.mapset;
		w->tracers = cpu->verdict.policy.tracers;
		w->thread_pointer = ARCH_THREAD_POINTER(task);
		n_user = (uint32_t)walk_user(sizeof(r->head) / 8 + n_kernel, syscall);
		if (!r->head.mapset && w->end == KILN_END_NO_MAPPING)
			w->end = KILN_END_NO_PROCESS;
		r->head.end = w->end;
		native = w->n - 2 * w->runtime_frames;
		stat->n[KILN_STAT_CACHE_HIT] += native > w->misses ? native - w->misses : 0;
		stat->n[KILN_STAT_CACHE_MISS] += w->misses;
		if (w->end == KILN_END_NO_MAPPING && rewind_walk(w)) {
			w->n = 0;
			w->exact = 1;
			(void)walk_put(w, walk_frame(w) | (syscall ? KILN_FRAME_RETURN : 0));
			n_user = w->n;
		}
	}
	if (n_user > KILN_MAX_USER_WORDS)
		n_user = KILN_MAX_USER_WORDS;
	r->head.n_kernel = (uint16_t)n_kernel;
	r->head.n_user = (uint16_t)n_user;
	size = sizeof(r->head) + (n_kernel + n_user) * 8;

	if (r->head.end == KILN_END_NO_PROCESS || r->head.end == KILN_END_NO_MAPPING ||
	    r->head.end == KILN_END_NO_TABLE) {
		if (w->leaf_valid)
			r->head.flags |= KILN_SAMPLE_FIRST_FRAME;
		w->dump.end = main_stack_end(task, w);
		r->head.dump_len = (uint32_t)dump_stack(size);
		if (r->head.dump_len > KILN_DUMP_MAX)
			return 0;
		if (r->head.dump_len)
			size += sizeof(struct kiln_resume) + r->head.dump_len;
	}
	r->head.size = size;
	len = size;
	/* One bound after the other and 64 bits wide: what the compiler makes of both at once is
	 * more than older verifiers follow. */
	asm volatile("" : "+r"(len));
	if (len > KILN_RECORD_MAX)
		return 0;
	asm volatile("" : "+r"(len));
	if (len < sizeof(r->head))
		return 0;
	if (bpf_ringbuf_output(&ring, r, len, fresh ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP))
		stat->n[KILN_STAT_RING_FULL]++;
	return 0;
}

SEC("perf_event")
int sample(struct bpf_perf_event_data *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	uint32_t tgid = (uint32_t)task->tgid, number = bpf_get_smp_processor_id();
	struct kiln_cpu *cpu;

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
	return select_policy(task, cpu) ? take_sample(ctx, cpu) : 0;
}

/*
 * A new process (not a thread) runs the same code in the same places as its parent. An entry that
 * is there already was left behind by an earlier owner of the pid, whose exec id may be the same.
 */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	uint32_t from = parent->tgid, to = child->tgid;
	struct kiln_process *p, copy;

	if (child->pid != child->tgid)
		return 0;
	p = bpf_map_lookup_elem(&processes, &from);
	if (!p || (p->flags & KILN_PROCESS_PENDING) || p->exec_id != child->self_exec_id) {
		bpf_map_delete_elem(&processes, &to);
		return 0;
	}
	copy = *p;
	bpf_map_update_elem(&processes, &to, &copy, BPF_ANY);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	uint32_t tgid = task->tgid;

	/* signal->live is 0 once the last thread goes; the main thread may go long before. */
	if (task->signal->live.counter == 0)
		bpf_map_delete_elem(&processes, &tgid);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
