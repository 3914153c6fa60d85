// SPDX-License-Identifier: GPL-2.0
/*
 * Off-CPU time: what threads wait for, and how long. Loaded and attached only while a policy on the
 * node asks for it; shares the maps of profiler.bpf.c.
 *
 * At a switch the current task is still the one that is switched out, so its stacks are walked as
 * at a timer's hit. There may be hundreds of thousands of switches a second, and a walk costs more
 * than a microsecond. So a thread is walked with a probability of about its usual wait divided by
 * the time of waiting per walk of its policy. The sample holds that probability, and when the
 * thread runs again, a small record tells how long it waited. The wait divided by the probability
 * is an estimate without bias, whatever the probability was (docs/off-cpu.md).
 *
 * Interrupts are off and the CPU's run queue is locked. The program uses the same scratch of the
 * CPU as the timer's samples: the timer is an interrupt, so no such sample is under way.
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

enum {
	TASK_DEAD = 0x80,      /* include/linux/sched.h */
	MEAN_SHIFT = 2,	       /* a wait has the weight 1/4 in the new mean */
	LONG_WAIT = 1000000,   /* ns: a shorter one is never unusual */
	UNUSUAL = 8,	       /* times the mean of the other waits */
	SHORT_MEAN = 32,       /* 131 us, in the unit of the means: no unusual place any more */
	CLOCK_STAYS = 1000000, /* ns until the lag of a switch_clock is measured again */
};

/*
 * How to get CLOCK_MONOTONIC at a switch without reading it, which would double the cost of most
 * switches. The scheduler has just read its own clock (rq->clock); `lag` is the difference between
 * the two, measured again after CLOCK_STAYS. In so short a time they do not drift apart noticeably,
 * and each CPU has a lag of its own, so the scheduler's clocks need not agree between CPUs.
 */
struct switch_clock {
	uint64_t measured; /* the scheduler's clock when `lag` was measured */
	uint64_t lag;
	uint64_t pad[6]; /* a cache line for each CPU */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* user space sets it: that of `cpus` */
	__type(key, uint32_t);
	__type(value, struct switch_clock);
} switch_clocks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, KILN_MAX_THREADS);
	__type(key, uint32_t);
	__type(value, struct kiln_thread);
} threads SEC(".maps");

static __always_inline struct kiln_thread *find_thread(uint32_t tid)
{
	uint32_t i = tid & (KILN_MAX_THREADS - 1);
	struct kiln_thread *t = bpf_map_lookup_elem(&threads, &i);

	if (t && t->tid == tid)
		return t;
	i ^= 1;
	t = bpf_map_lookup_elem(&threads, &i);
	return t && t->tid == tid ? t : 0;
}

/* May the slot T be given to another thread? Yes if it is free, or if its thread is not sampled or
 * has ended. */
static __always_inline int is_spare(const struct kiln_thread *t)
{
	return !t->tid || !t->rate || !t->epoch;
}

/*
 * Gives the thread TID, which has no slot, one of its two slots. NOW: the time; RAN: ns that the
 * thread has run. Returns NULL if both slots are taken.
 */
static __attribute__((noinline)) struct kiln_thread *claim_thread(uint32_t tid, uint64_t now,
								  uint64_t ran)
{
	uint32_t first = tid & (KILN_MAX_THREADS - 1), second = first ^ 1;
	struct kiln_thread *t = bpf_map_lookup_elem(&threads, &first),
			   *other = bpf_map_lookup_elem(&threads, &second);

	if (!t || !other)
		return 0;
	if (!is_spare(t))
		t = other;
	if (!is_spare(t))
		return 0;
	t->rate = 0;
	t->epoch = 0;
	t->base = t->waited = now - ran;
	t->out = 0;
	t->sampled = 0;
	t->random = (uint32_t)(now ^ now >> 32 ^ tid * 0x9e3779b9U) | 1;
	t->walked = 0;
	/* The first waits of a thread are walked, however short: they may be its last. */
	t->mean[KILN_MEAN_OTHER] = t->mean[KILN_MEAN_QUEUE] = KILN_MEAN_MAX;
	for (int i = 0; i < KILN_PLACES; i++)
		t->mean[KILN_MEAN_PLACE + i] = t->place[i] = 0;
	t->tid = tid;
	return t;
}

