/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One stream, from its token to its end, as steps that only go forward. What is sent next follows
 * from the step alone; there is no queue of messages: the node's state knows what the agent lacks
 * (node_state_collect), and one message is under way at most.
 *
 * A snapshot needs one of a few slots, kept until the agent has acknowledged the end of it, so that
 * thousands of agents that come at once are served one after another. A snapshot cannot be
 * acknowledged in between, so the window does not hold for it; nothing follows it before its Ack.
 */
#include "operator/stream/server_internal.h"

#include "kiln/node/v1/node.pb-c.h"
#include "operator/stream/frame.h"

enum {
	PROTOCOL = 1,
	FACT_MAX = 256,
	/* Fields of node.proto. */
	OPERATOR_WELCOME = 1,
	OPERATOR_SNAPSHOT_BEGIN = 2,
	OPERATOR_UPDATE = 3,
	OPERATOR_SNAPSHOT_END = 4,
	UPDATE_REVISION = 1,
	UPDATE_PADDING = 15,
	SNAPSHOT_EPOCH = 1,
	SNAPSHOT_REVISION = 2,
	/* Of an agent, a second and at once: messages besides useful Acks, bytes, reports. */
	MESSAGES_RATE = 20,
	MESSAGES_BURST = 100,
	BYTES_RATE = 64 << 10,
	BYTES_BURST = 1 << 20,
	REPORTS_RATE = 1,
	REPORTS_BURST = 10,
	VERIFY_AGAIN_MS = 30000, /* when the API server could not be asked */
	DECODED_MAX = 1 << 20,	 /* memory of one decoded message */
};

static const struct {
	const char *text;
	int status;
} cuts[STREAM_CUT_COUNT] = {
#define X(id, name, text, status) {text, status},
    STREAM_CUTS(X)
#undef X
};

static bool bucket_take(struct bucket *b, uint64_t now_ms, uint64_t n, uint64_t rate,
			uint64_t burst)
{
	uint64_t full = burst * 1000, elapsed = MIN(now_ms - b->last_ms, full / rate + 1);

	b->level = b->last_ms ? MIN(b->level + elapsed * rate, full) : full;
	b->last_ms = now_ms;
	if (b->level < n * 1000)
		return false;
	b->level -= n * 1000;
	return true;
}

/* ---- ending ---------------------------------------------------------------------------------- */

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

static void slot_release(struct session *s)
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

/* The node may have another stream from here on. */
static void detach(struct session *s)
{
	struct node *node = TAKE_PTR(s->node);

	slot_release(s);
	if (s->check)
		stream_check_cancel(TAKE_PTR(s->check));
	if (!node)
		return;
	node->session = NULL;
	node->left_ms = server_now(s->server);
	s->server->stats.live--;
	if (s->server->o.left)
		s->server->o.left(s->server->o.arg, s->node_name);
}

static void end(struct session *s, int status, const char *message)
{
	detach(s);
	if (s->stream)
		server_stream_finish(s->stream, status, message);
}

static bool has_ended(const struct session *s)
{
	return !s->stream || server_stream_finishing(s->stream);
}

void session_cut(struct session *s, enum stream_cut cut)
{
	if (has_ended(s))
		return;
	s->server->stats.cuts[cut]++;
	end(s, cuts[cut].status, cuts[cut].text);
}

static void wipe(char **secret)
{
	if (*secret)
		explicit_bzero(*secret, strlen(*secret));
	free(TAKE_PTR(*secret));
}

void session_free(struct session *s)
{
	s->stream = NULL;
	detach(s);
	if (s->prev)
		s->prev->next = s->next;
	else
		s->server->sessions = s->next;
	if (s->next)
		s->next->prev = s->prev;
	wipe(&s->authorization);
	for (size_t i = 0; i < ARRAY_SIZE(s->facts); i++)
		free(s->facts[i]);
	free(s);
}

static void on_closed(void *arg)
{
	session_free(arg);
}

/* ---- sending --------------------------------------------------------------------------------- */

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
	m.protocol = PROTOCOL;
	m.operator_version = (char *)KILN_VERSION;
	m.node_name = s->node_name;
	m.node_uid = uid;
	m.cluster_uid = (char *)node_view_cluster_uid(server->view);
	m.report_interval_s = server->o.report_interval_s;
	buf_reset(&server->update);
	p = buf_extend(&server->update, kiln__node__v1__welcome__get_packed_size(&m));
	if (!p) {
		session_cut(s, CUT_OUT_OF_MEMORY);
		return;
	}
	(void)kiln__node__v1__welcome__pack(&m, p);
	send_field(s, OPERATOR_WELCOME, server->update.data, server->update.len);
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

/* A large pod whose length the TLS layer cannot send has another length at the next try. */
static void pad(struct node_server *server, struct buf *b)
{
	static const uint8_t zeros[SESSION_PADDING_MAX];

	if (b->len >= STREAM_SAFE_MESSAGE)
		frame_bytes(b, UPDATE_PADDING, zeros, server_random(server) % sizeof(zeros));
}

