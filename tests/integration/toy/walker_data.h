/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The toy language: what its interpreter (program.c) keeps in memory, and what the walker
 * (walker.h) and user space (toy.c) agree on.
 */
#pragma once

#include "bpf/types.h"

enum {
	TOY_ID = 28,	     /* as enum kiln_runtime_id: of no runtime of the agent */
	TOY_NAME_MAX = 24,   /* bytes, with the NUL */
	TOY_CALLS_MAX = 256, /* that the walker follows for one native frame */
};

/* A call that is under way. The newest is in the section toy_top; each has its caller's address. */
struct toy_call {
	uint64_t caller;   /* struct toy_call; 0: none */
	uint64_t function; /* struct toy_function */
	uint32_t line;
	uint32_t entered; /* not 0: its caller is native, and toy_run() has run since */
};

struct toy_function {
	char name[TOY_NAME_MAX];
};

/*
 * Code of the language that was compiled ahead of time: in the file of a program, behind its
 * segments. In the section toy_bundle; START is 0 as long as it is not mapped.
 */
struct toy_bundle {
	uint64_t start, end;
	uint64_t function; /* struct toy_function, whose code all of it is */
	uint64_t line;
};

/* A frame's words: the address of its toy_function; its line. */

/* What the walker has to know of a process. */
struct kiln_toy {
	uint64_t top; /* where the newest call's address is */
	struct toy_bundle bundle;
};
