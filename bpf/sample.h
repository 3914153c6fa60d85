/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The beginning and the end of a sample, whatever made the kernel take it: begin_sample() and
 * end_sample(). Between them is the walk (switch.h). It may end in another program, which then
 * calls end_sample().
 */
#pragma once

/*
 * For hurry_names(). A process younger than YOUNG_NS is young: with a minute instead of 10 s, the
 * agent took more than twice the CPU time beside a JVM that compiles all the time. Only YOUNG_LOOK
 * words of the stack, from the leaf on, are looked at: a longer loop is more than the verifier
 * accepts.
 */
#define YOUNG_NS   10000000000ULL
#define YOUNG_LOOK 256

/*
 * The entry of process TGID if it is about the program that the process runs (exec changes
 * exec_id). Else makes a pending entry, sets *ret_new, so that user space is woken, and returns
 * NULL.
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

static __always_inline struct kiln_known_process *known_process(struct kiln_cpu *cpu, uint32_t tgid)
{
	return &cpu->known[tgid & (KILN_KNOWN_PROCESSES - 1)];
}

/*
 * Looks up the process TGID, the current task's, and copies its entry to K, unless the entry is
 * pending: then k->tgid is 0. A sample that interrupts this one may use K, for the same process.
 */
static __attribute__((noinline)) int learn_process(struct kiln_known_process *k,
						   struct kiln_stats *stat, uint32_t tgid,
						   uint64_t exec_id)
{
	uint32_t epoch = *(volatile uint32_t *)&processes_epoch(tgid);
	struct kiln_process *p;
	int fresh = 0;

	*(volatile uint32_t *)&k->tgid = 0;
	p = find_process(tgid, exec_id, stat, &fresh);
	k->fresh = (uint32_t)fresh;
	k->start_time = kernel_read(kernel_read(current_task(), group_leader), start_boottime);
	/* Pending, and user space has not said that it is ignored or unresolved. */
	if (!p || p->flags == KILN_PROCESS_PENDING)
		return 0;
	k->entry = *p;
	k->epoch = epoch;
	asm volatile("" ::: "memory");
	*(volatile uint32_t *)&k->tgid = tgid;
	return 0;
}

/*
 * Brings the CPU's copy of the entry of the process TGID, the current task's, up to date. To be
 * called before begin_sample(), which has much on its stack.
 */
static __always_inline void meet_process(struct kiln_cpu *cpu, uint32_t tgid)
{
	struct kiln_known_process *k = known_process(cpu, tgid);
	struct task_struct *task = current_task();
	uint64_t exec_id = kernel_read(task, self_exec_id);

	if (kernel_read(task, mm) &&
	    (k->tgid != tgid || k->epoch != *(volatile uint32_t *)&processes_epoch(tgid) ||
	     k->entry.exec_id != exec_id))
		(void)learn_process(k, &cpu->stats, tgid, exec_id);
}

/* Appends the word of the frame in which the thread was interrupted. */
static __always_inline void put_leaf(struct kiln_walk *w)
{
	/* In a system call the pc is behind the system call instruction: the frame is named by
	 * pc - 1, like one with a return address. */
	(void)walk_put(w, walk_frame(w) | (w->syscall ? KILN_FRAME_RETURN : 0));
}

/*
 * The flags with which a record of LEN bytes is put into the ring, of which USED bytes are in use.
 * They tell whether to wake the reader: if FRESH, and from half full on once for each sixteenth of
 * the ring, because a wakeup costs more than a sample.
 */
static __always_inline uint64_t wakeup(int fresh, uint64_t used, uint64_t len)
{
	uint32_t before = ring_fill(used), after = ring_fill(used + len);

	return fresh || (after >= FILL_CHARGE && after != before) ? BPF_RB_FORCE_WAKEUP
								  : BPF_RB_NO_WAKEUP;
}

/*
 * User space reads the names of a runtime's functions from the process's memory, and a young
 * process may end at any moment. So user space is woken for each function that is not among the
 * last ones seen on this CPU.
 */
static __attribute__((noinline)) int hurry_names(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t word, *words;

	if (!w)
		return 0;
	words = env_record(w)->words;
	for (uint32_t i = 0; i < YOUNG_LOOK && i < w->n; i++) {
		word = words[(w->at + i) & (KILN_RECORD_WORDS - 1)];
		if (!kiln_frame_runtime(word))
			continue;
		walk_hurry(w, word, 0);
		i++;
	}
	return 0;
}

