/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Copies the user stack into the record (a dump) when a walk has ended for want of a mapping or
 * table, so that user space can complete the walk.
 */
#pragma once

/*
 * The loops below are global functions: the verifier checks each of them once, for unknown
 * arguments, and not once for every path that leads to it. They look up the scratch themselves, and
 * keep the values that change from round to round in memory, where the verifier does not track
 * them.
 */

/*
 * Appends page I of the stack, if it can be read, to the dump. AT: the byte of the record at which
 * the dump's struct kiln_resume begins. Returns non-zero if the dump ends before this page.
 */
__attribute__((noinline)) int dump_page(uint32_t slot, uint32_t at, uint32_t i)
{
	struct kiln_walk *w = env_walk(slot);
	struct record *r;
	struct kiln_resume *resume;
	uint64_t address, first, len = KILN_PAGE, to;

	if (!w)
		return 1;
	r = env_record(w);
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
		/* Many unreadable pages in a row end the dump, unless it is a large one of a stack
		 * whose end is known. */
		return (!w->dump.end || w->dump.limit < KILN_DUMP_MAX) &&
		       ++w->dump.gap > KILN_DUMP_GAP;
	resume = (struct kiln_resume *)(r->bytes + first);
	resume->pages[(i / 64) & (KILN_DUMP_PAGES / 64 - 1)] |= 1ULL << (i & 63);
	w->dump.done += (uint32_t)len;
	w->dump.gap = 0;
	return 0;
}

/*
 * How many bytes of stack this sample may copy. Large dumps are meant for the first samples of a
 * new process; code that never gets a table must not cost a large dump at each sample.
 */
static __always_inline uint32_t dump_limit(struct kiln_walk *w, uint64_t now, uint32_t small)
{
	if (w->dump.second != now >> 30) {
		w->dump.second = now >> 30;
		w->dump.large = 0;
	}
	if (small || w->dump.large >= KILN_DUMPS_LARGE)
		return KILN_DUMP_SMALL;
	return KILN_DUMP_MAX;
}

/*
 * Fills in the parent of a process without a mapset. `forked`: a forked child's memory is a copy of
 * its parent's, so its stack and arguments lie at the same addresses, which each exec randomizes.
 * They differ if the parent has only adopted the process.
 */
static __always_inline void put_parent(struct kiln_resume *resume, const struct record *r)
{
	struct task_struct *task = current_task(), *parent = kernel_read(task, real_parent);
	struct mm_struct *mm = kernel_read(task, mm),
			 *theirs = parent ? kernel_read(parent, mm) : 0;

	resume->parent_start = resume->parent = resume->forked = 0;
	if (r->head.mapset || !mm || !theirs)
		return;
	resume->parent = process_id(parent);
	resume->parent_start = kernel_read(kernel_read(parent, group_leader), start_boottime);
	resume->forked = kernel_read(theirs, start_stack) == kernel_read(mm, start_stack) &&
			 kernel_read(theirs, arg_start) == kernel_read(mm, arg_start) &&
			 kernel_read(parent, self_exec_id) == r->head.exec_id;
}

/*
 * Puts a struct kiln_resume and the user stack from w->regs.sp on into the record, from byte AT on.
 * SMALL: copy at most KILN_DUMP_SMALL bytes of the stack. Returns the bytes of stack.
 */
__attribute__((noinline)) int dump_stack(uint32_t slot, uint32_t at, uint32_t small)
{
	struct kiln_walk *w = env_walk(slot);
	struct record *r;
	struct kiln_resume *resume;
	uint64_t first = at;

	if (!w)
		return 0;
	r = env_record(w);
	asm volatile("" : "+r"(first));
	if (first > KILN_RECORD_MAX - KILN_DUMP_MAX - sizeof(*resume))
		return 0;
	resume = (struct kiln_resume *)(r->bytes + first);
	resume->regs = w->regs;
	resume->code_mask = arch_code_mask(&w->arch);
	for (int i = 0; i < KILN_LEAF_REGS; i++)
		resume->leaf[i] = i < ARCH_REGS ? w->leaf[i] : 0;
	for (int i = 0; i < KILN_DUMP_PAGES / 64; i++)
		resume->pages[i] = 0;
	put_parent(resume, r);
	w->dump.done = w->dump.gap = 0;
	w->dump.limit = dump_limit(w, r->head.time, small);
	for (uint32_t i = 0; i < KILN_DUMP_PAGES; i++) {
		if (dump_page(slot, at, i))
			break;
		/* Counts as large by the pages tried, since unreadable pages cost time as well. */
		if (i == KILN_DUMP_SMALL / KILN_PAGE + 1)
			w->dump.large++;
	}
	return (int)w->dump.done;
}

/*
 * A walk that has left all known mappings may have gone wrong some frames earlier, by tables of a
 * library that has just been replaced. So user space walks again from the leaf, if the dump will
 * hold the stack from there on. Returns 1 if the walk has been set back to the leaf, else 0.
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

/* The end address of the main thread's stack if the walk is on that stack, else 0. */
static __always_inline uint64_t main_stack_end(struct task_struct *task, const struct kiln_walk *w)
{
	struct mm_struct *mm = kernel_read(task, mm);
	uint64_t end = mm ? kernel_read(mm, start_stack) : 0;

	return end - w->regs.sp < KILN_FAR_STACK ? end : 0;
}
