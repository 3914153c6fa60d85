/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The toy language: the structures of its interpreter (program.c) in memory, which the walker
 * (walker.h) and user space (toy.c) read.
 */
#pragma once

#include "bpf/types.h"

enum {
	TOY_ID = 28,	     /* an enum kiln_runtime_id that no runtime of the agent has */
	TOY_NAME_MAX = 24,   /* bytes, with the NUL */
	TOY_CALLS_MAX = 256, /* limit of calls that the walker follows for one native frame */
};

/* A call in progress. The section toy_top points to the newest; each points to its caller. */
struct toy_call {
	uint64_t caller;   /* struct toy_call; 0: none */
	uint64_t function; /* struct toy_function */
	uint32_t line;
	uint32_t entered; /* not 0: toy_run() was entered with this call, from native code */
};

struct toy_function {
	char name[TOY_NAME_MAX];
};

/*
 * Compiled code of the language, which is in the program's file behind its segments. This struct is
 * in the section toy_bundle. START is 0 until the code is mapped.
 */
struct toy_bundle {
	uint64_t start, end;
	uint64_t function; /* struct toy_function: all of the code is of this function */
	uint64_t line;
};

/* A frame's words: the address of its toy_function; its line. */

/* What the walker knows of a process. */
struct kiln_toy {
	uint64_t top; /* address of a pointer to the newest call */
	struct toy_bundle bundle;
};
