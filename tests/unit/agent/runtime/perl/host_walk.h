/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent/runtime/perl/walker.h compiled for the host, over any struct target_memory. It walks Perl's
 * own frames only: each call of the walker stands for one more native frame of the loop of ops.
 */
#pragma once

#include "agent/runtime/perl/perl.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#define KILN_WALKER perl_walk
#include "bpf/unwind.h"

#include "tests/unit/agent/runtime/host_text_calls.h"
#include "agent/runtime/perl/walker.h"
#pragma GCC diagnostic pop

#include "tests/unit/agent/runtime/host_env.h"
#include "tests/unit/agent/runtime/host_text.h"

/* Where each group of the walker's frames ends. */
static struct {
	uint32_t ends[KILN_MAX_USER_FRAMES]; /* in words */
	size_t n;
} groups;

/*
 * The Perl frames of the interpreter whose state is at STATE: two words each, in host.words.
 * Returns the number of words; a KILN_FRAME_MISSING is one.
 */
static uint32_t host_walk(const struct target_memory *memory, const struct kiln_runtime *runtime,
			  uint64_t state)
{
	struct kiln_walk *w = &host.walk;

	memset(w, 0, sizeof(*w));
	host.memory = memory;
	host.reads = 0;
	sent.n_texts = groups.n = 0;
	w->runtimes = ~0U;
	w->mapset = 1;
	w->runtime = *runtime;
	w->regs.extra = state;
	walk_begin(w, 0, KILN_MAX_USER_FRAMES);
	w->runtime_id = KILN_RUNTIME_PERL;
	while (groups.n < KILN_MAX_USER_FRAMES) {
		(void)perl_walk(0);
		groups.ends[groups.n++] = w->n;
		if (perl_has(w, PERL_OVER) || w->full || !w->cursor.words[PERL_BASE])
			break;
	}
	return w->n;
}
