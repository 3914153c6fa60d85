/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Places come from an allocator, their memory from a slab, which shares its memory limit with the
 * unwind tables. The tables take what memory there is and keep it until something else needs it, so
 * mappings that find no memory evict tables that are not in use.
 */
#include "agent/sampler/mapping_room.h"

#include "agent/sampler/range_alloc.h"
#include "agent/sampler/slab.h"

enum { TRIM_MAX = 2 /* shards that one trim gives back */ };

struct mapping_room {
	struct slab *slab; /* NULL: all places have memory */
	struct range_alloc *places;
	struct unwind_store *unwind;
};

int mapping_room_new(const struct kernel_memory *memory, struct unwind_store *unwind,
		     struct mapping_room **ret)
{
	_cleanup_(mapping_room_freep) struct mapping_room *room = calloc(1, sizeof(*room));
	int r;

	if (!room)
		return -ENOMEM;
	room->slab = memory->mapping_shards;
	room->unwind = unwind;
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

/* Backs N places with memory. */
static int back(struct mapping_room *room, uint32_t at, uint32_t n, uint64_t now_ms)
{
	int r = slab_back(room->slab, at, n);

	if (r != -ENOSPC)
		return r;
	/* Give back the shards that are free: of tables that were evicted earlier, or of mappings,
	 * at places behind these. */
	unwind_store_trim(room->unwind, now_ms);
	mapping_room_trim(room, now_ms);
	r = slab_back(room->slab, at, n);
	/* An evicted table has to rest, so this helps the next call. */
	if (r == -ENOSPC)
		(void)unwind_store_evict_shard(room->unwind, now_ms);
	return r;
}

int mapping_room_get(struct mapping_room *room, uint32_t n, uint64_t now_ms, uint32_t *ret)
{
	uint32_t at;
	int r = range_alloc_get(room->places, n, now_ms, &at);

	if (r < 0)
		return r;
	r = back(room, at, n, now_ms);
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
