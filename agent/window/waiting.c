/* SPDX-License-Identifier: Apache-2.0 */
/* A list in the order of arrival. */
#include "agent/window/waiting.h"

#include <utlist.h>

#include "lib/metrics.h"

bool waiting_add(struct waiting_list *l, const struct kiln_sample *record, struct process *process,
		 struct mapset *mapset)
{
	uint32_t size = record->size, cut = 0;
	struct waiting *w;

	/* When many wait, the lower part of each stack is worth more than a few of them whole. */
	if (l->bytes > WAITING_BYTES_MAX / 2 && record->dump_len > KILN_DUMP_SMALL)
		cut = record->dump_len - KILN_DUMP_SMALL;
	size -= cut;
	if (l->n >= WAITING_MAX || l->bytes + size > WAITING_BYTES_MAX) {
		metric_add(M_WAITING_FULL, 1);
		return false;
	}
	w = malloc(offsetof(struct waiting, record) + size);
	if (!w)
		return false;
	w->process = process;
	w->mapset = mapset;
	mapset->refs++;
	memcpy(&w->record, record, size);
	w->record.size = size;
	w->record.dump_len -= cut;
	DL_APPEND(l->first, w);
	l->n++;
	l->bytes += size;
	return true;
}

struct waiting *waiting_take(struct waiting_list *l)
{
	struct waiting *w = l->first;

	if (!w)
		return NULL;
	DL_DELETE(l->first, w);
	l->n--;
	l->bytes -= w->record.size;
	return w;
}

struct waiting *waiting_free(struct waiting *w)
{
	if (!w)
		return NULL;
	w->mapset->refs--;
	free(w);
	return NULL;
}

void waiting_touch(const struct waiting_list *l, uint32_t number)
{
	for (const struct waiting *w = l->first; w; w = w->next)
		w->process->last_window = number;
}