/* Looks up the policy of the cgroup of CSS and stores it in T. */
static __attribute__((noinline)) void decide_waits(struct cgroup_subsys_state *css, uint64_t serial,
						   uint32_t epoch, uint32_t tgid,
						   struct kiln_thread *t)
{
	struct kiln_verdict v = {};
	struct kiln_policy *policy;

	decide(css, serial, epoch, &v);
	policy = bpf_map_lookup_elem(&policies, &v.index);
	t->css = (uint32_t)serial;
	t->epoch = epoch;
	t->rate = 0;
	if (filter_pids && !bpf_map_lookup_elem(&pid_filter, &tgid))
		return;
	if (policy && policy->mode != KILN_POLICY_DISABLED) {
		t->rate = policy->off_cpu & KILN_OFF_CPU_RATE_MASK;
		if (t->rate)
			t->rate |= v.index << 24;
	}
}

/* The runtimes of the thread's policy. */
static __always_inline uint32_t runtimes_of(const struct kiln_thread *t)
{
	uint32_t index = t->rate >> 24;
	const struct kiln_policy *policy = bpf_map_lookup_elem(&policies, &index);

	return policy ? policy->runtimes : 0;
}

/*
 * A hash of the system call, pc and sp with which TASK entered the kernel. TASK is being switched
 * out or in, so it is in the kernel. Never 0, except when its registers cannot be read.
 */
static __attribute__((noinline)) uint16_t place_of(struct task_struct *task)
{
	uint64_t place[3], hash;

	if (arch_entry_place(place, saved_registers(task)))
		return 0;
	hash = (place[0] * 0x9e3779b97f4a7c15ULL ^ place[1]) * 0x9e3779b97f4a7c15ULL ^ place[2];
	hash *= 0x9e3779b97f4a7c15ULL;
	return (uint16_t)(hash >> 48) | 1;
}

static __always_inline long task_state(struct task_struct *task)
{
	struct task_struct___long_state *old = (void *)task;

	return bpf_core_field_exists(task->__state) ? (long)task->__state : old->state;
}

/* CLOCK_MONOTONIC at the switch from PREV on CPU; see struct switch_clock. */
static __always_inline uint64_t switch_time(const struct task_struct *prev, uint32_t cpu)
{
	struct switch_clock *c = bpf_map_lookup_elem(&switch_clocks, &cpu);
	uint64_t clock;

	if (!c || !bpf_core_field_exists(prev->se.cfs_rq))
		return bpf_ktime_get_ns();
	clock = prev->se.cfs_rq->rq->clock;
	if (clock - c->measured > CLOCK_STAYS) {
		c->measured = clock;
		c->lag = bpf_ktime_get_ns() - clock;
	}
	return clock + c->lag;
}

/* The entry of CPU NUMBER, for its counters; that of CPU 0 if NUMBER is not sampled and has none.
 */
static __always_inline struct kiln_cpu *counting_cpu(uint32_t number)
{
	struct kiln_cpu *cpu = bpf_map_lookup_elem(&cpus, &number);

	if (cpu)
		return cpu;
	number = 0;
	return bpf_map_lookup_elem(&cpus, &number);
}

/* Tells user space that the wait of T has ended after NS, minus the time that the walk of its stack
 * took: the walk delays the switch, which would make short waits count for too much. */
static __attribute__((noinline)) void tell_end(struct kiln_thread *t, uint64_t ns)
{
	uint64_t walk = t->sampled == ~0U ? 0 : t->sampled;
	struct kiln_wait_end end = {
	    .type = KILN_RECORD_WAIT_END,
	    .size = sizeof(end),
	    .tid = t->tid,
	    .began = t->out,
	    .ns = ns > walk ? ns - walk : 0,
	};
	struct kiln_cpu *cpu;

	t->sampled = 0;
	if (!bpf_ringbuf_output(&ring, &end, sizeof(end), BPF_RB_NO_WAKEUP))
		return;
	cpu = counting_cpu(bpf_get_smp_processor_id());
	if (cpu)
		cpu->stats.n[KILN_STAT_WAIT_END_LOST]++;
}

