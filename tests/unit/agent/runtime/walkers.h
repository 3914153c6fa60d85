/* SPDX-License-Identifier: Apache-2.0 */
/* A walker for bpf/unwind.h that is each runtime's own: walker_of[] by number. */
#pragma once

enum { FIRST = 1, SECOND = 2 }; /* enum kiln_runtime_id */

static void (*walker_of[KILN_RUNTIME_MAX])(struct kiln_walk *w);

static int test_walker(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);

	walker_of[w->runtime_id](w);
	return 0;
}
