/* SPDX-License-Identifier: Apache-2.0 */
/* Included by bpf/unwind.h in the place of the runtimes' own walkers. */
#pragma once

static void (*walker_of[KILN_RUNTIME_COUNT])(struct kiln_walk *w);

static int python_walk(struct kiln_walk *w)
{
	walker_of[KILN_RUNTIME_PYTHON](w);
	return 0;
}

static int v8_walk(struct kiln_walk *w)
{
	walker_of[KILN_RUNTIME_V8](w);
	return 0;
}

static int v8_walk_native(struct kiln_walk *w)
{
	return 0;
}