static __always_inline uint16_t new_mean(uint16_t mean, uint32_t wait)
{
	return (uint16_t)(mean + (((int32_t)wait - mean) >> MEAN_SHIFT));
}

/*
 * A wait of TASK has ended that is counted in no place's mean yet. WAIT: its length, in units of
 * 2^KILN_MEAN_SHIFT ns. If it was unusually long for the thread, gives its place a mean, which may
 * replace the place with the shorter waits, and returns 1. Else returns 0: the wait belongs to
 * KILN_MEAN_OTHER.
 */
static __attribute__((noinline)) int keep_place(struct kiln_thread *t, struct task_struct *task,
						uint32_t wait)
{
	uint32_t shorter = t->mean[KILN_MEAN_PLACE] > t->mean[KILN_MEAN_PLACE + 1], at;
	uint16_t place;

	if (wait < UNUSUAL * (uint32_t)t->mean[KILN_MEAN_OTHER])
		return 0;
	place = place_of(task);
	if (!place)
		return 0;
	at = place == t->place[0] ? 0 : place == t->place[1] ? 1 : shorter;
	if (place != t->place[at] && wait <= t->mean[KILN_MEAN_PLACE + at])
		return 0;
	/* The mean begins at 0: long waits may be rare in this place. */
	if (place != t->place[at])
		t->mean[KILN_MEAN_PLACE + at] = 0;
	t->place[at] = place;
	t->mean[KILN_MEAN_PLACE + at] = new_mean(t->mean[KILN_MEAN_PLACE + at], wait);
	return 1;
}

static __always_inline void begin_running(struct task_struct *task, uint64_t now)
{
	uint32_t tid = thread_id(task);
	struct kiln_thread *t = tid ? find_thread(tid) : 0;
	uint32_t which;
	uint64_t ns, wait;

	if (!t || !t->out)
		return;
	/* NOW may be a little earlier than t->out when the thread was switched out on another CPU:
	 * the scheduler's clocks of two CPUs differ. */
	ns = now > t->out ? now - t->out : 0;
	if (t->sampled)
		tell_end(t, ns);
	which = t->out & (KILN_MEANS - 1);
	/* In this order: off_cpu_due() reads `waited` before `out`. */
	t->waited += ns;
	asm volatile("" ::: "memory");
	t->out = 0;
	wait = ns >> KILN_MEAN_SHIFT;
	if (wait > KILN_MEAN_MAX)
		wait = KILN_MEAN_MAX;
	if (which == KILN_MEAN_OTHER && ns >= LONG_WAIT && keep_place(t, task, (uint32_t)wait))
		return;
	t->mean[which] = new_mean(t->mean[which], (uint32_t)wait);
	/* Its waits are short again: a thread without places need not look where it waits. */
	if (which >= KILN_MEAN_PLACE && t->mean[which] < SHORT_MEAN)
		t->place[which - KILN_MEAN_PLACE] = 0;
}

/* The probability with which a wait of NS is walked at RATE, in units of 2^-32; may exceed 2^32. */
static __always_inline uint64_t chance_of(uint64_t ns, uint32_t rate)
{
	return ns * (rate & KILN_OFF_CPU_RATE_MASK) >> KILN_OFF_CPU_RATE_SHIFT;
}

/* The index of the mean (enum kiln_mean) of the wait that TASK begins. */
static __always_inline uint32_t mean_of(const struct kiln_thread *t, struct task_struct *task,
					uint32_t queue)
{
	uint16_t place;

	if (queue)
		return KILN_MEAN_QUEUE;
	if (!t->place[0] && !t->place[1])
		return KILN_MEAN_OTHER;
	place = place_of(task);
	if (place && place == t->place[0])
		return KILN_MEAN_PLACE;
	return place && place == t->place[1] ? KILN_MEAN_PLACE + 1 : KILN_MEAN_OTHER;
}

