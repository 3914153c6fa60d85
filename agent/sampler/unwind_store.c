/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel reads `tables` and the slab while we write. A table is written first and its entry
 * published last, block count at the very end; a table that goes has its entry cleared first, then
 * the rule caches are made void by a new epoch, and its room rests before it is used again
 * (range_alloc.h). Slot 0 of `tables` means "no file", slot 1 one whose content is not known yet;
 * the slab's first slot holds built-in rules.
 */
#include "agent/sampler/unwind_store.h"

#include "agent/sampler/slab.h"
#include "lib/metrics.h"
#include "lib/uthash.h"

enum { FIRST_SLOT = UNWIND_SLOT_UNKNOWN + 1 };

/* One file's table. Files of equal content (an image layer of many containers) share one. */
struct slot {
	uint32_t users; /* images; 0: free */
	bool is_shared; /* it is in by_content */
	struct image_content content;
	enum unwind_state state;
	uint32_t at, n; /* in the slab, 64-byte units */
	uint64_t used_ms;
	uint64_t code_bytes;
	UT_hash_handle hh;
};

struct unwind_store {
	struct kernel_memory memory;
	struct range_alloc *room;
	struct slot slots[KILN_MAX_IMAGES];
	struct slot *by_content;
	uint32_t next; /* where the search for a free slot begins */
	uint32_t taken;
	uint32_t loaded;
};

int unwind_store_new(const struct kernel_memory *memory, struct unwind_store **ret)
{
	_cleanup_(unwind_store_freep) struct unwind_store *s = calloc(1, sizeof(*s));
	struct kiln_rule *builtin = (struct kiln_rule *)memory->slab;
	uint32_t at;
	int r;

	if (!s)
		return -ENOMEM;
	s->memory = *memory;
	s->next = FIRST_SLOT;
	/* The built-in rules are never freed, so the first shard stays. */
	r = range_alloc_new(0, memory->slab_slots, &s->room);
	if (!r)
		r = range_alloc_get(s->room, 1, 0, &at);
	if (!r)
		r = slab_back(memory->slab_shards, at, 1);
	if (r < 0)
		return r;
	builtin[KILN_BUILTIN_INVALID] = (struct kiln_rule){.kind = KILN_RULE_INVALID};
	builtin[KILN_BUILTIN_FP] =
	    (struct kiln_rule){.kind = KILN_RULE_FP, .flags = KILN_RULE_GUESS};
	*ret = TAKE_PTR(s);
	return 0;
}

struct unwind_store *unwind_store_free(struct unwind_store *s)
{
	if (!s)
		return NULL;
	HASH_CLEAR(hh, s->by_content);
	range_alloc_free(s->room);
	free(s);
	return NULL;
}

/* The slot of IMAGE; NULL when it has none, or UNWIND_SLOT_UNKNOWN. */
static struct slot *slot_of(const struct unwind_store *s, const struct stored_image *image)
{
	return image->slot >= FIRST_SLOT ? (struct slot *)&s->slots[image->slot] : NULL;
}

static struct slot *free_slot(struct unwind_store *s)
{
	if (s->taken == KILN_MAX_IMAGES - FIRST_SLOT)
		return NULL;
	while (s->slots[s->next].users)
		s->next = s->next + 1 < KILN_MAX_IMAGES ? s->next + 1 : FIRST_SLOT;
	s->taken++;
	s->slots[s->next] = (struct slot){};
	return &s->slots[s->next];
}

void unwind_store_expect(struct unwind_store *s, struct stored_image *image)
{
	if (!image->slot)
		image->slot = UNWIND_SLOT_UNKNOWN;
}

int unwind_store_add(struct unwind_store *s, struct stored_image *image)
{
	const struct image_content *content = image->image ? image_content(image->image) : NULL;
	struct slot *slot = NULL;

	if (slot_of(s, image))
		return 0;
	if (content)
		HASH_FIND(hh, s->by_content, content, sizeof(*content), slot);
	if (!slot) {
		slot = free_slot(s);
		if (!slot)
			return -ENOSPC;
		if (content) {
			slot->is_shared = true;
			slot->content = *content;
			HASH_ADD(hh, s->by_content, content, sizeof(slot->content), slot);
		}
	}
	slot->users++;
	image->slot = (uint32_t)(slot - s->slots);
	return 0;
}

