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

/* Texts that a report points to and that are stored nowhere else. */
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

/* Fills in everything but started_s and unresolved_containers. */
void report_fill(const struct report_sources *from, struct report_texts *texts,
		 struct meta_report *ret);
/* A hash of the parts of a report whose change is worth a report at once. */
uint64_t report_word(const struct meta_report *report);
