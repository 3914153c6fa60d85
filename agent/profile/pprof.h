/* SPDX-License-Identifier: Apache-2.0 */
/* pprof encoder (google/pprof proto/profile.proto): batches -> one gzipped profile. */
#pragma once

#include "agent/profile/batch.h"
#include "lib/buf.h"
#include "lib/error.h"

/* Which samples go in. Zero-initialised: all. */
struct pprof_filter {
	uint32_t pid;	       /* 0: all */
	const char *container; /* id or its beginning; NULL or "": all */
};

/*
 * Gzipped pprof: sample types samples/count and cpu/nanoseconds, and off_cpu/nanoseconds or
 * PROBE/count, by the name of each probe, when there are such samples (each has its own values and
 * 0 for the others); labels pid, thread (tid, unless it is 0), thread_name, process, container_id;
 * a comment line with the attributes that all resources share; default type cpu.
 */
int pprof_encode(const struct batch *const *batches, size_t n, const struct pprof_filter *filter,
		 struct buf *out, struct error *err) _must_check_;

/*
 * The same, batch after batch: equal samples of all batches are one. Memory is bounded: once the
 * tables hold MAX_BYTES, samples of stacks (or threads) that are not known yet are counted under
 * the one frame "[profile full]", so that totals stay true. One thread at a time.
 */
struct pprof_builder;
int pprof_builder_new(size_t max_bytes, struct pprof_builder **ret) _must_check_;
struct pprof_builder *pprof_builder_free(struct pprof_builder *p);
/* On failure the builder keeps what it had, and parts of the batch. -ENOMEM, -E2BIG. */
int pprof_builder_add(struct pprof_builder *p, const struct batch *batch,
		      const struct pprof_filter *filter) _must_check_;
int pprof_builder_encode(struct pprof_builder *p, struct buf *out, struct error *err) _must_check_;
void pprof_builder_reset(struct pprof_builder *p);	       /* empties it */
int64_t pprof_builder_overflow(const struct pprof_builder *p); /* samples under "[profile full]" */
DEFINE_CLEANUP(struct pprof_builder *, pprof_builder_free)