static void unload(struct unwind_store *s, struct slot *slot, uint64_t now_ms)
{
	struct kiln_table *table = &s->memory.tables[slot - s->slots];

	if (slot->state != UNWIND_LOADED)
		return;
	__atomic_store_n(&table->blocks, 0, __ATOMIC_RELEASE);
	__atomic_fetch_add(s->memory.cache_epoch, 1, __ATOMIC_RELEASE);
	range_alloc_put(s->room, slot->at, slot->n, now_ms);
	slot->state = UNWIND_NONE;
	s->loaded--;
}

void unwind_store_remove(struct unwind_store *s, struct stored_image *image, uint64_t now_ms)
{
	struct slot *slot = slot_of(s, image);

	image->slot = 0;
	if (!slot || --slot->users)
		return;
	unload(s, slot, now_ms);
	if (slot->is_shared)
		HASH_DEL(s->by_content, slot);
	s->taken--;
	*slot = (struct slot){};
}

enum unwind_state unwind_store_state(const struct unwind_store *s, const struct stored_image *image,
				     uint64_t now_ms)
{
	const struct slot *slot = slot_of(s, image);

	if (!image->slot)
		return UNWIND_FAILED;
	if (!slot)
		return (enum unwind_state)image->unwind_state;
	if (slot->state == UNWIND_REFUSED && now_ms >= slot->used_ms + UNWIND_PATIENCE_MS)
		return UNWIND_NONE;
	return slot->state;
}

void unwind_store_set_state(struct unwind_store *s, struct stored_image *image,
			    enum unwind_state state)
{
	struct slot *slot = slot_of(s, image);

	if (slot)
		slot->state = state;
	else
		image->unwind_state = (int)state;
}

void unwind_store_touch(struct unwind_store *s, struct stored_image *image, uint64_t now_ms)
{
	struct slot *slot = slot_of(s, image);

	if (slot)
		slot->used_ms = now_ms;
}

/* Unloads the table that was not used for the longest time. False when all are in use. */
static bool evict_oldest(struct unwind_store *s, uint64_t now_ms)
{
	struct slot *oldest = NULL;

	for (uint32_t i = FIRST_SLOT; i < KILN_MAX_IMAGES; i++) {
		struct slot *slot = &s->slots[i];

		if (slot->users && slot->state == UNWIND_LOADED &&
		    (!oldest || slot->used_ms < oldest->used_ms))
			oldest = slot;
	}
	if (!oldest || now_ms < oldest->used_ms + UNWIND_KEEP_MS)
		return false;
	unload(s, oldest, now_ms);
	metric_add(M_UNWIND_EVICTIONS, 1);
	return true;
}

void unwind_store_evict_unused(struct unwind_store *s, uint64_t now_ms)
{
	while (evict_oldest(s, now_ms))
		;
}

/* Does SLOT have a table of which a part is in SHARD, of UNITS slots? */
static bool is_in_shard(const struct slot *slot, uint32_t shard, uint32_t units)
{
	return slot->users && slot->state == UNWIND_LOADED && slot->at / units <= shard &&
	       (slot->at + slot->n - 1) / units >= shard;
}

/* Sets USED_MS of each shard to the time of the last use of its tables; 0: it has no table. */
static void read_shard_use(const struct unwind_store *s, uint32_t units, uint64_t *used_ms)
{
	for (uint32_t i = FIRST_SLOT; i < KILN_MAX_IMAGES; i++) {
		const struct slot *slot = &s->slots[i];

		for (uint32_t shard = slot->at / units; is_in_shard(slot, shard, units); shard++)
			used_ms[shard] = MAX(used_ms[shard], MAX(slot->used_ms, 1ULL));
	}
}

bool unwind_store_evict_shard(struct unwind_store *s, uint64_t now_ms)
{
	const struct slab *slab = s->memory.slab_shards;
	uint32_t units = slab ? slab_shard_units(slab) : 0, oldest = 0,
		 n_shards = slab ? slab_units(slab) / units : 0;
	_cleanup_free_ uint64_t *used_ms = calloc(MAX(n_shards, 1U), sizeof(*used_ms));

	if (!slab || !used_ms)
		return false;
	read_shard_use(s, units, used_ms);
	/* The first shard stays: it has the built-in rules. */
	for (uint32_t i = 1; i < n_shards; i++)
		if (slab_is_backed(slab, i * units) && (!oldest || used_ms[i] < used_ms[oldest]))
			oldest = i;
	if (!oldest || (used_ms[oldest] && now_ms < used_ms[oldest] + UNWIND_KEEP_MS))
		return false;
	for (uint32_t i = FIRST_SLOT; i < KILN_MAX_IMAGES; i++) {
		if (!is_in_shard(&s->slots[i], oldest, units))
			continue;
		unload(s, &s->slots[i], now_ms);
		metric_add(M_UNWIND_EVICTIONS, 1);
	}
	return true;
}

