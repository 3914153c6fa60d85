/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sweep between windows: removes entries that have ended or were not sampled for a while, from
 * each store by its own rule.
 */
#include "agent/window/intake_internal.h"

enum {
	/* How long idle entries stay. Processes stay longer than stacks: describing a process again
	 * costs reads of /proc, a stack costs nothing, and there are many more stacks. */
	PROCESSES_KEEP_MS = 60000,
	STACKS_KEEP_MS = 20000,
	IMAGES_KEEP_MS = 30000, /* open files that no process maps */
};

/* Keeps the tables of stacks that were seen from being evicted; not needed while there is room to
 * spare. */
static void touch_tables(struct intake *in, const struct window *w)
{
	const struct kernel_memory *memory = sampler_memory(in->sampler);
	uint64_t now = monotonic_ms();

	if (!in->pressure && !sampler_slabs_are_tight(in->sampler) &&
	    unwind_store_bytes(in->unwind) < (size_t)memory->slab_slots * KILN_SLOT_BYTES / 2)
		return;
	for (const struct count *c = w->list; c; c = c->next) {
		const struct stack *s = c->key.stack;

		const uint64_t *words = s->key.words + s->key.n_kernel;

		for (uint32_t i = 0; s->mapset && i < s->key.n_user;
		     i += kiln_frame_words(words[i])) {
			const struct mapset_range *range =
			    KILN_FRAME_KIND(words[i]) == KILN_FRAME_NATIVE
				? mapset_find(s->mapset, words[i] & KILN_FRAME_PC_MASK)
				: NULL;

			if (range && range->image)
				unwind_store_touch(in->unwind, range->image, now);
		}
	}
}

/* For entries that are kept for KEEP_MS: those last used before the window that this returns are
 * removed at the end of window NUMBER. */
static uint32_t forget_before(const struct intake *in, uint32_t number, uint64_t keep_ms)
{
	uint64_t interval = MAX(in->config->receiver.reporter_interval_ms, 1);

	return number - (in->pressure ? 1 : (uint32_t)(keep_ms / interval) + 2);
}

void intake_sweep(struct intake *in, const struct window *w)
{
	uint32_t processes = forget_before(in, w->number, PROCESSES_KEEP_MS);
	uint64_t now = monotonic_ms();
	_cleanup_(sampler_named_done) struct sampler_named named = {};
	bool read;

	touch_tables(in, w);
	if (in->pressure)
		unwind_store_evict_unused(in->unwind, now);
	/* Entries that W refers to stay until the next sweep. */
	stack_table_sweep(in->stacks, forget_before(in, w->number, STACKS_KEEP_MS), w->number,
			  mapset_store_any_unnamed(in->mapsets));
	runtime_frames_sweep(in->runtime_frames, processes);
	label_sets_sweep(in->labels, monotonic_ns());
	waiting_touch(&in->waiting, in->window->number);
	read = !sampler_read_named(in->sampler, in->proc_dirfd, &named);
	process_table_sweep(in->processes, in->proc_dirfd, processes, w->number, named.tgids,
			    named.n_tgids);
	if (read)
		mapset_store_sweep(in->mapsets, named.mapsets, named.n_mapsets, now);
	discovery_sweep(in->discovery);
	image_store_sweep(in->images, now, in->pressure ? 1000 : IMAGES_KEEP_MS);
	mapset_store_trim(in->mapsets, now);
	unwind_store_trim(in->unwind, now);
}
