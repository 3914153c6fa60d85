/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct mapping_room: who has which places of the kernel's mappings (kernel_memory.h). Places are
 * charged to a cgroup, so that one cgroup's processes cannot take them all. Owned by the loop
 * thread.
 */
#pragma once

#include "agent/sampler/kernel_memory.h"
#include "agent/sampler/unwind_store.h"

struct mapping_room;
/* UNWIND, which outlives the room, has the tables that share the memory limit with the places. */
int mapping_room_new(const struct kernel_memory *memory, struct unwind_store *unwind,
		     struct mapping_room **ret) _must_check_;
struct mapping_room *mapping_room_free(struct mapping_room *room);
DEFINE_CLEANUP(struct mapping_room *, mapping_room_free)

/*
 * Allocates N places for CGROUP (0: unknown, without a limit), backed with memory. *RET: the first
 * one. -ENOSPC: there are not enough places, there is no memory for them, or CGROUP is over its
 * share: more than half of the places that can have memory are used, and more than half of the used
 * ones are CGROUP's. Without memory, unused unwind tables are evicted first; a call RANGE_REST_MS
 * later can use their memory. -ENOMEM.
 */
int mapping_room_get(struct mapping_room *room, uint64_t cgroup, uint32_t n, uint64_t now_ms,
		     uint32_t *ret) _must_check_;
/* Frees N places that CGROUP got. */
void mapping_room_put(struct mapping_room *room, uint64_t cgroup, uint32_t at, uint32_t n,
		      uint64_t now_ms);
/* Gives back memory that no places use. */
void mapping_room_trim(struct mapping_room *room, uint64_t now_ms);
