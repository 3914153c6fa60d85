/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent/runtime/ruby/walker.h compiled for the host, over any struct target_memory. It walks Ruby's
 * own frames only: native frames of vm_exec_core() and rb_vm_exec() take turns.
 */
#pragma once

#include "agent/runtime/ruby/ruby.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#define KILN_WALKER ruby_walk
#include "bpf/unwind.h"

#include "tests/unit/agent/runtime/host_text_calls.h"

#include "agent/runtime/ruby/walker.h"
#pragma GCC diagnostic pop

#include "tests/unit/agent/runtime/host_env.h"
#include "tests/unit/agent/runtime/host_text.h"

/*
 * Puts the walk into a native frame that has made a call: of rb_vm_exec() if EXEC, else of
 * vm_exec_core().
 */
static void host_stand(bool exec)
{
	const struct kiln_ruby *r = (const struct kiln_ruby *)host.walk.runtime.data;
	struct kiln_walk *w = &host.walk;

	w->regs.pc = exec ? r->exec_start + 2 : r->loop_start + r->loop_prologue + 2;
	w->exact = 0;
	w->leaf_valid = 0;
	/* One mapping covers all addresses. */
	w->map_start = 0;
	w->map_end = UINT64_MAX;
	w->map_image = 1;
}

static void host_begin(const struct target_memory *memory, const struct kiln_runtime *runtime,
		       uint64_t thread)
{
	struct kiln_walk *w = &host.walk;

	memset(w, 0, sizeof(*w));
	host.memory = memory;
	host.reads = 0;
	sent.n_texts = 0;
	w->runtimes = ~0U;
	w->mapset = 1;
	w->thread_pointer = thread;
	w->runtime = *runtime;
	walk_begin(w, 0, KILN_MAX_USER_FRAMES);
	w->runtime_id = KILN_RUNTIME_RUBY;
}

/*
 * The Ruby frames of the thread at THREAD: two words each, in host.words. Returns the number of
 * words; a KILN_FRAME_MISSING is one.
 */
static inline uint32_t host_walk(const struct target_memory *memory,
				 const struct kiln_runtime *runtime, uint64_t thread)
{
	struct kiln_walk *w = &host.walk;

	host_begin(memory, runtime, thread);
	for (int i = 0; i < 2 * KILN_MAX_USER_FRAMES; i++) {
		uint32_t n = w->n;

		host_stand(false);
		(void)ruby_walk(0);
		host_stand(true);
		(void)ruby_walk(0);
		if (w->n == n || w->full)
			break;
	}
	return w->n;
}
