/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct slab: a flat array that user space fills and BPF programs read, backed by memory only
 * where it is used. In the kernel an array of maps (bpf/maps.h), whose inner arrays are the shards;
 * in user space one range of addresses, into which the shards that exist are mapped. Units are the
 * elements that user space counts in (64-byte slots, mappings). Owned by the loop thread.
 */
#pragma once

#include "agent/sampler/range_alloc.h"

struct slab;

struct slab_shape {
	uint32_t element_bytes;	 /* value size of the inner arrays */
	uint32_t shard_elements; /* their max_entries */
	uint32_t unit_bytes;	 /* divides element_bytes */
	uint32_t units;		 /* of the whole slab; rounded up to whole shards */
	bool leaves_reserve;	 /* takes no memory of its budget's reserve */
};

/*
 * The memory that several slabs may take together. Outlives them. The last eighth of the limit is a
 * reserve for the slabs whose shape does not have `leaves_reserve`.
 */
struct slab_budget {
	size_t limit, used; /* bytes; a limit below what is used takes nothing away */
};

/* The shards of a slab of this shape: the max_entries that its array of maps needs. */
uint32_t slab_shards(const struct slab_shape *shape);
/*
 * OUTER_FD: the array of maps, as loaded; it must have room for all shards. The slab uses it but
 * does not own it. BUDGET: NULL for none.
 */
int slab_new(int outer_fd, const struct slab_shape *shape, struct slab_budget *budget,
	     struct slab **ret) _must_check_;
struct slab *slab_free(struct slab *s);
DEFINE_CLEANUP(struct slab *, slab_free)

/* Where unit 0 is. Only units that are backed may be touched. */
void *slab_memory(const struct slab *s);
uint32_t slab_units(const struct slab *s);
uint32_t slab_shard_units(const struct slab *s);
/*
 * Backs units [AT, AT + N) with memory, zeroed where it is new. Waits for one RCU grace period
 * (about 12 ms) for all new shards together; before Linux 6.8, for one for each shard. -ENOSPC:
 * beyond the slab or what it may take of its budget; -ENOMEM. A NULL slab is plain memory: always
 * backed.
 */
int slab_back(struct slab *s, uint32_t at, uint32_t n) _must_check_;
/* The units that can have memory: those that have it, and those for which the budget has some. */
uint32_t slab_capacity(const struct slab *s);
bool slab_is_backed(const struct slab *s, uint32_t unit);
/* Gives back the memory of shards in which ROOM has nothing but free units; at most MAX of them. */
void slab_trim(struct slab *s, struct range_alloc *room, uint64_t now_ms, uint32_t max);
/* The memory of the shards that exist. */
size_t slab_bytes(const struct slab *s);
