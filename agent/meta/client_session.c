/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages that the operator sends. Welcome comes first, then a snapshot or, if the operator
 * resumes, only Updates. The table is the operator's state (`synced`) from the end of the snapshot
 * on, or from the first Update after Welcome. An operator that resumes without changes sends
 * nothing, so one second of silence counts too.
 *
 * A message that makes no sense ends the connection; the next one asks for a full snapshot. Loop
 * thread.
 */
#include "agent/meta/client_internal.h"

#include "agent/meta/node_message.h"
#include "lib/metrics.h"

enum { RESUME_QUIET_MS = 1000 };

static void synced(struct meta_client *c)
{
	if (c->synced)
		return;
	c->synced = true;
	c->resync = false;
	c->report_due = true;
	c->status.source = META_FROM_OPERATOR;
}

static void nonsense(struct meta_client *c, const char *what)
{
	c->status.malformed++;
	metric_add(M_OPERATOR_MALFORMED, 1);
	c->resync = true;
	meta_give_up(c, "the operator sent what makes no sense: %s", what);
}

static void on_welcome(struct meta_client *c, const Kiln__Node__V1__Welcome *w)
{
	if (c->welcomed) {
		nonsense(c, "a second welcome");
		return;
	}
	if (w->protocol != META_PROTOCOL) {
		meta_give_up(c, "the operator speaks protocol %u, this agent only %d", w->protocol,
			     META_PROTOCOL);
		return;
	}
	c->welcomed = true;
	c->status.connections++;
	c->error[0] = 0;
	snprintf(c->node_name, sizeof(c->node_name), "%s", w->node_name);
	snprintf(c->cluster_uid, sizeof(c->cluster_uid), "%s", w->cluster_uid);
	/* Limits intervals that can only be mistakes: 0, or more than an hour. */
	c->report_interval_ms =
	    1000 * (uint64_t)(w->report_interval_s ? MIN(w->report_interval_s, 3600U) : 60U);
	metric_set(M_OPERATOR_CONNECTED, 1);
	log_info("operator", "connected to %s as node %s", c->options.endpoint, c->node_name);
}

static void on_update(struct meta_client *c, const Kiln__Node__V1__Update *u)
{
	struct error err;
	int r;

	if (!c->synced && !c->offered && !pod_table_in_snapshot(c->table)) {
		nonsense(c, "an update before the snapshot");
		return;
	}
	r = pod_table_apply(c->table, u, uv_now(c->loop), &err);
	if (r == -EPROTO) {
		nonsense(c, err.message);
	} else if (r < 0) {
		meta_give_up(c, "%s", err.message);
	} else if (!pod_table_in_snapshot(c->table)) {
		synced(c);
		c->ack_due = c->ack_due || u->revision;
	}
}

void meta_resumed(struct meta_client *c, uint64_t now_ms)
{
	if (c->welcomed && !c->synced && c->offered && !pod_table_in_snapshot(c->table) &&
	    now_ms - c->heard_ms >= RESUME_QUIET_MS)
		synced(c);
}

static void on_snapshot_end(struct meta_client *c, const Kiln__Node__V1__SnapshotEnd *end)
{
	struct error err;

	if (pod_table_snapshot_end(c->table, end->epoch, end->revision, uv_now(c->loop), &err) <
	    0) {
		nonsense(c, err.message);
		return;
	}
	metric_set(M_PODS, (int64_t)pod_table_count(c->table));
	c->ack_due = true;
	synced(c);
	log_info("operator", "the operator told of %zu pods on this node",
		 pod_table_count(c->table));
}

static void dispatch(struct meta_client *c, const Kiln__Node__V1__OperatorMessage *m)
{
	if (!c->welcomed && m->message_case != KILN__NODE__V1__OPERATOR_MESSAGE__MESSAGE_WELCOME) {
		nonsense(c, "no welcome");
		return;
	}
	switch (m->message_case) {
	case KILN__NODE__V1__OPERATOR_MESSAGE__MESSAGE_WELCOME:
		on_welcome(c, m->welcome);
		break;
	case KILN__NODE__V1__OPERATOR_MESSAGE__MESSAGE_SNAPSHOT_BEGIN:
		pod_table_snapshot_begin(c->table, m->snapshot_begin->epoch);
		break;
	case KILN__NODE__V1__OPERATOR_MESSAGE__MESSAGE_UPDATE:
		on_update(c, m->update);
		break;
	case KILN__NODE__V1__OPERATOR_MESSAGE__MESSAGE_SNAPSHOT_END:
		on_snapshot_end(c, m->snapshot_end);
		break;
	default:
		break; /* a message of a newer operator */
	}
}

/* What the table left out since BEFORE, for /metrics. */
static void count_refused(const struct pod_counters *before, const struct pod_counters *after)
{
	metric_add(M_PODS_REFUSED, (int64_t)(after->pods_refused - before->pods_refused));
	metric_add(M_POD_CONTAINERS_REFUSED,
		   (int64_t)(after->containers_refused - before->containers_refused +
			     after->ids_refused - before->ids_refused));
	metric_add(M_POD_ATTRIBUTES_REFUSED,
		   (int64_t)(after->attributes_refused - before->attributes_refused));
	metric_add(M_POD_POLICIES_REFUSED,
		   (int64_t)(after->policies_refused - before->policies_refused));
	metric_add(M_POD_DESTINATIONS_REFUSED,
		   (int64_t)(after->destinations_refused - before->destinations_refused));
}

void meta_receive(struct meta_client *c, const uint8_t *data, size_t len)
{
	_cleanup_(node_message_freep) ProtobufCMessage *m = NULL;
	struct pod_counters before = *pod_table_counters(c->table);

	c->heard_ms = uv_now(c->loop);
	if (node_message_decode(&kiln__node__v1__operator_message__descriptor, data, len, &m) < 0) {
		nonsense(c, "a message that cannot be decoded");
		return;
	}
	dispatch(c, (const Kiln__Node__V1__OperatorMessage *)m);
	count_refused(&before, pod_table_counters(c->table));
	metric_set(M_PODS, (int64_t)pod_table_count(c->table));
	meta_send_due(c);
}
