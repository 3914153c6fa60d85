/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process as it was at one moment, as far as a walk through it read: registers, memory, rules of
 * native frames. Filled from a live process by record_hotspot, replayed by test_hotspot_recorded.
 * The walk and the names ask for the same bytes each time, so a read is found by its address and
 * length.
 */
#pragma once

#include "agent/runtime/hotspot/hotspot.h"

enum {
	WORLD_READS_MAX = 1 << 14,
	WORLD_RULES_MAX = 512,
	WORLD_MAPS_MAX = 1024,
	WORLD_FRAMES = 128,
};

struct world_read {
	uint64_t address;
	uint32_t len;
	uint32_t at; /* in `bytes`; UINT32_MAX: it could not be read */
};

struct world_rule {
	uint64_t pc;
	struct kiln_rule rule;
	uint32_t known; /* 0: there is none */
	uint32_t end;	/* what the walk ends with then */
};

struct world {
	struct hotspot_process process; /* without pieces of code */
	uint64_t leaf[32];		/* by DWARF number */
	struct world_read reads[WORLD_READS_MAX];
	uint32_t n_reads;
	struct world_rule rules[WORLD_RULES_MAX];
	uint32_t n_rules;
	struct kiln_mapping maps[WORLD_MAPS_MAX];
	uint32_t n_maps;
	uint8_t *bytes;
	uint32_t n_bytes;
	int pid; /* live: reads and rules that are not there yet come from it; else 0 */
	/* Live: the rule for PC. 0, or an enum kiln_end. */
	int (*find_rule)(uint64_t pc, struct kiln_rule *ret);
	bool unread;	       /* the walk finds nothing of HotSpot in `runtimes` */
	uint32_t end;	       /* enum kiln_end of the last walk */
	const uint64_t *words; /* what it found: n_words */
	uint32_t n_words;
};

struct world *world_new(void);
struct world *world_free(struct world *w);
DEFINE_CLEANUP(struct world *, world_free)
/* As struct target_memory's. */
int world_memory(void *arg, uint64_t address, void *dst, size_t len);
/* From now on these bytes are at ADDRESS, in whatever was read. */
void world_put(struct world *w, uint64_t address, const void *src, size_t len);
/* Walks from the leaf on. */
void world_walk(struct world *w);
/* The same, and names the frames, a line each: "NAME FILE:LINE", or "native". */
void world_stack(struct world *w, char *out, size_t size);
int world_save(const struct world *w, const char *path);
int world_load(const char *path, struct world **ret);
