/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The status of a ProfilingNode (crds/profilingnodes.yaml) from what its agent said: a pure
 * function. What an agent says is foreign: everything is cut and cleaned to what the API takes.
 */
#pragma once

#include <cjson/cJSON.h>

#include "operator/nodes/report.h"
#include "operator/stream/destinations.h"

enum node_condition {
	NODE_READY,
	NODE_CONFIG_APPLIED,
	NODE_TRACERS_LOADED,
	NODE_EXPORTING,
	NODE_METADATA_SYNCED,
	NODE_CONDITIONS
};
extern const char *const node_condition_names[NODE_CONDITIONS];

/* How the conditions stand, as enum condition_status, and since when; since 0: never told. */
struct node_turns {
	uint8_t status[NODE_CONDITIONS];
	int64_t since[NODE_CONDITIONS];
};

struct node_status_input {
	const char *agent_version, *kernel, *cgroup_mode, *runtime; /* "" when unknown */
	const Kiln__Node__V1__Report *report;			    /* NULL: none yet */
	/* Destinations that its policies name and it is not told of. */
	const struct left_out *const *left_out;
	size_t n_left_out;
	const char *wanted_hash; /* of the configuration of the node's group; "": not known */
	const char *replica;	 /* the replica that has its stream; "": none has */
	int64_t reported;	 /* seconds since the epoch; 0: never */
	int64_t now;
};

/* TURNS: what was told before, and then what is. */
int node_status_build(const struct node_status_input *in, struct node_turns *turns,
		      cJSON **ret) _must_check_;