/*
 * Decides at random whether the stack of the wait that begins NOW is walked. Returns the
 * probability with which it was to be walked, or 0 if it is not. The probability is the larger of
 * two: the usual wait, mean[WHICH], over the period of the policy; and the square of the time since
 * the thread's last walk over that period. The second makes a long wait after many short ones
 * likely to be walked; it is squared because it would otherwise double the walks of a thread with
 * many short waits.
 */
static __always_inline uint32_t draw(struct kiln_thread *t, uint64_t now, uint32_t which)
{
	uint32_t shift = off_cpu_shift & 31, moment = (uint32_t)(now >> KILN_WALKED_SHIFT),
		 random = t->random;
	uint64_t since = moment - t->walked,
		 chance = chance_of((uint64_t)t->mean[which & (KILN_MEANS - 1)] << KILN_MEAN_SHIFT,
				    t->rate);

	if (since > KILN_WALKED_MAX)
		since = KILN_WALKED_MAX;
	since = chance_of(since << KILN_WALKED_SHIFT, t->rate) >> 16;
	if (since > 1 << 16)
		since = 1 << 16;
	since *= since;
	if (chance < since)
		chance = since;
	if (chance < KILN_OFF_CPU_LEAST)
		chance = KILN_OFF_CPU_LEAST;
	chance >>= shift;
	/* Marsaglia's xorshift, 32 bits wide. */
	random ^= random << 13;
	random ^= random >> 17;
	random ^= random << 5;
	t->random = random;
	if (chance > ~0U)
		chance = ~0U;
	if (random > chance)
		return 0;
	t->walked = moment;
	return (uint32_t)chance;
}

/* Notes in the slot of TASK, which is switched out, that its wait begins. Returns the slot if the
 * wait is to be walked, else NULL. */
static __always_inline struct kiln_thread *begin_waiting(struct task_struct *task, uint64_t now,
							 uint32_t queue)
{
	uint32_t epoch = *(volatile uint32_t *)&policy_epoch, tid = thread_id(task), which;
	struct cgroup_subsys_state *css = 0;
	struct kiln_thread *t;
	uint64_t serial = 0;

	if (!tid)
		return 0;
	if (!task->mm) {
		/* The slot of a thread that ends keeps its data for user space, which may ask how
		 * long the thread waited in all. */
		t = task_state(task) & TASK_DEAD ? find_thread(tid) : 0;
		if (t) {
			t->waited = now - task->se.sum_exec_runtime;
			t->out = t->sampled = 0;
			t->epoch = 0;
		}
		return 0;
	}
	t = find_thread(tid);
	/* Without an epoch, the slot is that of an ended thread which had the same id. */
	if (!t || !t->epoch)
		t = claim_thread(tid, now, task->se.sum_exec_runtime);
	if (!t) {
		uint32_t slot = bpf_get_smp_processor_id();
		struct kiln_cpu *cpu = bpf_map_lookup_elem(&cpus, &slot);

		if (cpu)
			cpu->stats.n[KILN_STAT_WAIT_FULL]++;
		return 0;
	}
	if (use_cgroups) {
		css = task_css(task);
		serial = kernel_read(css, serial_nr);
	}
	if (t->css != (uint32_t)serial || t->epoch != epoch)
		decide_waits(css, serial, epoch, process_id(task), t);
	if (!t->rate)
		return 0;
	which = mean_of(t, task, queue);
	t->waited = now - task->se.sum_exec_runtime;
	t->out = (now & ~(KILN_MEANS - 1ULL)) | which;
	t->sampled = draw(t, now, which);
	return t->sampled ? t : 0;
}

/* The id of the current task's cgroup, while cgroups have policies. */
static __always_inline uint64_t own_cgroup(void)
{
	return use_cgroups
		   ? kernel_read(kernel_read(kernel_read(task_css(current_task()), cgroup), kn), id)
		   : 0;
}

static __always_inline uint8_t cause_of(struct task_struct *task, uint32_t queue)
{
	if (queue)
		return KILN_WAIT_RUN_QUEUE;
	return BPF_CORE_READ_BITFIELD(task, in_iowait) ? KILN_WAIT_IO : KILN_WAIT_BLOCKED;
}

