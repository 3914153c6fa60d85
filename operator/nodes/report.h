/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct kept_report: a node's last report (Kiln__Node__V1__Report), packed, and two hashes that
 * tell what is another than before: what people are told at once, and counters, which are not.
 */
#pragma once

#include "kiln/node/v1/node.pb-c.h"
#include "lib/base.h"

enum {
	REPORT_BYTES_MAX = 16 << 10, /* of one report that is kept */
	REPORT_TRACERS_MAX = 16,     /* as node.proto and the CRD have it */
	REPORT_EXPORTERS_MAX = 16,
	REPORT_POLICIES_MAX = 64,
};

struct kept_report {
	uint8_t *bytes; /* NULL: none came yet */
	size_t len;
	uint64_t facts, counters; /* hashes */
};

/* Lists are cut to their limits. -E2BIG: too large to keep; then K is as it was. */
int kept_report_set(struct kept_report *k, const Kiln__Node__V1__Report *report) _must_check_;
/* NULL: none, or out of memory. Free with kiln__node__v1__report__free_unpacked(). */
Kiln__Node__V1__Report *kept_report_get(const struct kept_report *k);
void kept_report_done(struct kept_report *k);
