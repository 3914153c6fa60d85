/* SPDX-License-Identifier: Apache-2.0 */
/* Which runtimes a file is, and the marks of their code in its unwind table. Thread pool. */
#pragma once

#include "agent/elf/unwind.h"
#include "agent/runtime/runtime.h"

enum { RUNTIME_MAX = KILN_RUNTIME_MAX };

/* What a file was found to be; n of them, one for each runtime at most. */
struct runtime_probe {
	struct {
		const struct interpreter_ops *ops;
		struct runtime_image *image; /* NULL: a version that is not supported */
		char why[160];		     /* then: which, for people */
	} found[RUNTIME_MAX];
	size_t n;
};

/* Asks the runtimes of TABLE whose bit (1 << id) is in TRACERS; adds what they say to RET. */
void runtime_probe(const struct interpreter_ops *const *table, uint32_t tracers,
		   const struct image *image, struct runtime_probe *ret);
/* Marks the code of what was found. -ENOMEM: *TABLE may have some marks and not others. */
int runtime_mark(const struct runtime_probe *probe, struct unwind_table **table) _must_check_;
/* Frees what nobody has taken. */
void runtime_probe_done(struct runtime_probe *probe);
