/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds the status of a ProfilingNode (crds/profilingnodes.yaml) from its agent's event: a pure
 * function. Agents are not trusted: all values are cut and cleaned to what the API accepts.
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

/*
 * The status of each condition (enum condition_status) and the time of its last transition, in
 * seconds since the epoch; 0: not known.
 */
struct node_turns {
	uint8_t status[NODE_CONDITIONS];
	int64_t since[NODE_CONDITIONS];
};

struct node_status_input {
	const Kiln__Node__V1__NodeEvent *event; /* NULL: nothing is known of it but its name */
	bool connected;				/* it has a stream, to REPLICA */
	const char *runtime;	 /* of its Node, if the agent reports none; may be NULL */
	const char *wanted_hash; /* of the configuration of the node's group; "": not known */
	const char *replica;	 /* may be NULL when it has none */
	int64_t reported;	 /* seconds since the epoch; 0: never */
	int64_t now;
};

/* Writes the message of the condition NODE_WITHIN_BUDGET to RET. */
void node_status_budget_text(const Kiln__Node__V1__NodeEvent *event, char *ret, size_t size);
/*
 * Builds the status; the caller frees *RET. TURNS: the conditions written before, then the new
 * ones.
 */
int node_status_build(const struct node_status_input *in, struct node_turns *turns,
		      cJSON **ret) _must_check_;
