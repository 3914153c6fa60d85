/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One queue for each key, in the order of arrival. The samples of a cgroup that wait are its share.
 * When the room is more than half full, a cgroup that has half of the total gets no more in, so
 * that a crowd of new processes leaves room for others.
 */
#include "agent/window/waiting.h"

#include <utlist.h>

#include "lib/metrics.h"

struct waiting_queue {
	struct waiting_key key;
	struct waiting *first;
	UT_hash_handle hh;
};

struct waiting_share {
	uint64_t cgroup;
	size_t n, bytes;
	UT_hash_handle hh;
};

static struct waiting_queue *get_queue(struct waiting_room *room, const struct waiting_key *key)
{
	struct waiting_queue *q;

	HASH_FIND(hh, room->queues, key, sizeof(*key), q);
	if (q)
		return q;
	q = calloc(1, sizeof(*q));
	if (!q)
		return NULL;
	q->key = *key;
	HASH_ADD(hh, room->queues, key, sizeof(q->key), q);
	return q;
}

static struct waiting_share *get_share(struct waiting_room *room, uint64_t cgroup)
{
	struct waiting_share *share;

	HASH_FIND(hh, room->shares, &cgroup, sizeof(cgroup), share);
	if (share)
		return share;
	share = calloc(1, sizeof(*share));
	if (!share)
		return NULL;
	share->cgroup = cgroup;
	HASH_ADD(hh, room->shares, cgroup, sizeof(share->cgroup), share);
	return share;
}

static void drop_if_empty(struct waiting_room *room, struct waiting_share *share)
{
	if (share->n)
		return;
	HASH_DEL(room->shares, share);
	free(share);
}

static bool has_room(const struct waiting_room *room, const struct waiting_share *share,
		     size_t size)
{
	if (room->n >= WAITING_MAX || room->bytes + size > WAITING_BYTES_MAX)
		return false;
	if (room->n < WAITING_MAX / 2 && room->bytes < WAITING_BYTES_MAX / 2)
		return true;
	/* If cgroups are not recorded, all samples have the same share, which is not limited. */
	return !share->cgroup ||
	       (share->n < WAITING_MAX / 2 && share->bytes + size <= WAITING_BYTES_MAX / 2);
}

static struct waiting *copy_record(const struct kiln_sample *record, uint32_t cut)
{
	uint32_t size = record->size - cut;
	struct waiting *w = malloc(offsetof(struct waiting, record) + size);

	if (!w)
		return NULL;
	memcpy(&w->record, record, size);
	w->record.size = size;
	w->record.dump_len -= cut;
	return w;
}

bool waiting_add(struct waiting_room *room, struct waiting_key key,
		 const struct kiln_sample *record, struct process *process, struct mapset *mapset)
{
	struct waiting_share *share = get_share(room, record->cgroup);
	struct waiting_queue *q;
	struct waiting *w = NULL;
	uint32_t cut = 0;

	/* When many samples wait, keep the part next to the leaf of each stack rather than a few
	 * whole stacks. */
	if (room->bytes > WAITING_BYTES_MAX / 2 && record->dump_len > KILN_DUMP_SMALL)
		cut = record->dump_len - KILN_DUMP_SMALL;
	if (!share)
		return false;
	if (has_room(room, share, record->size - cut))
		w = copy_record(record, cut);
	else
		metric_add(M_WAITING_FULL, 1);
	q = w ? get_queue(room, &key) : NULL;
	if (!q) {
		free(w);
		drop_if_empty(room, share);
		return false;
	}
	w->process = process;
	w->mapset = mapset;
	if (mapset)
		mapset->refs++;
	w->share = share;
	DL_APPEND(q->first, w);
	room->n++;
	room->bytes += w->record.size;
	share->n++;
	share->bytes += w->record.size;
	return true;
}

static struct waiting *take_queue(struct waiting_room *room, struct waiting_queue *q)
{
	struct waiting *first = q->first, *w;

	DL_FOREACH (first, w) {
		room->n--;
		room->bytes -= w->record.size;
		w->share->n--;
		w->share->bytes -= w->record.size;
		drop_if_empty(room, w->share);
	}
	HASH_DEL(room->queues, q);
	free(q);
	return first;
}

struct waiting *waiting_take(struct waiting_room *room, struct waiting_key key)
{
	struct waiting_queue *q;

	HASH_FIND(hh, room->queues, &key, sizeof(key), q);
	return q ? take_queue(room, q) : NULL;
}

struct waiting *waiting_take_all(struct waiting_room *room)
{
	struct waiting *all = NULL;

	while (room->queues) {
		struct waiting *some = take_queue(room, room->queues);

		DL_CONCAT(all, some);
	}
	return all;
}

struct waiting *waiting_free(struct waiting *w)
{
	if (!w)
		return NULL;
	if (w->mapset)
		w->mapset->refs--;
	free(w);
	return NULL;
}

void waiting_touch(const struct waiting_room *room, uint32_t number)
{
	const struct waiting_queue *q;
	const struct waiting *w;

	for (q = room->queues; q; q = q->hh.next)
		DL_FOREACH (q->first, w)
			if (w->process)
				w->process->last_window = number;
}