void unwind_store_trim(struct unwind_store *s, uint64_t now_ms)
{
	slab_trim(s->memory.slab_shards, s->room, now_ms, UNWIND_TRIM_MAX);
}

/* Allocates N units of the slab and backs them with memory. */
static int get_room(struct unwind_store *s, uint32_t n, uint64_t now_ms, uint32_t *ret)
{
	uint32_t at;
	int r = range_alloc_get(s->room, n, now_ms, &at);

	if (r < 0)
		return r;
	r = slab_back(s->memory.slab_shards, at, n);
	if (r < 0) {
		/* Removing shards that are free elsewhere may make room in the budget. */
		unwind_store_trim(s, now_ms);
		r = slab_back(s->memory.slab_shards, at, n);
	}
	if (r < 0) {
		range_alloc_cancel(s->room, at, n);
		return r;
	}
	*ret = at;
	return 0;
}

int unwind_store_load(struct unwind_store *s, struct stored_image *image,
		      const struct unwind_table *table, uint64_t now_ms)
{
	struct slot *slot = slot_of(s, image);
	uint32_t index_words = table->blocks + 1, row_words = table->n_rows,
		 rules_at = (uint32_t)ALIGN_UP((size_t)index_words + row_words, 4),
		 words = rules_at + table->n_rules * 4,
		 n = (words + KILN_SLOT_BYTES / 4 - 1) / (KILN_SLOT_BYTES / 4), at;
	struct kiln_table *entry;
	uint32_t *to;
	int r;

	if (!slot)
		return -EINVAL;
	unload(s, slot, now_ms);
	if (n > s->memory.slab_slots - 1) {
		slot->state = UNWIND_FAILED;
		return -ENOSPC;
	}
	while ((r = get_room(s, n, now_ms, &at)) < 0) {
		/* Room that was freed just now has to rest first. */
		if (range_alloc_resting(s->room) && range_alloc_spare(s->room) >= n)
			return -EAGAIN;
		if (!evict_oldest(s, now_ms))
			break;
	}
	if (r < 0) {
		slot->state = UNWIND_REFUSED;
		slot->used_ms = now_ms;
		return r;
	}
	to = s->memory.slab + (size_t)at * (KILN_SLOT_BYTES / 4);
	memcpy(to, table->index, index_words * sizeof(uint32_t));
	memcpy(to + index_words, table->rows, row_words * sizeof(uint32_t));
	memcpy(to + rules_at, table->rules, table->n_rules * sizeof(struct kiln_rule));
	entry = &s->memory.tables[image->slot];
	entry->base = table->base;
	entry->index_at = at * (KILN_SLOT_BYTES / 4);
	entry->rows_at = entry->index_at + index_words;
	entry->rows = table->n_rows;
	entry->rules_at = entry->index_at + rules_at;
	entry->rules = table->n_rules;
	__atomic_store_n(&entry->blocks, table->blocks, __ATOMIC_RELEASE);
	slot->at = at;
	slot->n = n;
	slot->used_ms = now_ms;
	slot->state = UNWIND_LOADED;
	s->loaded++;
	return 0;
}

bool unwind_store_view(const struct unwind_store *s, const struct stored_image *image,
		       struct unwind_table *ret)
{
	const struct kiln_table *t = &s->memory.tables[image->slot];
	const struct slot *slot = slot_of(s, image);

	if (!slot || slot->state != UNWIND_LOADED)
		return false;
	*ret = (struct unwind_table){
	    .base = t->base,
	    .index = s->memory.slab + t->index_at,
	    .blocks = t->blocks,
	    .rows = (struct kiln_row *)(s->memory.slab + t->rows_at),
	    .n_rows = t->rows,
	    .rules = (struct kiln_rule *)(s->memory.slab + t->rules_at),
	    .n_rules = t->rules,
	};
	return true;
}

uint64_t *unwind_store_code_bytes(struct unwind_store *s, const struct stored_image *image)
{
	struct slot *slot = slot_of(s, image);

	return slot ? &slot->code_bytes : NULL;
}

uint32_t unwind_store_loaded(const struct unwind_store *s)
{
	return s->loaded;
}

size_t unwind_store_bytes(const struct unwind_store *s)
{
	return (size_t)range_alloc_used(s->room) * KILN_SLOT_BYTES;
}
