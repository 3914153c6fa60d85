/* SPDX-License-Identifier: Apache-2.0 */
/* Places come from an allocator, their memory from a slab. */
#include "agent/sampler/mapping_room.h"

#include "agent/sampler/range_alloc.h"
#include "agent/sampler/slab.h"

enum { TRIM_MAX = 2 /* shards that one trim gives back */ };

struct mapping_room {
	struct slab *slab; /* NULL: all places have memory */
	struct range_alloc *places;
};

int mapping_room_new(const struct kernel_memory *memory, struct mapping_room **ret)
{
	_cleanup_(mapping_room_freep) struct mapping_room *room = calloc(1, sizeof(*room));
	int r;

	if (!room)
		return -ENOMEM;
	room->slab = memory->mapping_shards;
	r = range_alloc_new(0, memory->n_mappings, &room->places);
	if (r < 0)
		return r;
	*ret = TAKE_PTR(room);
	return 0;
}

struct mapping_room *mapping_room_free(struct mapping_room *room)
{
	if (!room)
		return NULL;
	range_alloc_free(room->places);
	free(room);
	return NULL;
}

int mapping_room_get(struct mapping_room *room, uint32_t n, uint64_t now_ms, uint32_t *ret)
{
	uint32_t at;
	int r = range_alloc_get(room->places, n, now_ms, &at);

	if (r < 0)
		return r;
	r = slab_back(room->slab, at, n);
	if (r < 0)
		range_alloc_cancel(room->places, at, n);
	else
		*ret = at;
	return r;
}

void mapping_room_put(struct mapping_room *room, uint32_t at, uint32_t n, uint64_t now_ms)
{
	range_alloc_put(room->places, at, n, now_ms);
}

void mapping_room_trim(struct mapping_room *room, uint64_t now_ms)
{
	slab_trim(room->slab, room->places, now_ms, TRIM_MAX);
}