/* What the agent lacks, as one Update; false: nothing was sent. */
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
	pad(s->server, b);
	if (snapshot)
		s->snapshot_bytes += b->len;
	s->server->stats.updates++;
	send_field(s, OPERATOR_UPDATE, b->data, b->len);
	explicit_bzero(b->data, b->len);
	return true;
}

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
		if (!has_ended(s))
			note_unacked(s, s->server->update.len);
		return;
	}
}

void session_pump(struct session *s)
{
	if (s->sending || has_ended(s) || !s->node)
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

static void on_sent(void *arg)
{
	struct session *s = arg;

	s->sending = false;
	if (s->node)
		server_ready(s->server, s->node);
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* How much memory a message may take once decoded: many empty parts are small on the wire. */
struct arena {
	size_t left;
};

static void *arena_alloc(void *arg, size_t size)
{
	struct arena *a = arg;

	if (size > a->left)
		return NULL;
	a->left -= size;
	return malloc(size);
}

static void arena_free(void *arg, void *p)
{
	free(p);
}

static char *fact(const char *text)
{
	char *copy = strndup(text, FACT_MAX);

	for (char *p = copy; p && *p; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			*p = '?';
	return copy;
}

static void report(struct session *s, const Kiln__Node__V1__Report *message)
{
	struct node_server *server = s->server;
	struct node_report r = {.node = s->node_name, .message = message};

	if (!server->o.report)
		return;
	r.agent_version = s->facts[0] ? s->facts[0] : "";
	r.kernel = s->facts[1] ? s->facts[1] : "";
	r.cgroup_mode = s->facts[2] ? s->facts[2] : "";
	r.container_runtime = s->facts[3] ? s->facts[3] : "";
	server->o.report(server->o.arg, &r);
}

static void on_hello(struct session *s, const Kiln__Node__V1__Hello *hello)
{
	struct node_server *server = s->server;
	struct node *node;

	if (s->step != STEP_HELLO) {
		session_cut(s, CUT_SECOND_HELLO);
		return;
	}
	if (hello->protocol < PROTOCOL) {
		session_cut(s, CUT_OLD_PROTOCOL);
		return;
	}
	node = server_node(server, s->node_name);
	if (!node) {
		session_cut(s, CUT_OUT_OF_MEMORY);
		return;
	}
	if (node->session)
		session_cut(node->session, CUT_REPLACED);
	node->session = s;
	s->node = node;
	server->stats.live++;
	s->facts[0] = fact(hello->agent_version);
	s->facts[1] = fact(hello->kernel);
	s->facts[2] = fact(hello->cgroup_mode);
	s->facts[3] = fact(hello->container_runtime);
	s->deadline_ms = 0;
	s->resumes =
	    hello->epoch == server->epoch && node_state_resumes(node->state, hello->revision);
	server->stats.resumes += s->resumes;
	node_state_set_brief(node->state, hello->pod_policies);
	s->revision = s->resumes ? hello->revision : 0;
	s->step = STEP_WELCOME;
	server_ready(server, node);
	report(s, NULL);
}

/* True when it told of something new. */
static bool on_ack(struct session *s, const Kiln__Node__V1__Ack *ack)
{
	unsigned int before = s->n_unacked;

	if (!s->node || ack->epoch != s->server->epoch || ack->revision > s->revision ||
	    s->step != STEP_LIVE) {
		session_cut(s, CUT_BAD_ACK);
		return true;
	}
	while (s->n_unacked && s->unacked[s->first_unacked].revision <= ack->revision) {
		s->unacked_bytes -= s->unacked[s->first_unacked].bytes;
		s->first_unacked = (s->first_unacked + 1) % SESSION_UNACKED_MAX;
		s->n_unacked--;
	}
	if (s->n_unacked == before)
		return false;
	s->server->stats.acks++;
	slot_release(s);
	server_ready(s->server, s->node);
	return true;
}

static void on_report(struct session *s, const Kiln__Node__V1__Report *message)
{
	struct node_server *server = s->server;

	if (!s->node) {
		session_cut(s, CUT_NO_HELLO);
	} else if (!bucket_take(&s->reports, server_now(server), 1, REPORTS_RATE, REPORTS_BURST)) {
		server->stats.reports_dropped++;
	} else {
		server->stats.reports++;
		report(s, message);
	}
}

static void on_message(struct session *s, const Kiln__Node__V1__AgentMessage *m)
{
	uint64_t now = server_now(s->server);
	bool free_of_charge = false;

	switch (m->message_case) {
	case KILN__NODE__V1__AGENT_MESSAGE__MESSAGE_HELLO:
		on_hello(s, m->hello);
		break;
	case KILN__NODE__V1__AGENT_MESSAGE__MESSAGE_ACK:
		free_of_charge = on_ack(s, m->ack);
		break;
	case KILN__NODE__V1__AGENT_MESSAGE__MESSAGE_REPORT:
		on_report(s, m->report);
		break;
	default: /* a newer agent's */
		break;
	}
	if (!free_of_charge && !bucket_take(&s->messages, now, 1, MESSAGES_RATE, MESSAGES_BURST))
		session_cut(s, CUT_TOO_MUCH);
}

static void on_received(void *arg, const uint8_t *data, size_t len)
{
	struct session *s = arg;
	struct arena arena = {.left = DECODED_MAX};
	ProtobufCAllocator allocator = {arena_alloc, arena_free, &arena};
	Kiln__Node__V1__AgentMessage *m;

	if (!data) {
		end(s, RPC_OK, "");
		return;
	}
	if (!bucket_take(&s->bytes, server_now(s->server), len, BYTES_RATE, BYTES_BURST)) {
		session_cut(s, CUT_TOO_MUCH);
		return;
	}
	m = kiln__node__v1__agent_message__unpack(&allocator, len, data);
	if (!m) {
		session_cut(s, CUT_BAD_MESSAGE);
		return;
	}
	on_message(s, m);
	kiln__node__v1__agent_message__free_unpacked(m, &allocator);
	if (!has_ended(s))
		server_stream_read(s->stream);
}

/* ---- who it is ------------------------------------------------------------------------------- */

static void refuse(struct session *s, enum stream_refusal refusal)
{
	s->server->stats.refused[refusal]++;
	end(s, stream_refusal_status(refusal), stream_refusal_text(refusal));
}

static void granted(struct session *s, const struct stream_grant *grant)
{
	uint64_t now = server_now(s->server), age = s->server->o.limits.age_ms;

	s->server->stats.refused[STREAM_GRANTED]++;
	snprintf(s->node_name, sizeof(s->node_name), "%s", grant->node);
	s->step = STEP_HELLO;
	s->deadline_ms = now + s->server->o.limits.hello_ms;
	s->end_ms = now + age - age / 10 + server_random(s->server) % (age / 5 + 1);
	server_stream_read(s->stream);
}

/*
 * The first answer, or one more while the stream is in use. When the API server cannot be asked,
 * who is in stays in, until the token itself has expired.
 */
static void on_grant(void *arg, const struct stream_grant *grant)
{
	struct session *s = arg;
	uint64_t now = server_now(s->server);
	bool first = s->step == STEP_AUTH;

	s->check = NULL;
	if (has_ended(s))
		return;
	if (grant->refusal != STREAM_GRANTED) {
		bool unsure = stream_refusal_status(grant->refusal) == RPC_UNAVAILABLE;

		if (first || !unsure || s->token_until_ms <= now)
			refuse(s, grant->refusal);
		else
			s->verify_ms = now + VERIFY_AGAIN_MS;
		return;
	}
	s->verify_ms = grant->until_ms;
	s->token_until_ms = grant->token_until_ms;
	if (first)
		granted(s, grant);
	else if (!streq(grant->node, s->node_name)) /* cannot be: a token is bound once */
		refuse(s, STREAM_REJECTED);
}

static void verify(struct session *s, bool fresh)
{
	struct stream_grant grant;

	if (stream_auth_check(s->server->auth, s->authorization, fresh, on_grant, s, &grant,
			      &s->check))
		on_grant(s, &grant);
}

static void *on_opened(void *arg, struct server_stream *stream, const char *authorization,
		       const char *peer)
{
	struct node_server *server = arg;
	struct session *s = calloc(1, sizeof(*s));

	if (s)
		s->authorization = strdup(authorization);
	if (!s || !s->authorization) {
		free(s);
		return NULL;
	}
	s->server = server;
	s->stream = stream;
	s->deadline_ms = server_now(server) + server->o.limits.auth_ms;
	s->next = server->sessions;
	if (s->next)
		s->next->prev = s;
	server->sessions = s;
	if (server->draining)
		session_cut(s, CUT_ENDING);
	else
		verify(s, false);
	return s;
}

void session_tick(struct session *s)
{
	struct node_server *server = s->server;
	uint64_t now = server_now(server), ack_ms = server->o.limits.ack_ms;

	if (has_ended(s))
		return;
	if (s->step == STEP_AUTH) {
		if (s->deadline_ms <= now)
			refuse(s, STREAM_API_SERVER);
		return;
	}
	if (s->deadline_ms && s->deadline_ms <= now)
		session_cut(s, CUT_NO_HELLO);
	else if (s->sending && s->sending_since_ms + ack_ms <= now)
		session_cut(s, CUT_NO_ACK);
	else if (s->n_unacked && s->unacked[s->first_unacked].sent_ms + ack_ms <= now)
		session_cut(s, CUT_NO_ACK);
	else if (s->end_ms <= now)
		session_cut(s, CUT_AGE);
	else if (s->verify_ms <= now && !s->check)
		verify(s, true);
}

const struct stream_server_events session_events = {
    .opened = on_opened, .received = on_received, .sent = on_sent, .closed = on_closed};
