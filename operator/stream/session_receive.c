/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages of an agent. They are not trusted: their number, rate and decoded size are limited,
 * and a stream that exceeds a limit or breaks the order of the protocol is cut. Loop thread only.
 */
#include "operator/stream/server_internal.h"

#include "operator/stream/watch.h"

enum {
	FACT_MAX = 256,
	/*
	 * Limits for an agent, a second and at once: messages except useful Acks, bytes, reports.
	 */
	MESSAGES_RATE = 20,
	MESSAGES_BURST = 100,
	BYTES_RATE = 64 << 10,
	BYTES_BURST = 1 << 20,
	REPORTS_RATE = 1,
	REPORTS_BURST = 10,
	DECODED_MAX = 1 << 20, /* memory of one decoded message */
};

/* ---- limits ---------------------------------------------------------------------------------- */

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

/* Limits the memory of a decoded message: many empty parts are small on the wire. */
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

/* ---- messages -------------------------------------------------------------------------------- */

static char *fact(const char *text)
{
	char *copy = strndup(text, FACT_MAX);

	for (char *p = copy; p && *p; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			*p = '?';
	return copy;
}

static void on_hello(struct session *s, const Kiln__Node__V1__Hello *hello)
{
	struct node_server *server = s->server;
	struct node *node;

	if (s->step != STEP_HELLO) {
		session_cut(s, CUT_SECOND_HELLO);
		return;
	}
	if (hello->protocol < STREAM_PROTOCOL) {
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
	watch_heard(server, node, NULL);
}

/* True when it acknowledges something new. */
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
	session_release_slot(s);
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
		watch_heard(server, s->node, message);
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

/* A WatchRequest is empty and comes once. The call goes on when the client has ended its side. */
static void on_watch_request(struct session *s, bool is_message)
{
	if (!is_message)
		return;
	if (!bucket_take(&s->messages, server_now(s->server), 1, 1, 1))
		session_cut(s, CUT_BAD_MESSAGE);
	else
		server_stream_read(s->stream);
}

void session_received(void *arg, const uint8_t *data, size_t len)
{
	struct session *s = arg;
	struct arena arena = {.left = DECODED_MAX};
	ProtobufCAllocator allocator = {arena_alloc, arena_free, &arena};
	Kiln__Node__V1__AgentMessage *m;

	if (s->watches) {
		on_watch_request(s, data != NULL);
		return;
	}
	if (!data) {
		session_end(s, RPC_OK, "");
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
	if (!session_has_ended(s))
		server_stream_read(s->stream);
}
