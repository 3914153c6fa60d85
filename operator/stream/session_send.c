/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages to an agent. The step alone decides the next message; there is no queue: the node's
 * state knows what the agent lacks (node_state_collect), and one message is under way at most.
 *
 * A snapshot needs one of a few slots, kept until the agent has acknowledged the end of the
 * snapshot, so that thousands of agents that come at once are served one after another. The parts
 * of a snapshot are not acknowledged, so the window does not apply to it; nothing is sent after it
 * before its Ack. Loop thread only.
 */
#include "operator/stream/server_internal.h"

#include "kiln/node/v1/node.pb-c.h"
#include "operator/stream/frame.h"
#include "operator/stream/watch.h"

enum {
	/* Fields of node.proto. */
	OPERATOR_WELCOME = 1,
	OPERATOR_SNAPSHOT_BEGIN = 2,
	OPERATOR_UPDATE = 3,
	OPERATOR_SNAPSHOT_END = 4,
	UPDATE_REVISION = 1,
	SNAPSHOT_EPOCH = 1,
	SNAPSHOT_REVISION = 2,
};

/* ---- slots ----------------------------------------------------------------------------------- */

static void slot_unwait(struct session *s)
{
	struct node_server *server = s->server;

	if (!s->waits)
		return;
	if (s->slot_prev)
		s->slot_prev->slot_next = s->slot_next;
	else
		server->slot_waiting = s->slot_next;
	if (s->slot_next)
		s->slot_next->slot_prev = s->slot_prev;
	else
		server->slot_waiting_last = s->slot_prev;
	s->waits = false;
	server->stats.snapshots_waiting--;
}

void session_release_slot(struct session *s)
{
	struct node_server *server = s->server;

	slot_unwait(s);
	if (!s->has_slot)
		return;
	s->has_slot = false;
	server->stats.snapshots_running--;
	if (server->slot_waiting)
		server_ready(server, server->slot_waiting->node);
}

/* A slot for a snapshot; false: it is in the queue for one. */
static bool slot_take(struct session *s)
{
	struct node_server *server = s->server;

	if (s->has_slot)
		return true;
	if (server->stats.snapshots_running < server->o.limits.snapshots &&
	    (!server->slot_waiting || server->slot_waiting == s)) {
		slot_unwait(s);
		s->has_slot = true;
		server->stats.snapshots_running++;
		/* There may be room for the next one too. */
		if (server->slot_waiting)
			server_ready(server, server->slot_waiting->node);
		return true;
	}
	if (s->waits)
		return false;
	s->slot_prev = server->slot_waiting_last;
	s->slot_next = NULL;
	if (s->slot_prev)
		s->slot_prev->slot_next = s;
	else
		server->slot_waiting = s;
	server->slot_waiting_last = s;
	s->waits = true;
	server->stats.snapshots_waiting++;
	return false;
}

/* ---- messages -------------------------------------------------------------------------------- */

static void send_field(struct session *s, unsigned int field, const void *data, size_t len)
{
	struct node_server *server = s->server;
	struct buf *m = &server->message;
	bool failed;

	buf_reset(m);
	frame_bytes(m, field, data, len);
	failed = buf_error(m) || server_stream_send(s->stream, m->data, m->len) < 0;
	explicit_bzero(m->data, m->len); /* it may be a destination's secrets */
	if (failed) {
		session_cut(s, CUT_OUT_OF_MEMORY);
		return;
	}
	s->sending = true;
	s->sending_since_ms = server_now(server);
	server->stats.bytes += m->len;
}

static void send_welcome(struct session *s)
{
	Kiln__Node__V1__Welcome m = KILN__NODE__V1__WELCOME__INIT;
	struct node_server *server = s->server;
	struct meta_object node;
	char uid[64] = "";
	uint8_t *p;

	if (!meta_store_find(server->o.sources.nodes, "", s->node_name, &node))
		snprintf(uid, sizeof(uid), "%s", node.uid);
	m.protocol = STREAM_PROTOCOL;
	m.operator_version = (char *)KILN_VERSION;
	m.node_name = s->node_name;
	m.node_uid = uid;
	m.cluster_uid = (char *)node_view_cluster_uid(server->view);
	m.report_interval_s = server_report_interval_s(server);
	buf_reset(&server->update);
	p = buf_extend(&server->update, kiln__node__v1__welcome__get_packed_size(&m));
	if (!p) {
		session_cut(s, CUT_OUT_OF_MEMORY);
		return;
	}
	(void)kiln__node__v1__welcome__pack(&m, p);
	send_field(s, OPERATOR_WELCOME, server->update.data, server->update.len);
}

