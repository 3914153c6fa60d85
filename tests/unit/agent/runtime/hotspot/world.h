/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process as it was at one moment, as far as a walk through it read. Filled from a live process
 * by record_hotspot, replayed by test_hotspot_recorded.
 */
#pragma once

#include "agent/runtime/hotspot/hotspot.h"
#include "tests/unit/agent/runtime/recorded_walk.h"

struct world {
	struct hotspot_process process; /* without pieces of code */
	struct recorded_walk walk;
	const uint64_t *words; /* what it found: n_words */
	uint32_t n_words;
};

struct world *world_new(void);
struct world *world_free(struct world *w);
DEFINE_CLEANUP(struct world *, world_free)
/* Walks from the leaf on. */
void world_walk(struct world *w);
/* The same, and names the frames, a line each: "NAME FILE:LINE", or "native". */
void world_stack(struct world *w, char *out, size_t size);
int world_save(const struct world *w, const char *path);
int world_read(FILE *f, struct world **ret);
int world_load(const char *path, struct world **ret);
