/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent/runtime/php/walker.h compiled for the host, over any struct target_memory. It walks PHP's
 * own frames only: every native frame is one of the interpreter's loop.
 */
#pragma once

#include "agent/runtime/php/php.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#define KILN_WALKER php_walk
#include "bpf/unwind.h"

#include "agent/runtime/php/walker.h"
#pragma GCC diagnostic pop

#include "tests/unit/agent/runtime/host_env.h"

static void host_begin(const struct target_memory *memory, const struct kiln_runtime *runtime)
{
	struct kiln_walk *w = &host.walk;

	memset(w, 0, sizeof(*w));
	host.memory = memory;
	host.reads = 0;
	w->runtimes = ~0U;
	w->mapset = 1;
	w->runtime = *runtime;
	walk_begin(w, 0, KILN_MAX_USER_FRAMES);
	w->runtime_id = KILN_RUNTIME_PHP;
}

/* Calls php_walk() for a native frame at PC. */
static void host_visit(uint64_t pc)
{
	struct kiln_walk *w = &host.walk;

	w->regs.pc = pc;
	w->hide_native = w->stepped = 0;
	(void)php_walk(0);
}

/*
 * The PHP frames of a process: two words each, in host.words. Returns the number of words; a
 * KILN_FRAME_MISSING is one.
 */
static uint32_t host_walk(const struct target_memory *memory, const struct kiln_runtime *runtime)
{
	const struct kiln_php *k = (const struct kiln_php *)runtime->data;
	struct kiln_walk *w = &host.walk;

	host_begin(memory, runtime);
	/* Visits native frames until one adds no PHP frame. */
	for (int i = 0; i < 2 * KILN_MAX_USER_FRAMES; i++) {
		uint32_t n = w->n;

		host_visit(k->loop + k->entered + 64);
		if (w->n == n || w->full)
			break;
	}
	return w->n;
}
