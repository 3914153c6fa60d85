/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds a thread-local variable (_Thread_local) in files whose symbols do not tell where it is: by
 * the code of a function that reads it. Any thread.
 */
#pragma once

#include "agent/runtime/runtime.h"

enum thread_variable_kind {
	THREAD_VARIABLE_NONE,
	THREAD_VARIABLE_STATIC, /* at a distance from the thread pointer */
	/* In the TLS block of a module; the process has {module, offset}. */
	THREAD_VARIABLE_MODULE,
	THREAD_VARIABLE_INDIRECT,   /* at a distance from the thread pointer that the process has */
	THREAD_VARIABLE_DESCRIPTOR, /* where a TLS descriptor in the process tells */
};

struct thread_variable {
	enum thread_variable_kind kind;
	/* An ELF virtual address. MODULE: of {module id, offset}; INDIRECT: of the offset;
	 * DESCRIPTOR: of {function, argument}. */
	uint64_t slot;
	int64_t offset; /* STATIC: from the thread pointer */
};

/* Where a thread of one process has the variable. */
struct thread_variable_place {
	uint32_t module; /* 0: OFFSET is from the thread pointer, else from the module's block */
	uint32_t shift;	 /* log2 of the size of an entry in the vector of TLS blocks */
	int64_t offset;
};

/*
 * Finds the variable that the function at GETTER (ELF virtual address) reads first. RET is
 * untouched if the code tells none.
 */
void thread_variable_find(const struct image *image, uint64_t getter, struct thread_variable *ret);
/* Finds where the threads of TARGET have V. False: not known, or not set up yet. */
bool thread_variable_place(const struct thread_variable *v, const struct runtime_target *target,
			   struct thread_variable_place *ret);
