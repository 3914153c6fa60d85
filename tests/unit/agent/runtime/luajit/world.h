/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process as it was at one moment, as far as a walk through it read. Filled from a live process
 * by record_luajit, replayed by test_luajit_recorded.
 */
#pragma once

#include "agent/runtime/luajit/luajit.h"
#include "tests/unit/agent/runtime/recorded_walk.h"

struct world {
	struct world_facts {
		struct kiln_luajit kernel; /* by addresses of the process */
	} facts;
	struct recorded_walk walk;
};

struct world *world_new(void);
struct world *world_free(struct world *w);
DEFINE_CLEANUP(struct world *, world_free)
/* Walks from the leaf on and names the frames, a line each: "NAME FILE:LINE", or "native". */
void world_stack(struct world *w, char *out, size_t size);
int world_save(const struct world *w, const char *path);
int world_load(const char *path, struct world **ret);
int world_parse(FILE *f, struct world **ret); /* takes NULL */