static void send_begin(struct session *s)
{
	struct buf *b = &s->server->update;

	s->revision = 0;
	s->snapshot_bytes = 0;
	s->server->stats.snapshots++;
	buf_reset(b);
	frame_number(b, SNAPSHOT_EPOCH, s->server->epoch);
	send_field(s, OPERATOR_SNAPSHOT_BEGIN, b->data, b->len);
}

static void note_unacked(struct session *s, size_t bytes)
{
	unsigned int at = (s->first_unacked + s->n_unacked++) % SESSION_UNACKED_MAX;

	s->unacked[at].revision = s->revision;
	s->unacked[at].sent_ms = server_now(s->server);
	s->unacked[at].bytes = bytes;
	s->unacked_bytes += bytes;
}

static void send_end(struct session *s)
{
	struct buf *b = &s->server->update;

	s->revision = node_state_revision(s->node->state);
	buf_reset(b);
	frame_number(b, SNAPSHOT_EPOCH, s->server->epoch);
	frame_number(b, SNAPSHOT_REVISION, s->revision);
	send_field(s, OPERATOR_SNAPSHOT_END, b->data, b->len);
	note_unacked(s, s->snapshot_bytes + b->len);
}

/* Sends changes that the agent lacks as one Update; false: nothing was sent. */
static bool send_update(struct session *s, bool snapshot, size_t limit, bool *ret_more)
{
	struct buf *b = &s->server->update;

	buf_reset(b);
	*ret_more = node_state_collect(s->node->state, snapshot, limit, &s->revision, b);
	if (buf_error(b)) {
		session_cut(s, CUT_OUT_OF_MEMORY);
		return true;
	}
	if (!b->len)
		return false;
	if (!snapshot)
		frame_number(b, UPDATE_REVISION, s->revision);
	if (snapshot)
		s->snapshot_bytes += b->len;
	s->server->stats.updates++;
	send_field(s, OPERATOR_UPDATE, b->data, b->len);
	explicit_bzero(b->data, b->len);
	return true;
}

/* ---- what is next ---------------------------------------------------------------------------- */

static void pump_body(struct session *s)
{
	bool more = true;

	while (more)
		if (send_update(s, true, SESSION_UPDATE_MAX, &more))
			return;
	s->step = STEP_LIVE;
	send_end(s);
}

static void pump_live(struct session *s)
{
	bool more = true;

	while (more && s->unacked_bytes < SESSION_WINDOW && s->n_unacked < SESSION_UNACKED_MAX &&
	       !s->has_slot) {
		size_t room = MIN((size_t)SESSION_UPDATE_MAX, SESSION_WINDOW - s->unacked_bytes);

		if (!send_update(s, false, room, &more))
			continue;
		if (!session_has_ended(s))
			note_unacked(s, s->server->update.len);
		return;
	}
}

void session_pump(struct session *s)
{
	if (s->sending || session_has_ended(s) || !s->node)
		return;
	if (s->node->touch_all) {
		s->node->touch_all = false;
		node_state_touch_all(s->node->state);
	}
	if (s->node->touch_policies) {
		s->node->touch_policies = false;
		node_state_touch_policies(s->node->state);
	}
	switch (s->step) {
	case STEP_WELCOME:
		s->step = s->resumes ? STEP_LIVE : STEP_BEGIN;
		send_welcome(s);
		break;
	case STEP_BEGIN:
		if (!slot_take(s))
			break;
		s->step = STEP_BODY;
		send_begin(s);
		break;
	case STEP_BODY:
		pump_body(s);
		break;
	case STEP_LIVE:
		pump_live(s);
		break;
	default:
		break;
	}
}

void session_sent(void *arg)
{
	struct session *s = arg;

	s->sending = false;
	if (s->watches)
		watch_ready(s->server);
	else if (s->node)
		server_ready(s->server, s->node);
}
