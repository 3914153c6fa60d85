/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The whole walk, which several programs share: each walks native frames and the frames of its own
 * runtime, then jumps (a tail call) to the next runtime's walker or, at the end, to the program
 * that ends the sample. The programs pass their state in the CPU's scratch; nothing else survives
 * the jump.
 */
#pragma once

enum { END_SAMPLE = 0 }; /* index in `walkers` of the program that ends the sample */

/* Called when the jump to the current runtime's walker has failed: the walker is not loaded. */
__attribute__((noinline)) int walk_unloaded(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);

	if (w)
		walk_give_up(w, KILN_MISSING_NOT_LOADED);
	return 0;
}

#ifndef KILN_WALKER
/*
 * Jumps to the walker of the runtime ID. If the index is a constant, the kernel patches the jump
 * into the code (x86-64, Linux 5.5 on): no map lookup, no indirect branch. Saves 7 % of a Python
 * sample at 97 Hz.
 */
static __always_inline void jump_to_walker(void *ctx, uint32_t id)
{
#define JUMP(n)                                                                                    \
	case n:                                                                                    \
		bpf_tail_call_static(ctx, &walkers, n);                                            \
		break;
#define JUMPS(n) JUMP(n) JUMP((n) + 1) JUMP((n) + 2) JUMP((n) + 3)
	_Static_assert(KILN_RUNTIME_MAX == 32, "a jump for each runtime");
	switch (id) {
		JUMP(1)
		JUMP(2)
		JUMP(3)
		JUMPS(4)
		JUMPS(8)
		JUMPS(12)
		JUMPS(16)
		JUMPS(20)
		JUMPS(24)
		JUMPS(28)
	}
#undef JUMPS
#undef JUMP
}

/*
 * At the beginning of a walk: makes w->walker the current runtime. Returns its number if the walk
 * is to begin in its walker, which walks native frames as well; else 0.
 */
__attribute__((noinline)) int begin_in_walker(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	struct kiln_cursor cursor = {};
	const struct kiln_runtime *entry;
	uint64_t kept;
	uint32_t id;

	if (!w)
		return 0;
	id = w->walker & 31;
	if (!id || !(w->runtimes >> id & 1))
		return 0;
	w->cursor = cursor;
	/* The epoch is read before the data that it vouches for. */
	kept = (uint64_t)w->mapset << 32 | *(volatile uint32_t *)&runtimes_epoch << 5 | id;
	if (w->runtime_kept == kept) {
		w->runtime_id = id;
		w->switches++;
		return (int)id;
	}
	entry = env_runtime(w, id);
	if (!entry)
		return 0;
	walk_use_runtime(w, id, entry);
	w->runtime_kept = kept;
	return (int)id;
}

/*
 * Makes later samples of the process begin in the walker of the runtime ID, so that each sample
 * fetches the code of one walk and not of two.
 */
__attribute__((noinline)) int remember_walker(uint32_t slot, uint32_t id)
{
	struct kiln_walk *w = env_walk(slot);
	struct kiln_process *process;
	struct record *r;

	if (!w)
		return 0;
	r = env_record(w);
	process = bpf_map_lookup_elem(&processes, &r->head.tgid);
	if (process && process->exec_id == r->head.exec_id) {
		process->flags = (process->flags & ~(31U << KILN_PROCESS_WALKER_SHIFT)) |
				 id << KILN_PROCESS_WALKER_SHIFT;
		__sync_fetch_and_add(&processes_epoch(r->head.tgid), 1);
	}
	return 0;
}
#endif

/*
 * Walks from w->regs to the end of the stack. w->end is the enum kiln_end, w->n the number of
 * words. Does not return if another program goes on with the walk.
 */
static __always_inline void walk_on(void *ctx, uint32_t slot, struct kiln_walk *w)
{
	int end = KILN_END_NONE, id;

	for (int i = 0; i < KILN_CHUNKS + KILN_SWITCHES_MAX + 32; i++) {
		end = walk_chunk(slot);
		if (end && end != KILN_STEP_RUNTIME)
			break;
		if (!end)
			continue;
		id = walk_switch(slot);
		if (id) {
#ifndef KILN_WALKER
			remember_walker(slot, (uint32_t)id);
#endif
			bpf_tail_call(ctx, &walkers, id);
			walk_unloaded(slot);
		}
		end = KILN_END_NONE;
	}
	w->end = (uint32_t)(end ? end : KILN_END_DEPTH);
}