/* Not inlined: its variables would be on the BPF stack during the whole walk, and the stack of all
 * callers together is limited to 512 bytes. */
static __attribute__((noinline)) int begin_wait(void *ctx, struct kiln_cpu *cpu,
						const struct kiln_thread *t, uint32_t cause,
						uint32_t tgid)
{
	const struct kiln_verdict verdict = {
	    .index = t->rate >> 24, .runtimes = runtimes_of(t), .cgroup = own_cgroup()};
	const struct beginning b = {
	    .verdict = &verdict,
	    .value = t->sampled == ~0U ? KILN_OFF_CPU_CERTAIN : t->sampled,
	    .time = t->out,
	    .tgid = tgid,
	    .tid = t->tid,
	    .origin = KILN_ORIGIN_OFF_CPU,
	    .detail = (uint8_t)cause,
	};

	return begin_sample(ctx, cpu, &b);
}

/* Ends the sample of CPU NUMBER, and stores in the current thread's slot how long the walk took. */
static __attribute__((noinline)) int end_wait_sample(uint32_t number)
{
	int r = end_sample(number);
	uint32_t tid = thread_id(current_task());
	struct kiln_thread *t = tid ? find_thread(tid) : 0;
	uint64_t took;

	if (!t || !t->sampled)
		return r;
	took = bpf_ktime_get_ns() - t->out;
	t->sampled = took - 1 < ~0U - 1 ? (uint32_t)took : 1;
	return r;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, int preempt, struct task_struct *prev, struct task_struct *next)
{
	uint32_t number = bpf_get_smp_processor_id(), cause;
	uint32_t queue = preempt || !task_state(prev);
	uint64_t now = switch_time(prev, number);
	struct kiln_thread *t;
	struct kiln_walk *w;
	struct kiln_cpu *cpu;
	int begun;

	begin_running(next, now);
	t = begin_waiting(prev, now, queue);
	if (!t)
		return 0;
	cpu = bpf_map_lookup_elem(&cpus, &number);
	if (!cpu) {
		/* A CPU that is not sampled. The wait gets no sample, so user space must not be
		 * told its end. */
		t->sampled = 0;
		return 0;
	}
	cause = cause_of(prev, queue);
	meet_process(cpu, process_id(prev));
	begun = begin_wait(ctx, cpu, t, cause, process_id(prev));
	if (begun < 0) {
		t->sampled = 0;
		return 0;
	}
	cpu->stats.n[KILN_STAT_WAITS]++;
	w = env_walk(number);
	if (begun && w) {
		if (cause == KILN_WAIT_BLOCKED && !w->syscall)
			env_record(w)->head.detail = KILN_WAIT_FAULT;
		if (env_record(w)->head.flags & KILN_SAMPLE_LABELS)
			read_labels(number);
		begun = w->walker ? begin_in_walker(number) : 0;
		if (begun)
			bpf_tail_call(ctx, &walkers, begun);
		walk_on(ctx, number, w);
	}
	return end_wait_sample(number);
}

/* The end of a sample whose walk has ended in a runtime's walker. */
SEC("tp_btf/sched_switch")
int BPF_PROG(finish)
{
	return end_wait_sample(bpf_get_smp_processor_id());
}

/* ---- threads that wait without a sample ------------------------------------------------------ */

/* The leaf of kernel stacks taken at a switch. sleepers() adds it, because the stacks that the
 * iterator takes do not have it. */
extern const void schedule __ksym __weak;

/* The record that the iterator builds; only one reader at a time runs the iterator. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__uint(value_size, KILN_SLEEPER_BYTES);
} sleeper SEC(".maps");

/*
 * Returns the slot of TASK if it has waited since before switches were watched, or for
 * KILN_SLEEP_SHOWN and its stack was not walked; else NULL. When a wait began before switches were
 * watched, its time is counted from NOW on.
 */
