/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folded stacks, the input of flamegraph.pl, inferno and speedscope: one line a stack,
 * "process;root frame;...;leaf frame weight", of the samples of one kind. The weight of CPU samples
 * is their number; when their rates differ, the number that there would be at the highest rate. The
 * weight of other samples is their value.
 */
#pragma once

#include "agent/profile/batch.h"
#include "lib/buf.h"

/* Instead of a kind: CPU and off-CPU time, in ns. */
#define FOLDED_WALL PROFILE_KIND_COUNT

/*
 * Counts of all batches added. Memory is bounded: once the lines take MAX_BYTES, new stacks are
 * counted as "process;[profile full]". One thread at a time.
 */
struct folded;
int folded_new(size_t max_bytes, enum profile_kind kind, struct folded **ret) _must_check_;
struct folded *folded_free(struct folded *f);
int folded_add(struct folded *f, const struct batch *batch) _must_check_;
/* Appends all lines, sorted, so that equal profiles give equal files. */
int folded_write(const struct folded *f, struct buf *out) _must_check_;
void folded_reset(struct folded *f);
DEFINE_CLEANUP(struct folded *, folded_free)
