/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct told: the last event of a replica about a node (Kiln__Node__V1__NodeEvent), packed, and
 * two hashes to detect changes: of its facts, which are written to the status at once, and of its
 * counters, which are not.
 */
#pragma once

#include "kiln/node/v1/node.pb-c.h"
#include "lib/base.h"

enum {
	TOLD_BYTES_MAX = 96 << 10, /* of one node */
	TOLD_PROBES_MAX = 16,
	TOLD_TRACERS_MAX = 16, /* as node.proto and the CRD have it */
	TOLD_EXPORTERS_MAX = 16,
	TOLD_POLICIES_MAX = 64,
	TOLD_LEFT_OUT_MAX = 64,
};

struct told {
	uint8_t *bytes; /* NULL: nothing */
	size_t len;
	bool has_report, has_runtime;
	uint64_t facts, counters; /* hashes */
};

/* Lists are cut to their limits. -E2BIG: too large to keep; then T is as it was. */
int told_set(struct told *t, const Kiln__Node__V1__NodeEvent *event) _must_check_;
/* NULL: none, or out of memory. Free with kiln__node__v1__node_event__free_unpacked(). */
Kiln__Node__V1__NodeEvent *told_get(const struct told *t);
void told_done(struct told *t);
