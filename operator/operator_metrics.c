/* SPDX-License-Identifier: Apache-2.0 */
/* The operator's own metrics as Prometheus text: one page of all parts. Loop thread only. */
#include "operator/operator_internal.h"

#include "operator/world_metrics.h"

/* Metrics that the role stream does not have. */
static void controller_metrics(struct operator* op, const struct objects_state *state,
			       struct buf *out)
{
	struct work_queue *const queues[] = {op->object_queue, op->status_queue};
	const struct reconcile_counts *const counts[] = {&op->object_counts, &op->status_counts};

	prometheus_queues(out, queues, ARRAY_SIZE(queues));
	prometheus_reconciles(out, counts, ARRAY_SIZE(counts));
	prometheus_head(out, "leader_election_master_status", "gauge",
			"1 while this replica leads.");
	prometheus_value(out, "leader_election_master_status", "name=\"" OPERATOR_LEASE "\"",
			 op->lease ? lease_held(op->lease) : 1);
	prometheus_single(out, "kiln_object_writes_total", "counter",
			  "Rendered objects that were written.", (double)state->writes);
	prometheus_single(out, "kiln_object_deletes_total", "counter",
			  "Rendered objects that were deleted.", (double)state->deletes);
	prometheus_single(out, "kiln_status_writes_total", "counter", "Statuses that were written.",
			  (double)status_writes(op->statuses));
	prometheus_single(out, "kiln_events_sent_total", "counter", "Events that were sent.",
			  (double)recorder_sent(op->events));
	prometheus_single(out, "kiln_events_dropped_total", "counter", "Events beyond the limit.",
			  (double)recorder_dropped(op->events));
}

void operator_metrics(void *arg, struct buf *out)
{
	struct operator* op = arg;
	struct objects_state state = {0};

	if (op->objects)
		objects_read(op->objects, &state);
	if (operator_controls(op))
		controller_metrics(op, &state, out);
	prometheus_requests(out, &op->requests);
	world_metrics(&op->world, state.cache_refused, out);
	prometheus_single(out, "kiln_invalid_configs_total", "counter",
			  "Configs that could not be understood.", (double)op->invalid_configs);
	stream_service_metrics(op->stream, out);
	nodes_metrics(op->nodes, out);
	peers_metrics(op->peers, out);
}

void operator_on_request(void *arg, const char *method, int status)
{
	struct operator* op = arg;

	request_count(&op->requests, method, status);
}
