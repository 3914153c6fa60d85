/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The status of a ProfilingNode (crds/profilingnodes.yaml) from what its agent said: a pure
 * function. What an agent says is foreign: everything is cut and cleaned to what the API takes.
 */
#pragma once

#include <cjson/cJSON.h>

#include "operator/nodes/told.h"

enum node_condition {
	NODE_READY,
	NODE_CONFIG_APPLIED,
	NODE_TRACERS_LOADED,
	NODE_EXPORTING,
	NODE_METADATA_SYNCED,
	NODE_WITHIN_BUDGET,
	NODE_CONDITIONS
};
extern const char *const node_condition_names[NODE_CONDITIONS];

/* How the conditions stand, as enum condition_status, and since when; since 0: never told. */
struct node_turns {
	uint8_t status[NODE_CONDITIONS];
	int64_t since[NODE_CONDITIONS];
};

struct node_status_input {
	const Kiln__Node__V1__NodeEvent *event; /* NULL: nothing is known of it but its name */
	bool connected;				/* it has a stream, to REPLICA */
	const char *runtime;	 /* of its Node, when its agent does not tell; may be NULL */
	const char *wanted_hash; /* of the configuration of the node's group; "": not known */
	const char *replica;	 /* may be NULL when it has none */
	int64_t reported;	 /* seconds since the epoch; 0: never */
	int64_t now;
};

/* Why NODE_WITHIN_BUDGET is as it is, in words for people. */
void node_status_budget_text(const Kiln__Node__V1__NodeEvent *event, char *ret, size_t size);
/* TURNS: what was told before, and then what is. */
int node_status_build(const struct node_status_input *in, struct node_turns *turns,
		      cJSON **ret) _must_check_;
