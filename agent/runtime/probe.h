/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the runtimes in a file, and marks their code in its unwind table. Thread pool. */
#pragma once

#include "agent/elf/unwind.h"
#include "agent/runtime/runtime.h"

enum { RUNTIME_MAX = KILN_RUNTIME_MAX };

/* The runtimes that were found in a file, each at most once. */
struct runtime_probe {
	struct {
		const struct interpreter_ops *ops;
		struct runtime_image *image; /* NULL: the version is not supported */
		/* Why the version is not supported, to show; else "". */
		char why[160];
	} found[RUNTIME_MAX];
	size_t n;
};

/*
 * Calls probe() of the runtimes of TABLE whose bit (1 << id) is in TRACERS. Adds those found to
 * RET.
 */
void runtime_probe(const struct interpreter_ops *const *table, uint32_t tracers,
		   const struct image *image, struct runtime_probe *ret);
/*
 * Marks the code of the runtimes that were found. -ENOMEM: *TABLE may have some marks and not
 * others.
 */
int runtime_mark(const struct runtime_probe *probe, struct unwind_table **table) _must_check_;
/* Frees the images that nobody has taken out of PROBE. */
void runtime_probe_done(struct runtime_probe *probe);
