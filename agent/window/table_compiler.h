/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct table_compiler: has the unwind tables of images made in the thread pool, runtimes' code in
 * them marked, and loads them into the slab that the kernel reads. Big files are compiled one at a
 * time, because each makes tens of MiB resident. Owned by the loop thread.
 */
#pragma once

#include <uv.h>

#include "agent/runtime/runtimes.h"
#include "agent/sampler/unwind_store.h"

struct table_compiler_options {
	uv_loop_t *loop;
	struct image_store *images;
	struct unwind_store *unwind;
	struct runtimes *runtimes; /* is told what a file is, before its table is loaded */
	uint32_t tracers;	   /* the runtimes that files are probed for */
	/* The slots of images have changed: the kernel's mappings must have them. */
	void (*renumber)(void *arg);
	/*
	 * The table of IMAGE (only its address), and of all that have this slot of the unwind
	 * store, is there, will not be, or can be asked for: samples that wait may be tried again.
	 */
	void (*changed)(const struct stored_image *image, uint32_t slot, void *arg);
	void *arg;
};

struct table_compiler;
int table_compiler_new(const struct table_compiler_options *options,
		       struct table_compiler **ret) _must_check_;
/* Only when it is not busy. */
struct table_compiler *table_compiler_free(struct table_compiler *c);
DEFINE_CLEANUP(struct table_compiler *, table_compiler_free)

/* Starts to make the table of IMAGE, unless it is there or under way. False: it never will be. */
bool table_compiler_want(struct table_compiler *c, struct stored_image *image);
/* Now and then: loads what had to wait for room in the slab. */
void table_compiler_tick(struct table_compiler *c);
/* No more is begun; what is under way ends soon. */
void table_compiler_stop(struct table_compiler *c);
bool table_compiler_busy(const struct table_compiler *c);