static __attribute__((noinline)) struct kiln_thread *find_sleeper(struct task_struct *task,
								  uint64_t now)
{
	uint32_t epoch = *(volatile uint32_t *)&policy_epoch, tid = thread_id(task);
	struct kiln_thread *t = tid ? find_thread(tid) : 0;
	struct cgroup_subsys_state *css = 0;
	uint64_t serial = 0;

	if (t && (t->sampled || (t->out && (int64_t)(now - t->out) < KILN_SLEEP_SHOWN)))
		return 0;
	if (tid && (!t || !t->epoch))
		t = claim_thread(tid, now, kernel_read(task, se.sum_exec_runtime));
	if (!t)
		return 0;
	if (use_cgroups) {
		css = task_css(task);
		serial = kernel_read(css, serial_nr);
	}
	if (t->css != (uint32_t)serial || t->epoch != epoch)
		decide_waits(css, serial, epoch, process_id(task), t);
	if (!t->rate)
		return 0;
	if (!t->out)
		t->out = now & ~(KILN_MEANS - 1ULL);
	return t;
}

/* Fills in the header of R for TASK, as begin_sample() does. Returns 0 if its process is not
 * sampled, else 1. */
static __always_inline int describe_sleeper(struct task_struct *task, const struct kiln_thread *t,
					    struct kiln_sample *r)
{
	uint32_t tgid = process_id(task);
	uint64_t exec_id = kernel_read(task, self_exec_id);
	/* TASK runs on no CPU, so it does not matter whether the reader's CPU is sampled. */
	struct kiln_cpu *cpu = counting_cpu(bpf_get_smp_processor_id());
	struct kiln_process *process;
	int fresh = 0;

	if (!cpu)
		return 0;
	/* Makes the entry if there is none: user space puts the mapset into it. */
	process = find_process(tgid, exec_id, &cpu->stats, &fresh);
	if (process && (process->flags & KILN_PROCESS_IGNORE))
		return 0;
	r->type = KILN_RECORD_SAMPLE;
	r->time = t->out;
	r->start_time = kernel_read(kernel_read(task, group_leader), start_boottime);
	r->exec_id = exec_id;
	r->cgroup =
	    use_cgroups ? kernel_read(kernel_read(kernel_read(task_css(task), cgroup), kn), id) : 0;
	r->tgid = tgid;
	r->tid = thread_id(task);
	r->policy = (uint16_t)(t->rate >> 24);
	r->runtimes = runtimes_of(t);
	r->origin = KILN_ORIGIN_OFF_CPU;
	r->value = KILN_OFF_CPU_CERTAIN;
	r->flags = KILN_SAMPLE_KERNEL_MODE | KILN_SAMPLE_FIRST_FRAME;
	r->end = KILN_END_BAD_READ;
	r->mapset = process ? process->mapset : 0;
	bpf_probe_read_kernel(r->comm, sizeof(r->comm), task->comm);
	return 1;
}

/* Writes a struct kiln_sleeper for each thread that waits without a sample. User space marks the
 * wait as shown in the thread's slot once it has taken the record (off_cpu_shown()). */
SEC("iter/task")
int sleepers(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	uint32_t zero = 0, syscall = 0;
	struct kiln_sleeper *s = bpf_map_lookup_elem(&sleeper, &zero);
	struct kiln_thread *t;
	long state, got;

	if (!task || !s)
		return 0;
	state = task_state(task);
	/* Skip kernel threads, and threads that run, could run, or end. */
	if (!task->mm || !state || (state & TASK_DEAD) || !program_begun(task))
		return 0;
	t = find_sleeper(task, bpf_ktime_get_ns());
	if (!t || !describe_sleeper(task, t, &s->sample))
		return 0;
	if (arch_saved_registers(s->leaf, saved_registers(task), &syscall))
		return 0;
	s->code_mask = ARCH_CODE_MASK(task);
	s->sample.detail = syscall ? cause_of(task, 0) : KILN_WAIT_FAULT;
	s->sample.words[0] = (uint64_t)&schedule;
	got = bpf_get_task_stack(task, &s->sample.words[1], (KILN_SLEEPER_FRAMES - 1) * 8, 0);
	s->sample.n_kernel = got > 0 ? (uint16_t)(1 + ((uint64_t)got >> 3)) : 0;
	bpf_seq_write(ctx->meta->seq, s, KILN_SLEEPER_BYTES);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
