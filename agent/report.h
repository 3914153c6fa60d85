/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the agent tells the operator of itself: node.v1.Report, in the terms of the API
 * (crds/profilingnodes.yaml). Loop thread.
 */
#pragma once

#include "agent/config/config.h"
#include "agent/export/route.h"
#include "agent/governor.h"
#include "agent/meta/client.h"
#include "agent/policy/policy.h"
#include "agent/runtime/runtimes.h"
#include "agent/sampler/sampler.h"

enum { REPORT_TEXT_MAX = 256 };

/* What a report points to besides what lives longer. */
struct report_texts {
	char names[META_EXPORTERS_MAX][REPORT_TEXT_MAX],
	    errors[META_EXPORTERS_MAX][REPORT_TEXT_MAX];
};

struct report_sources {
	const struct config *config;
	struct sampler *sampler;
	const struct router *router;
	const struct policies *policies; /* may be NULL */
	const struct runtimes *runtimes; /* may be NULL */
	const struct governor *governor; /* may be NULL */
	uint32_t cpu_budget;		 /* millionths of all CPUs; 0: none */
	const struct probes *probes;	 /* may be NULL */
};

/* Everything but the time of the start and what the last window told. */
void report_fill(const struct report_sources *from, struct report_texts *texts,
		 struct meta_report *ret);
/* Of what is worth a report at once: another value, another word. */
uint64_t report_word(const struct meta_report *report);