/* Arguments of begin_sample(). */
struct beginning {
	const hit_registers *regs; /* at the interrupt; NULL: not started by an interrupt */
	const struct kiln_verdict *verdict;
	uint64_t value, period;
	uint64_t time; /* of the sample; 0: now */
	uint8_t origin, detail;
	uint32_t tgid, tid; /* of the task: see task_id.h */
	uint8_t leaf;	    /* enum kiln_leaf */
	uint8_t skip; /* innermost kernel frames to leave out: those of the BPF program itself */
};

/*
 * Begins the sample of a hit, after meet_process(): fills in the header and the kernel stack, and
 * prepares the walk of the user stack. CTX: the context of the BPF program, whatever its type.
 * Returns 1 if there is a user stack to walk, 0 if there is not, and a negative number if the hit
 * becomes no sample.
 */
static __always_inline int begin_sample(void *ctx, struct kiln_cpu *cpu, const struct beginning *b)
{
	struct task_struct *task = current_task();
	uint64_t exec_id, tag;
	uint32_t tgid = b->tgid, n_kernel = 0, syscall = 0, limit = max_depth,
		 slot = bpf_get_smp_processor_id();
	struct kiln_known_process *known = known_process(cpu, tgid);
	struct kiln_process *process = 0;
	struct record *r;
	struct kiln_walk *w;
	int has_user;
	long got;

	has_user = kernel_read(task, mm) != 0;
	exec_id = kernel_read(task, self_exec_id);
	if (has_user) {
		if (known->tgid)
			process = &known->entry;
		if (process && (process->flags & KILN_PROCESS_IGNORE)) {
			cpu->stats.n[KILN_STAT_SKIPPED]++;
			return -1;
		}
	}
	w = env_walk(slot);
	if (!w)
		return -1;
	r = env_record(w);

	r->head.type = KILN_RECORD_SAMPLE;
	r->head.time = b->time ? b->time : bpf_ktime_get_ns();
	r->head.start_time = has_user
				 ? known->start_time
				 : kernel_read(kernel_read(task, group_leader), start_boottime);
	r->head.exec_id = exec_id;
	r->head.cgroup = b->verdict->cgroup;
	r->head.tgid = tgid;
	r->head.tid = b->tid;
	r->head.policy = (uint16_t)b->verdict->index;
	r->head.origin = b->origin;
	r->head.detail = b->detail;
	r->head.value = b->value;
	r->head.period = b->period;
	r->head.label = 0;
	r->head.cpu = (uint16_t)slot;
	r->head.flags = has_user ? 0 : KILN_SAMPLE_KTHREAD;
	r->head.runtimes = b->verdict->runtimes;
	r->head.mapset = process ? process->mapset : 0;
	r->head.dump_len = 0;
	copy_comm(&r->words[__builtin_offsetof(struct kiln_sample, comm) / 8], task);

	if (!b->regs || !ARCH_USER_MODE(b->regs)) {
		r->head.flags |= KILN_SAMPLE_KERNEL_MODE;
		got = bpf_get_stack(ctx, r->bytes + sizeof(r->head), KILN_MAX_KERNEL_FRAMES * 8,
				    b->skip);
		if (got > 0)
			n_kernel = (uint32_t)got / 8;
		if (n_kernel > KILN_MAX_KERNEL_FRAMES)
			n_kernel = KILN_MAX_KERNEL_FRAMES;
	}
	r->head.n_kernel = (uint16_t)n_kernel;

	w->slot = slot;
	w->fresh = has_user && known->fresh;
	w->end = KILN_END_NONE;
	if (limit > KILN_MAX_USER_FRAMES)
		limit = KILN_MAX_USER_FRAMES;
	if (less_detail > 1 && limit > KILN_SHORT_DEPTH)
		limit = KILN_SHORT_DEPTH;
	walk_begin(w, sizeof(r->head) / 8 + n_kernel, limit);
	if (!program_begun(task) || user_registers(b->regs, task, w, &syscall))
		return 0;
	/* If the mapset is known, the program has begun. */
	if (!r->head.mapset && !code_is_there(w))
		return 0;
	w->syscall = (uint8_t)(b->leaf == KILN_LEAF_SAVED ? syscall : b->leaf == KILN_LEAF_RETURN);
	w->exact = b->leaf != KILN_LEAF_RETURN;
	w->first = process ? process->first : 0;
	w->count = process ? process->count : 0;
	tag = ((uint64_t)r->head.mapset << 32) | (uint32_t)(cache_epoch + 1);
	if (w->tag != tag || !w->map_stays)
		w->map_start = w->map_end = 0;
	w->tag = tag;
	w->misses = 0;
	w->mapset = r->head.mapset;
	w->runtimes = b->verdict->runtimes;
	w->thread_pointer = ARCH_THREAD_POINTER(task);
	arch_walk_init(&w->arch, ARCH_CODE_MASK(task));
	w->walker = process ? process->flags >> KILN_PROCESS_WALKER_SHIFT & 31 : 0;
	put_leaf(w);
	if (process && process->flags & KILN_PROCESS_LABELS)
		r->head.flags |= KILN_SAMPLE_LABELS;
	if (process && process->flags & KILN_PROCESS_UNRESOLVED) {
		w->end = KILN_END_UNRESOLVED;
		return 0;
	}
	walk_fill(w);
	return 1;
}

