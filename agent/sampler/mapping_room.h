/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct mapping_room: who has which places of the kernel's mappings (kernel_memory.h). Owned by
 * the loop thread.
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
 * *RET is the first of N places, which are backed with memory. -ENOSPC: no places, or no memory for
 * them; -ENOMEM. When memory is the reason, unused tables are evicted, and a call after
 * RANGE_REST_MS finds their memory.
 */
int mapping_room_get(struct mapping_room *room, uint32_t n, uint64_t now_ms,
		     uint32_t *ret) _must_check_;
void mapping_room_put(struct mapping_room *room, uint32_t at, uint32_t n, uint64_t now_ms);
/* Gives back memory that no places use. */
void mapping_room_trim(struct mapping_room *room, uint64_t now_ms);
