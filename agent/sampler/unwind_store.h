/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct unwind_store: which images have their unwind table in the kernel. Images of equal content
 * (content.h) share a slot, by whose number BPF refers to them. An image that a process maps has
 * the slot UNWIND_SLOT_UNKNOWN until some sample needs its table and its content was read; the
 * table is copied into the slab then. When the slab is full, tables that were not used for the
 * longest time go first. Owned by the loop thread.
 */
#pragma once

#include "agent/elf/content.h"
#include "agent/elf/unwind.h"
#include "agent/process/image_store.h"
#include "agent/sampler/kernel_memory.h"
#include "agent/sampler/range_alloc.h"

enum {
	UNWIND_SLOT_UNKNOWN = 1,   /* never has a table: walks end with KILN_END_NO_TABLE */
	UNWIND_KEEP_MS = 10000,	   /* a table that was used so lately is not evicted */
	UNWIND_PATIENCE_MS = 5000, /* a refused table is not compiled again earlier */
	UNWIND_TRIM_MAX = 2, /* shards that one trim gives back; each waits some milliseconds */
};

enum unwind_state {
	UNWIND_NONE,   /* not asked for yet */
	UNWIND_WANTED, /* being compiled */
	UNWIND_LOADED,
	UNWIND_REFUSED, /* tables in use take all room: tried again after UNWIND_PATIENCE_MS */
	UNWIND_FAILED,	/* cannot be compiled or does not fit: not tried again */
};

struct unwind_store;
int unwind_store_new(const struct kernel_memory *memory, struct unwind_store **ret) _must_check_;
struct unwind_store *unwind_store_free(struct unwind_store *s);
DEFINE_CLEANUP(struct unwind_store *, unwind_store_free)

/* Gives IMAGE, which has code, the slot UNWIND_SLOT_UNKNOWN unless it has a slot already. */
void unwind_store_expect(struct unwind_store *s, struct stored_image *image);
/*
 * Gives IMAGE the slot of its content, or one of its own when its content is not known. That is not
 * changed when its content becomes known later. -ENOSPC when all are taken.
 */
int unwind_store_add(struct unwind_store *s, struct stored_image *image) _must_check_;
/* IMAGE leaves: its table and slot are free for others. */
void unwind_store_remove(struct unwind_store *s, struct stored_image *image, uint64_t now_ms);

enum unwind_state unwind_store_state(const struct unwind_store *s, const struct stored_image *image,
				     uint64_t now_ms);
void unwind_store_set_state(struct unwind_store *s, struct stored_image *image,
			    enum unwind_state state);
/*
 * Copies TABLE into the slab; evicts others when it must. -EAGAIN: room was made, but has to rest
 * for RANGE_REST_MS, call again. -ENOSPC: refused or failed, see the state.
 */
int unwind_store_load(struct unwind_store *s, struct stored_image *image,
		      const struct unwind_table *table, uint64_t now_ms) _must_check_;
/*
 * IMAGE's table as it lies in the slab: *RET points there, and holds until the next call that
 * changes the store. False: none is loaded.
 */
bool unwind_store_view(const struct unwind_store *s, const struct stored_image *image,
		       struct unwind_table *ret);
/*
 * The counter of the bytes of IMAGE's code that were read where samples met them (code_places.h);
 * NULL when IMAGE has no slot.
 */
uint64_t *unwind_store_code_bytes(struct unwind_store *s, const struct stored_image *image);
/* IMAGE's table was used by a sample. */
void unwind_store_touch(struct unwind_store *s, struct stored_image *image, uint64_t now_ms);

/* Memory is short: unloads the tables that were not used for UNWIND_KEEP_MS. */
void unwind_store_evict_unused(struct unwind_store *s, uint64_t now_ms);
/*
 * Mappings need memory that tables have: of the shards whose tables were all not used for
 * UNWIND_KEEP_MS, empties the one that was not used for the longest time. Its room has to rest for
 * RANGE_REST_MS, then unwind_store_trim() gives its memory back. Does nothing while another shard
 * without tables waits for that. False: each shard has a table in use.
 */
bool unwind_store_evict_shard(struct unwind_store *s, uint64_t now_ms);
/* Gives back memory of the slab that no table uses. */
void unwind_store_trim(struct unwind_store *s, uint64_t now_ms);

uint32_t unwind_store_loaded(const struct unwind_store *s); /* tables */
size_t unwind_store_bytes(const struct unwind_store *s);
