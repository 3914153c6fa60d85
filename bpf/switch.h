/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The whole walk, over several programs: each goes on with native frames and those of its own
 * runtime, and jumps to the next runtime's walker or, at the end, to the program that ends the
 * sample. What these need lies in the scratch of the CPU; nothing else survives the jump.
 */
#pragma once

enum { END_SAMPLE = 0 }; /* its index in `walkers` */

/* The jump to the walker of the current runtime has failed. */
__attribute__((noinline)) int walk_unloaded(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);

	if (w)
		walk_give_up(w, KILN_MISSING_NOT_LOADED);
	return 0;
}

/* The walk from here to its end; w->end and w->n tell what came of it. Does not return when it ends
 * in another program. */
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
			bpf_tail_call(ctx, &walkers, id);
			walk_unloaded(slot);
		}
		end = KILN_END_NONE;
	}
	w->end = (uint32_t)(end ? end : KILN_END_DEPTH);
}
