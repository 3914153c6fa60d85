/* SPDX-License-Identifier: Apache-2.0 */
/* Included by bpf/unwind.h in the place of the runtimes' own walkers. */
#pragma once

static void (*walker_of[KILN_RUNTIME_MAX])(struct kiln_walk *w);

static int python_walk(uint32_t slot)
{
	walker_of[KILN_RUNTIME_PYTHON](env_walk(slot));
	return 0;
}

static int v8_walk(uint32_t slot)
{
	walker_of[KILN_RUNTIME_V8](env_walk(slot));
	return 0;
}

static int v8_walk_native(uint32_t slot)
{
	return 0;
}
