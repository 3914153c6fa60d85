/* SPDX-License-Identifier: Apache-2.0 */
/* The walk of Erlang's frames on the host, over any struct target_memory. */
#pragma once

#include "agent/runtime/beam/beam.h"

#define KILN_WALKER beam_walk
#include "bpf/unwind.h"
#include "agent/runtime/beam/walker.h"
#include "tests/unit/agent/runtime/host_env.h"

/* Begins a stack of a process of which KERNEL is known, and whose code is in [START, END). */
static inline void host_begin(const struct target_memory *memory, const struct kiln_beam *kernel,
			      uint64_t start, uint64_t end)
{
	struct kiln_walk *w = &host.walk;

	memset(w, 0, sizeof(*w));
	host.memory = memory;
	host.reads = 0;
	memcpy(w->runtime.data, kernel, sizeof(*kernel));
	w->runtime_id = KILN_RUNTIME_BEAM;
	w->map_start = start;
	w->map_end = end;
	w->map_flags = KILN_MAPPING_JIT | KILN_RUNTIME_BEAM << KILN_MAPPING_RUNTIME_SHIFT;
	walk_begin(w, 0, KILN_MAX_USER_FRAMES);
	w->runtime_id = KILN_RUNTIME_BEAM;
}
