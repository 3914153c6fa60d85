/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct table_compiler: makes the unwind tables of images in the thread pool, marks the code of
 * runtimes in them, and loads them into the slab that the kernel reads. Large files are compiled
 * one at a time, because each makes tens of MiB resident. Owned by the loop thread.
 */
#pragma once

#include <uv.h>

#include "agent/runtime/runtimes.h"
#include "agent/sampler/unwind_store.h"

struct table_compiler_options {
	uv_loop_t *loop;
	struct image_store *images;
	struct unwind_store *unwind;
	struct runtimes *runtimes; /* is told what runtime a file is, before its table is loaded */
	uint32_t tracers;	   /* the runtimes that files are probed for */
	/* Slots of images have changed: update them in the kernel's mappings. */
	void (*renumber)(void *arg);
	/*
	 * The table of IMAGE (use only its address), and of all images with this slot of the unwind
	 * store, is loaded, will not be made, or can be requested: samples that wait may be tried
	 * again.
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

/* Starts to make the table of IMAGE, unless it is there or under way. False: it cannot be made. */
bool table_compiler_want(struct table_compiler *c, struct stored_image *image);
/* To be called regularly: loads tables that had to wait for room in the slab. */
void table_compiler_tick(struct table_compiler *c);
/* Starts no more jobs; those under way end soon. */
void table_compiler_stop(struct table_compiler *c);
bool table_compiler_busy(const struct table_compiler *c);
