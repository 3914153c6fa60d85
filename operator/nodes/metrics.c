/* SPDX-License-Identifier: Apache-2.0 */
/* The counters of nodes.c and its parts as Prometheus text. Loop thread only. */
#include "operator/nodes/nodes_internal.h"

#include "operator/http/prometheus.h"

void nodes_read(const struct nodes *n, struct nodes_stats *ret)
{
	*ret = n->stats;
	ret->connected = n->connected;
	ret->objects = node_store_count(n->store);
	ret->refused += node_store_refused(n->store);
}

void nodes_metrics(const struct nodes *n, struct buf *out)
{
	struct nodes_stats s;

	if (!n)
		return;
	nodes_read(n, &s);
	prometheus_single(out, "kiln_nodes_connected", "gauge",
			  "Nodes whose agents have their stream to this replica.",
			  (double)s.connected);
	prometheus_single(out, "kiln_profiling_nodes", "gauge", "ProfilingNodes there are.",
			  (double)s.objects);
	prometheus_single(out, "kiln_node_writes_due", "gauge",
			  "Nodes whose status waits for its turn to be written.", (double)s.due);
	prometheus_single(out, "kiln_node_writes_total", "counter",
			  "Writes of ProfilingNodes and their statuses.", (double)s.writes);
	prometheus_single(out, "kiln_node_write_failures_total", "counter",
			  "Writes of ProfilingNodes that failed; they are tried again.",
			  (double)s.failures);
	prometheus_single(out, "kiln_nodes_stale_total", "counter",
			  "ProfilingNodes whose replica had gone, marked by the leader.",
			  (double)s.stale);
	prometheus_single(out, "kiln_node_reports_refused_total", "counter",
			  "Reports and ProfilingNodes beyond the limits.", (double)s.refused);
	prometheus_single(out, "kiln_node_unknown_total", "counter",
			  "Times that a report waited because its Node is not in the cache.",
			  (double)s.no_node);
}