/*
 * Ends a sample whose user stack has been walked: completes the record, adds a copy of the stack if
 * the walk lacked a mapping or table, and puts the record into the ring.
 */
static __attribute__((noinline)) int end_sample(uint32_t slot)
{
	struct kiln_cpu *cpu = bpf_map_lookup_elem(&cpus, &slot);
	struct kiln_walk *w = env_walk(slot);
	struct record *r;
	uint32_t n_kernel, n_user, size, native, dump, fill, less = SHED_NOTHING;
	struct kiln_stats *stat;
	uint64_t len, used;

	if (!cpu || !w)
		return 0;
	r = env_record(w);
	stat = &cpu->stats;
	if (!r->head.mapset && w->end == KILN_END_NO_MAPPING)
		w->end = KILN_END_NO_PROCESS;
	r->head.end = (uint16_t)w->end;
	if (w->end) {
		walk_learn_window(w);
		native = w->n - 2 * w->runtime_frames;
		stat->n[KILN_STAT_CACHE_HIT] += native > w->misses ? native - w->misses : 0;
		stat->n[KILN_STAT_CACHE_MISS] += w->misses;
	}
	if (w->runtime_frames && bpf_ktime_get_boot_ns() - r->head.start_time < YOUNG_NS)
		hurry_names(slot);
	if (w->end == KILN_END_NO_MAPPING && rewind_walk(w)) {
		w->n = 0;
		w->exact = 1;
		put_leaf(w);
	}
	n_kernel = r->head.n_kernel;
	if (n_kernel > KILN_MAX_KERNEL_FRAMES)
		return 0;
	n_user = w->n;
	if (n_user > KILN_MAX_USER_WORDS)
		n_user = KILN_MAX_USER_WORDS;
	dump = r->head.end == KILN_END_NO_PROCESS || r->head.end == KILN_END_NO_MAPPING ||
	       r->head.end == KILN_END_NO_TABLE;
	/* For a record with a copy of the stack, always query the ring. */
	used = ring_used(cpu, dump ? ~0ULL : sizeof(r->head) + (n_kernel + n_user) * 8);
	fill = ring_fill(used);
	if (fill >= FILL_SMALL)
		less = (uint32_t)shed(fill, dump);
	if (less == SHED_SAMPLE) {
		stat->n[KILN_STAT_SHED_SAMPLE]++;
		return 0;
	}
	if (less == SHED_FRAMES) {
		stat->n[KILN_STAT_SHED_FRAMES]++;
		n_user = (uint32_t)short_words(slot, sizeof(r->head) / 8 + n_kernel, n_user);
		if (n_user > KILN_MAX_USER_WORDS)
			return 0;
		r->head.end = KILN_END_SHED;
	}
	if (dump && less_detail && less < SHED_DUMP)
		less = SHED_DUMP;
	if (less == SHED_DUMP)
		stat->n[KILN_STAT_SHED_DUMP]++;
	r->head.n_user = (uint16_t)n_user;
	size = sizeof(r->head) + (n_kernel + n_user) * 8;

	if (dump && less < SHED_DUMP) {
		if (w->leaf_valid)
			r->head.flags |= KILN_SAMPLE_FIRST_FRAME;
		w->dump.end = main_stack_end(current_task(), w);
		r->head.dump_len = (uint32_t)dump_stack(slot, size, less);
		if (r->head.dump_len > KILN_DUMP_MAX)
			return 0;
		if (r->head.dump_len)
			size += sizeof(struct kiln_resume) + r->head.dump_len;
	}
	if (r->head.dump_len || fill >= FILL_CHARGE)
		(void)charge_share(fill, size, r->head.dump_len);
	r->head.size = size;
	len = size;
	/* The bounds are checked one after the other, 64 bits wide: older verifiers do not
	 * understand the code that the compiler makes of both checks at once. */
	asm volatile("" : "+r"(len));
	if (len > KILN_RECORD_MAX)
		return 0;
	asm volatile("" : "+r"(len));
	if (len < sizeof(r->head))
		return 0;
	if (bpf_ringbuf_output(&ring, r, len, wakeup(w->fresh, used, len)))
		stat->n[KILN_STAT_RING_FULL]++;
	return 0;
}
