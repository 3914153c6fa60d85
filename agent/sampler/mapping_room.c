/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Places come from an allocator, their memory from a slab, which shares its memory limit with the
 * unwind tables. The tables take what memory there is and keep it until something else needs it, so
 * mappings that find no memory evict tables that are not in use. A cgroup that is refused because
 * of its share evicts none: others may use them again.
 */
#include "agent/sampler/mapping_room.h"

#include "agent/sampler/range_alloc.h"
#include "agent/sampler/slab.h"
#include "lib/uthash.h"

enum { TRIM_MAX = 2 /* shards that one trim gives back */ };

/* The places of one cgroup. Exists while it has some. */
struct mapping_share {
	uint64_t cgroup;
	uint32_t n;
	UT_hash_handle hh;
};

struct mapping_room {
	struct slab *slab; /* NULL: all places have memory */
	uint32_t n_places;
	struct range_alloc *places;
	struct mapping_share *shares;
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
	room->n_places = memory->n_mappings;
	room->unwind = unwind;
	r = range_alloc_new(0, memory->n_mappings, &room->places);
	if (r < 0)
		return r;
	*ret = TAKE_PTR(room);
	return 0;
}

struct mapping_room *mapping_room_free(struct mapping_room *room)
{
	struct mapping_share *share, *next;

	if (!room)
		return NULL;
	HASH_ITER (hh, room->shares, share, next) {
		HASH_DEL(room->shares, share);
		free(share);
	}
	range_alloc_free(room->places);
	free(room);
	return NULL;
}

static struct mapping_share *find_share(const struct mapping_room *room, uint64_t cgroup)
{
	struct mapping_share *share;

	HASH_FIND(hh, room->shares, &cgroup, sizeof(cgroup), share);
	return share;
}

static struct mapping_share *get_share(struct mapping_room *room, uint64_t cgroup)
{
	struct mapping_share *share = find_share(room, cgroup);

	if (share)
		return share;
	share = calloc(1, sizeof(*share));
	if (!share)
		return NULL;
	share->cgroup = cgroup;
	HASH_ADD(hh, room->shares, cgroup, sizeof(share->cgroup), share);
	return share;
}

static void drop_if_empty(struct mapping_room *room, struct mapping_share *share)
{
	if (share->n)
		return;
	HASH_DEL(room->shares, share);
	free(share);
}

/*
 * Must the cgroup leave the free places to others? Memory that tables have taken does not count as
 * room for mappings, because tables in use are not evicted.
 */
static bool is_over_share(const struct mapping_room *room, const struct mapping_share *share)
{
	uint32_t used = range_alloc_used(room->places),
		 capacity = room->slab ? slab_capacity(room->slab) : room->n_places;

	/* Processes whose cgroup is not known have one share, which is not limited. */
	return share->cgroup && used > capacity / 2 && share->n > used / 2;
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

/* Allocates N places and backs them. */
static int allocate(struct mapping_room *room, uint32_t n, uint64_t now_ms, uint32_t *ret)
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

int mapping_room_get(struct mapping_room *room, uint64_t cgroup, uint32_t n, uint64_t now_ms,
		     uint32_t *ret)
{
	struct mapping_share *share = get_share(room, cgroup);
	int r;

	if (!share)
		return -ENOMEM;
	r = is_over_share(room, share) ? -ENOSPC : allocate(room, n, now_ms, ret);
	if (!r)
		share->n += n;
	drop_if_empty(room, share);
	return r;
}

void mapping_room_put(struct mapping_room *room, uint64_t cgroup, uint32_t at, uint32_t n,
		      uint64_t now_ms)
{
	struct mapping_share *share = find_share(room, cgroup);

	range_alloc_put(room->places, at, n, now_ms);
	if (!share)
		return; /* N is 0, and it has no other places */
	share->n -= n;
	drop_if_empty(room, share);
}

void mapping_room_trim(struct mapping_room *room, uint64_t now_ms)
{
	slab_trim(room->slab, room->places, now_ms, TRIM_MAX);
}
