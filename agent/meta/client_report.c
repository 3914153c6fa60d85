/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages that the agent sends: Hello first, then the newest ack, then a report when one is
 * due. Nothing is queued: an ack and a report describe the state at the moment when they are sent,
 * so a slow operator gets fewer but newer ones. Loop thread.
 */
#include "agent/meta/client_internal.h"

#include "lib/metrics.h"

static char *text(const char *s)
{
	return (char *)(uintptr_t)(s ? s : "");
}

static bool send_message(struct meta_client *c, const Kiln__Node__V1__AgentMessage *m)
{
	size_t len = kiln__node__v1__agent_message__get_packed_size(m);
	_cleanup_free_ uint8_t *bytes = malloc(len + 1);
	int r;

	if (!bytes)
		return false;
	kiln__node__v1__agent_message__pack(m, bytes);
	r = grpc_stream_send(c->stream, bytes, len);
	if (r == 0)
		c->writable = false;
	return r == 0;
}

static bool send_hello(struct meta_client *c)
{
	Kiln__Node__V1__AgentMessage m = KILN__NODE__V1__AGENT_MESSAGE__INIT;
	Kiln__Node__V1__Hello hello = KILN__NODE__V1__HELLO__INIT;

	hello.protocol = META_PROTOCOL;
	hello.agent_version = text(c->options.agent_version);
	hello.kernel = text(c->options.kernel);
	hello.cgroup_mode = text(c->options.cgroup_mode);
	hello.container_runtime = text(c->options.container_runtime);
	hello.config_hash = text(c->options.config_hash);
	hello.pod_policies = true;
	/* A state from disk that lacks secrets must not be resumed: the operator would not send
	 * them. */
	if (!c->resync && !pod_table_incomplete(c->table))
		pod_table_state(c->table, &hello.epoch, &hello.revision);
	c->offered = hello.epoch != 0;
	m.message_case = KILN__NODE__V1__AGENT_MESSAGE__MESSAGE_HELLO;
	m.hello = &hello;
	return send_message(c, &m);
}

static bool send_ack(struct meta_client *c)
{
	Kiln__Node__V1__AgentMessage m = KILN__NODE__V1__AGENT_MESSAGE__INIT;
	Kiln__Node__V1__Ack ack = KILN__NODE__V1__ACK__INIT;

	pod_table_state(c->table, &ack.epoch, &ack.revision);
	m.message_case = KILN__NODE__V1__AGENT_MESSAGE__MESSAGE_ACK;
	m.ack = &ack;
	return send_message(c, &m);
}

/* The arrays of a report in the form that protobuf-c wants: too large for a stack. */
struct report_parts {
	struct meta_report from;
	Kiln__Node__V1__Tracer tracers[META_TRACERS_MAX], *tracer_list[META_TRACERS_MAX];
	char *versions[META_TRACERS_MAX][META_VERSIONS_MAX];
	Kiln__Node__V1__Exporter exporters[META_EXPORTERS_MAX], *exporter_list[META_EXPORTERS_MAX];
	Kiln__Node__V1__AppliedPolicy policies[META_POLICIES_MAX], *policy_list[META_POLICIES_MAX];
	Kiln__Node__V1__BudgetState budget;
	Kiln__Node__V1__CutPolicy cut[META_CUT_MAX], *cut_list[META_CUT_MAX];
	Kiln__Node__V1__Probe probes[META_PROBES_MAX], *probe_list[META_PROBES_MAX];
};

static void fill_budget(struct report_parts *p, Kiln__Node__V1__Report *report)
{
	Kiln__Node__V1__BudgetState *b = &p->budget;

	if (!p->from.budget.cpu)
		return;
	*b = (Kiln__Node__V1__BudgetState)KILN__NODE__V1__BUDGET_STATE__INIT;
	b->cpu = p->from.budget.cpu;
	b->policies = p->from.budget.policies;
	b->cut = p->from.budget.n_cut;
	b->detail = p->from.budget.detail;
	b->exhausted = p->from.budget.exhausted;
	b->n_policy = MIN(p->from.budget.n_cut, (uint32_t)META_CUT_MAX);
	b->policy = p->cut_list;
	for (size_t i = 0; i < b->n_policy; i++) {
		p->cut[i] = (Kiln__Node__V1__CutPolicy)KILN__NODE__V1__CUT_POLICY__INIT;
		p->cut[i].id = p->from.budget.cut[i].id;
		p->cut[i].hz = p->from.budget.cut[i].hz;
		p->cut[i].hz_now = p->from.budget.cut[i].hz_now;
		p->cut[i].since = p->from.budget.cut[i].since_s;
		p->cut_list[i] = &p->cut[i];
	}
	report->budget = b;
}

