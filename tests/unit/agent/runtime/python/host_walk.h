/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent/runtime/python/walker.h compiled for the host, over any struct target_memory. It walks
 * Python's own frames only; each native frame is taken to hold the structures that the walk asks
 * for.
 */
#pragma once

#include "agent/runtime/python/python.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#define KILN_WALKER python_walk
#include "bpf/unwind.h"

#include "agent/runtime/python/walker.h"
#pragma GCC diagnostic pop

#include "tests/unit/agent/runtime/host_env.h"

/*
 * The Python frames of the thread at THREAD: two words each, in host.words. Returns the number of
 * words; a KILN_FRAME_MISSING is one.
 */
static uint32_t host_walk(const struct target_memory *memory, const struct kiln_runtime *runtime,
			  uint64_t thread)
{
	struct kiln_walk *w = &host.walk;

	memset(w, 0, sizeof(*w));
	host.memory = memory;
	host.reads = 0;
	w->runtimes = ~0U;
	w->mapset = 1;
	w->thread_pointer = thread;
	w->runtime = *runtime;
	walk_begin(w, 0, KILN_MAX_USER_FRAMES);
	w->runtime_id = KILN_RUNTIME_PYTHON;
	/* Visits native frames until one adds no Python frame. */
	for (int i = 0; i < 2 * KILN_MAX_USER_FRAMES; i++) {
		uint32_t n = w->n;

		(void)python_walk(0);
		if (w->n == n || w->full)
			break;
	}
	return w->n;
}
