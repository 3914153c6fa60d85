/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct profiled: the sampler and the stores that feed it, without the window and what follows it.
 * It does at once and in the caller's thread what the window does for the agent. For tests and
 * measurements of the kernel side alone. One thread.
 */
#pragma once

#include "agent/discovery/process_reader.h"
#include "agent/sampler/mapset.h"
#include "agent/sampler/sampler.h"

struct profiled {
	struct sampler *sampler;
	struct image_store *images;
	struct unwind_store *unwind;
	struct mapset_store *mapsets;
	int proc_dirfd;
};

int profiled_new(const struct sampler_options *options, struct profiled **ret,
		 struct error *err) _must_check_;
struct profiled *profiled_free(struct profiled *p);
DEFINE_CLEANUP(struct profiled *, profiled_free)

/* Reads the mappings of the process of RECORD and gives them to the kernel. */
int profiled_learn(struct profiled *p, const struct kiln_sample *record,
		   struct mapset **ret) _must_check_;
/* Reads its mappings again and compares them with OLD: see mapset_store_check(). */
int profiled_check(struct profiled *p, const struct kiln_sample *record, struct mapset *old,
		   struct mapset **ret) _must_check_;
/* Compiles the table of IMAGE and loads it into the kernel; replaces a table that is there. */
int profiled_load(struct profiled *p, struct stored_image *image, struct error *err) _must_check_;
/*
 * profiled_load() for each image of M. Skips an image without a table. Returns the number of loaded
 * ones.
 */
int profiled_load_all(struct profiled *p, const struct mapset *m);

/* CLOCK_MONOTONIC */
uint64_t profiled_now_ns(void);