static void fill_lists(struct report_parts *p, Kiln__Node__V1__Report *report)
{
	const struct meta_report *from = &p->from;
	size_t i;

	report->n_tracers = MIN(from->n_tracers, (size_t)META_TRACERS_MAX);
	for (i = 0; i < report->n_tracers; i++) {
		p->tracers[i] = (Kiln__Node__V1__Tracer)KILN__NODE__V1__TRACER__INIT;
		p->tracers[i].name = text(from->tracers[i].name);
		p->tracers[i].reason = text(from->tracers[i].reason);
		p->tracers[i].state = (Kiln__Node__V1__Tracer__State)from->tracers[i].state;
		p->tracers[i].versions = p->versions[i];
		p->tracers[i].n_versions =
		    MIN(from->tracers[i].n_versions, (size_t)META_VERSIONS_MAX);
		for (size_t k = 0; k < p->tracers[i].n_versions; k++)
			p->versions[i][k] = text(from->tracers[i].versions[k]);
		p->tracer_list[i] = &p->tracers[i];
	}
	report->n_exporters = MIN(from->n_exporters, (size_t)META_EXPORTERS_MAX);
	for (i = 0; i < report->n_exporters; i++) {
		p->exporters[i] = (Kiln__Node__V1__Exporter)KILN__NODE__V1__EXPORTER__INIT;
		p->exporters[i].destination = text(from->exporters[i].destination);
		p->exporters[i].error = text(from->exporters[i].error);
		p->exporters[i].healthy = from->exporters[i].healthy;
		p->exporter_list[i] = &p->exporters[i];
	}
	report->n_policies = MIN(from->n_policies, (size_t)META_POLICIES_MAX);
	for (i = 0; i < report->n_policies; i++) {
		p->policies[i] =
		    (Kiln__Node__V1__AppliedPolicy)KILN__NODE__V1__APPLIED_POLICY__INIT;
		p->policies[i].id = from->policies[i].id;
		p->policies[i].containers = from->policies[i].containers;
		p->policy_list[i] = &p->policies[i];
	}
	report->n_probes = MIN(from->n_probes, (size_t)META_PROBES_MAX);
	for (i = 0; i < report->n_probes; i++) {
		p->probes[i] = (Kiln__Node__V1__Probe)KILN__NODE__V1__PROBE__INIT;
		p->probes[i].name = text(from->probes[i].name);
		p->probes[i].attached = !from->probes[i].reason;
		p->probes[i].reason = text(from->probes[i].reason);
		p->probe_list[i] = &p->probes[i];
	}
	report->probes = p->probe_list;
	report->tracers = p->tracer_list;
	report->exporters = p->exporter_list;
	report->policies = p->policy_list;
}

static bool send_report(struct meta_client *c)
{
	_cleanup_free_ struct report_parts *p = calloc(1, sizeof(*p));
	Kiln__Node__V1__AgentMessage m = KILN__NODE__V1__AGENT_MESSAGE__INIT;
	Kiln__Node__V1__Report report = KILN__NODE__V1__REPORT__INIT;

	if (!p)
		return false;
	if (c->events.report)
		c->events.report(&p->from, c->events.arg);
	report.started = p->from.started_s;
	report.samples = p->from.samples;
	report.dropped = p->from.dropped;
	report.truncated = p->from.truncated;
	report.exported = p->from.exported;
	report.unresolved_containers = p->from.unresolved_containers;
	report.config_hash = text(c->options.config_hash);
	fill_lists(p, &report);
	fill_budget(p, &report);
	m.message_case = KILN__NODE__V1__AGENT_MESSAGE__MESSAGE_REPORT;
	m.report = &report;
	return send_message(c, &m);
}

void meta_send_due(struct meta_client *c)
{
	if (!c->writable)
		return;
	if (!c->greeted) {
		c->greeted = send_hello(c);
	} else if (c->ack_due) {
		if (send_ack(c)) {
			c->ack_due = false;
			c->status.acks++;
		}
	} else if (c->report_due && c->synced) {
		if (send_report(c)) {
			c->report_due = c->report_soon = false;
			c->reported_ms = uv_now(c->loop);
			c->status.reports++;
			metric_add(M_OPERATOR_REPORTS, 1);
		}
	}
}
