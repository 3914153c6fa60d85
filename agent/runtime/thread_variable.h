/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where one of a thread's own variables (_Thread_local) is, in files whose symbols do not tell: by
 * the code of a function that reads it. Any thread.
 */
#pragma once

#include "agent/runtime/runtime.h"

enum thread_variable_kind {
	THREAD_VARIABLE_NONE,
	THREAD_VARIABLE_STATIC,	    /* at a distance from the thread pointer */
	THREAD_VARIABLE_MODULE,	    /* in the block of a module, which the process knows */
	THREAD_VARIABLE_INDIRECT,   /* at a distance that the process knows */
	THREAD_VARIABLE_DESCRIPTOR, /* where a descriptor of the process tells */
};

struct thread_variable {
	enum thread_variable_kind kind;
	/* MODULE: of a module id and an offset; INDIRECT: of an offset; DESCRIPTOR: of a function
	 * and its argument. */
	uint64_t slot;
	int64_t offset; /* STATIC */
};

/* What a thread of one process finds the variable by. */
struct thread_variable_place {
	uint32_t module; /* 0: OFFSET is from the thread pointer, else from the module's block */
	uint32_t shift;	 /* log2 of an entry of the vector of blocks */
	int64_t offset;
};

/* The variable that the function at GETTER (ELF virtual address) reads first. */
void thread_variable_find(const struct image *image, uint64_t getter, struct thread_variable *ret);
/* False: not known, or not set up yet. */
bool thread_variable_place(const struct thread_variable *v, const struct runtime_target *target,
			   struct thread_variable_place *ret);
