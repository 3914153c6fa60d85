/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Naming: a finished window becomes a batch: frames get functions, files and lines, processes get
 * their resource. Runs in a worker thread, one window at a time; it owns the symbolizer.
 */
#pragma once

#include "agent/config/config.h"
#include "agent/profile/batch.h"
#include "agent/runtime/runtimes.h"
#include "agent/window/window.h"

struct naming;
/* CONFIG outlives it. */
int naming_new(const struct config *config, struct naming **ret, struct error *err) _must_check_;
struct naming *naming_free(struct naming *n);
DEFINE_CLEANUP(struct naming *, naming_free)

/* RT has the names of runtimes' frames, and must outlive N. Without it these frames have no
 * names. */
void naming_use_runtimes(struct naming *n, struct runtimes *rt);

/* Builds the batch from the counts whose route has a bit of WHOSE; 0: from all. */
int naming_build(struct naming *n, const struct window *w, uint64_t whose, uint64_t duration_ns,
		 struct batch **ret) _must_check_;
size_t naming_bytes(const struct naming *n);
