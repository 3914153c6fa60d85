/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct kernel_memory: the BPF maps that user space fills, as plain memory (mmapable arrays) and
 * small calls. A struct of its own so that the stores above it can be tested without a kernel.
 */
#pragma once

#include <stdatomic.h>

#include "bpf/types.h"
#include "lib/base.h"

struct slab;
struct walker_object;

struct kernel_memory {
	/* The slabs of unwind tables and of mappings. Only units that they back may be touched; if
	 * NULL, all units may. */
	struct slab *slab_shards, *mapping_shards;
	uint32_t *slab; /* unwind_slab: slab_slots * 16 words */
	uint32_t slab_slots;
	struct kiln_table *tables;     /* KILN_MAX_IMAGES */
	struct kiln_mapping *mappings; /* n_mappings */
	uint32_t n_mappings;
	uint32_t *cache_epoch; /* in the programs' .bss */
	/* `processes`. set_process() replaces an entry that exists; else -ENOENT: the process is
	 * gone. */
	int (*set_process)(void *arg, uint32_t tgid, const struct kiln_process *p);
	int (*get_process)(void *arg, uint32_t tgid, struct kiln_process *ret);
	/* `runtimes`; may be NULL in tests that have none. */
	int (*set_runtime)(void *arg, const struct kiln_runtime_key *key,
			   const struct kiln_runtime *runtime);
	void (*delete_runtime)(void *arg, const struct kiln_runtime_key *key);
	/* Requests that the walker of the runtime ID be loaded; may be NULL in tests, too. */
	void (*need_walker)(void *arg, uint32_t id, const struct walker_object *walker);
	/* Why the walker of the runtime ID could not be loaded; NULL when that has not failed. */
	const char *(*walker_failure)(void *arg, uint32_t id);
	void *arg;
};

/* A program that sees a write made after this call also sees all writes made before it. */
static inline void kernel_memory_publish(void)
{
	atomic_thread_fence(memory_order_release);
}
