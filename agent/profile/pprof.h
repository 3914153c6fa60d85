/* SPDX-License-Identifier: Apache-2.0 */
/* pprof encoder (google/pprof proto/profile.proto): batches -> one gzipped profile. */
#pragma once

#include "agent/profile/batch.h"
#include "lib/buf.h"
#include "lib/error.h"

/* Which samples go in. Zero-initialised: all CPU samples. */
struct pprof_filter {
	uint32_t pid; /* 0: all */
};

/*
 * Gzipped pprof of CPU samples: sample types samples/count and cpu/nanoseconds, labels pid, thread
 * (tid), thread_name, process, container_id; comment lines for the resource; default type cpu.
 */
int pprof_encode(const struct batch *const *batches, size_t n, const struct pprof_filter *filter,
		 struct buf *out, struct error *err) _must_check_;
