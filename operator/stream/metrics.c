/* SPDX-License-Identifier: Apache-2.0 */
/* The counters of the node stream as Prometheus text. Loop thread only. */
#include "operator/http/prometheus.h"
#include "operator/stream/server.h"

enum { LABEL_MAX = 64 };

static const char *const cut_names[STREAM_CUT_COUNT] = {
#define X(id, name, text, status) name,
    STREAM_CUTS(X)
#undef X
};

static void tell_reasons(const struct node_server_stats *s, struct buf *out)
{
	char label[LABEL_MAX];

	prometheus_head(out, "kiln_stream_auth_total", "counter",
			"Streams by what became of their token.");
	for (unsigned int i = 0; i < STREAM_REFUSAL_COUNT; i++) {
		snprintf(label, sizeof(label), "result=\"%s\"",
			 stream_refusal_name((enum stream_refusal)i));
		prometheus_value(out, "kiln_stream_auth_total", label, (double)s->refused[i]);
	}
	prometheus_head(out, "kiln_stream_cuts_total", "counter",
			"Streams that the operator ended, by reason.");
	for (unsigned int i = 0; i < STREAM_CUT_COUNT; i++) {
		snprintf(label, sizeof(label), "reason=\"%s\"", cut_names[i]);
		prometheus_value(out, "kiln_stream_cuts_total", label, (double)s->cuts[i]);
	}
}

static void tell_connections(const struct frontend_stats *s, struct buf *out)
{
	static const char *const states[] = {"outside", "opened", "granted"};
	const size_t now[] = {s->outside, s->opened, s->granted};
	char label[LABEL_MAX];

	prometheus_head(
	    out, "kiln_stream_connections", "gauge",
	    "Connections: outside (TLS has not begun), opened (no token was granted yet), "
	    "granted.");
	for (size_t i = 0; i < ARRAY_SIZE(now); i++) {
		snprintf(label, sizeof(label), "state=\"%s\"", states[i]);
		prometheus_value(out, "kiln_stream_connections", label, (double)now[i]);
	}
	prometheus_head(out, "kiln_stream_connections_ended_total", "counter",
			"Connections that ended, by reason.");
	for (unsigned int i = 0; i < FRONTEND_END_COUNT; i++) {
		snprintf(label, sizeof(label), "reason=\"%s\"",
			 frontend_end_name((enum frontend_end)i));
		prometheus_value(out, "kiln_stream_connections_ended_total", label,
				 (double)s->ended[i]);
	}
}

void node_server_metrics(struct node_server *server, struct buf *out)
{
	struct node_server_stats s;

	if (!server)
		return;
	node_server_read(server, &s);
	const struct {
		const char *name, *type, *help;
		double value;
	} rows[] = {
	    {"kiln_stream_connections_total", "counter", "Connections that came.",
	     (double)s.frontend.accepted},
	    {"kiln_stream_handshakes_total", "counter", "TLS handshakes that were begun.",
	     (double)s.frontend.handshakes},
	    {"kiln_stream_accept_pauses_total", "counter",
	     "Times that there was no file descriptor for the next connection.",
	     (double)s.frontend.paused},
	    {"kiln_streams", "gauge", "Open streams of agents.", (double)s.streams.open},
	    {"kiln_streams_live", "gauge", "Streams that have said who they are and hello.",
	     (double)s.live},
	    {"kiln_streams_opened_total", "counter", "Streams that were opened.",
	     (double)s.streams.opened},
	    {"kiln_streams_refused_total", "counter", "Streams beyond the limit.",
	     (double)s.streams.refused},
	    {"kiln_streams_unknown_method_total", "counter", "Calls of what is not served.",
	     (double)s.streams.unknown_method},
	    {"kiln_streams_cut_off_total", "counter", "Streams that did not take their end.",
	     (double)s.streams.cut},
	    {"kiln_stream_token_reviews_total", "counter",
	     "Tokens that the API server was asked of.", (double)s.auth.reviews},
	    {"kiln_stream_token_review_errors_total", "counter", "Reviews without an answer.",
	     (double)s.auth.review_errors},
	    {"kiln_stream_token_reviews_cached_total", "counter", "Tokens that were known.",
	     (double)s.auth.cached},
	    {"kiln_stream_token_reviews_waiting", "gauge", "Tokens that wait to be reviewed.",
	     (double)s.auth.waiting},
	    {"kiln_stream_snapshots_total", "counter", "Snapshots that were begun.",
	     (double)s.snapshots},
	    {"kiln_stream_snapshots_waiting", "gauge", "Streams that wait for their snapshot.",
	     (double)s.snapshots_waiting},
	    {"kiln_stream_resumes_total", "counter", "Streams that went on where they were.",
	     (double)s.resumes},
	    {"kiln_stream_updates_total", "counter", "Updates that were sent.", (double)s.updates},
	    {"kiln_stream_sent_bytes_total", "counter", "Bytes of messages that were sent.",
	     (double)s.bytes},
	    {"kiln_stream_acks_total", "counter", "Acks that told of something new.",
	     (double)s.acks},
	    {"kiln_stream_reports_total", "counter", "Reports of agents.", (double)s.reports},
	    {"kiln_stream_reports_dropped_total", "counter", "Reports that came too fast.",
	     (double)s.reports_dropped},
	    {"kiln_stream_nodes", "gauge", "Nodes whose state is kept.", (double)s.nodes},
	    {"kiln_stream_pods", "gauge", "Pods in those states.", (double)s.pods},
	    {"kiln_stream_policies", "gauge", "Policies that those pods have.",
	     (double)s.view.policies},
	    {"kiln_stream_state_bytes", "gauge", "Memory of those states.", (double)s.state_bytes},
	    {"kiln_stream_pods_encoded_total", "counter", "Pods that were looked at.",
	     (double)s.view.pods},
	    {"kiln_stream_pods_refused_total", "counter",
	     "Times that a pod was left out: too many on its node, or no memory.",
	     (double)s.pods_refused},
	    {"kiln_stream_pods_without_policy_total", "counter",
	     "Times that a pod's policy could not be told.", (double)s.view.without_policy},
	    {"kiln_stream_cut_attributes_total", "counter", "Attributes beyond the limits.",
	     (double)s.view.cut_attributes},
	    {"kiln_stream_cut_containers_total", "counter",
	     "Containers whose attributes found no room.", (double)s.view.cut_containers},
	};
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		prometheus_single(out, rows[i].name, rows[i].type, rows[i].help, rows[i].value);
	tell_connections(&s.frontend, out);
	tell_reasons(&s, out);
}
