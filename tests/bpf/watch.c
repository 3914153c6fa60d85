/* SPDX-License-Identifier: Apache-2.0 */
/* One thread: the test's. */
#include "tests/bpf/watch.h"

#include <time.h>

enum { PATIENCE_MS = 30000, NAP_MS = 5, LEAF_BYTES = 4096 };

struct drain {
	struct profiled *p;
	struct watch *watches;
	size_t n;
};

bool watch_stack_is_right(const struct kiln_sample *record, const struct child_report *said)
{
	const uint64_t *user = record->words + record->n_kernel;

	if (record->n_user != 1 + said->n + CHILD_ABOVE_MAIN)
		return false;
	if ((user[0] & KILN_FRAME_PC_MASK) - said->leaf >= LEAF_BYTES ||
	    (user[0] & KILN_FRAME_RETURN))
		return false;
	for (uint32_t i = 0; i < said->n; i++)
		if ((user[1 + i] & KILN_FRAME_PC_MASK) != said->returns[i] ||
		    !(user[1 + i] & KILN_FRAME_RETURN))
			return false;
	return true;
}

static void take(const struct kiln_sample *record, void *arg)
{
	struct drain *d = arg;
	struct watch *w = NULL;

	for (size_t i = 0; i < d->n; i++)
		if (d->watches[i].tgid == record->tgid)
			w = &d->watches[i];
	if (!w)
		return;
	if (!w->records++)
		w->first = *record;
	w->last = *record;
	w->unknown += !record->mapset;
	w->with_dump += record->dump_len > 0;
	w->complete += record->end == KILN_END_ROOT;
	w->by_end[MIN(record->end, KILN_END_COUNT - 1u)]++;
	if (w->child && record->end == KILN_END_ROOT) {
		bool wrong = !watch_stack_is_right(record, &w->child->report);

		w->strayed += wrong && w->wrong < w->complete - 1;
		w->wrong += wrong;
	}
	if (w->each)
		w->each(w, record);
	if (w->learn && !record->mapset && !profiled_learn(d->p, record, &w->mapset))
		(void)profiled_load_all(d->p, w->mapset);
}

void watch_drain(struct profiled *p, struct watch *watches, size_t n)
{
	struct drain d = {p, watches, n};

	while (sampler_drain(p->sampler, take, &d))
		;
}

void watch_reset(struct watch *w)
{
	*w = (struct watch){.tgid = w->tgid,
			    .learn = w->learn,
			    .child = w->child,
			    .mapset = w->mapset,
			    .each = w->each,
			    .arg = w->arg};
}

bool watch_until(struct profiled *p, struct watch *watches, size_t n, const uint64_t *counter,
		 uint64_t want)
{
	const struct timespec nap = {.tv_nsec = NAP_MS * 1000000L};
	uint64_t give_up = profiled_now_ns() + PATIENCE_MS * 1000000ULL;

	for (;;) {
		watch_drain(p, watches, n);
		if (*counter >= want)
			return true;
		if (profiled_now_ns() > give_up)
			return false;
		nanosleep(&nap, NULL);
	}
}
