/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One stream, from its token to its end, as steps that only go forward. This file: authentication,
 * time limits and the end; session_send.c sends messages, session_receive.c handles those of the
 * agent. Loop thread only.
 */
#include "operator/stream/server_internal.h"

#include "operator/stream/watch.h"

enum { VERIFY_AGAIN_MS = 30000 /* when the API server could not be asked */ };

static const struct {
	const char *text;
	int status;
} cuts[STREAM_CUT_COUNT] = {
#define X(id, name, text, status) {text, status},
    STREAM_CUTS(X)
#undef X
};

/* ---- its connection -------------------------------------------------------------------------- */

static void report_auth(struct session *s, enum frontend_auth auth)
{
	frontend_report_auth(s->server->frontend, &s->ref, s->auth, auth);
	s->auth = auth;
}

/* While the token is not verified: tells the front end whether it claims to be an agent's. */
static void tell_claim(struct session *s)
{
	bool claims = s->check && stream_check_claims_agent(s->check);

	report_auth(s, claims ? FRONTEND_PENDING : FRONTEND_UNAUTHENTICATED);
}

/* ---- ending ---------------------------------------------------------------------------------- */

/* The node may have another stream from here on. */
static void detach(struct session *s)
{
	struct node *node = TAKE_PTR(s->node);

	session_release_slot(s);
	if (s->check)
		stream_check_cancel(TAKE_PTR(s->check));
	if (s->watches)
		watch_end(s->server, s);
	if (!node)
		return;
	s->server->stats.live--;
	if (node->session != s) /* another has taken its place */
		return;
	node->session = NULL;
	node->left_ms = server_now(s->server);
	watch_left(s->server, node);
}

void session_end(struct session *s, int status, const char *message)
{
	detach(s);
	if (s->stream)
		server_stream_finish(s->stream, status, message);
}

bool session_has_ended(const struct session *s)
{
	return !s->stream || server_stream_finishing(s->stream);
}

void session_cut(struct session *s, enum stream_cut cut)
{
	if (session_has_ended(s)) {
		detach(s); /* the connection ended it, and has not said so yet */
		return;
	}
	s->server->stats.cuts[cut]++;
	session_end(s, cuts[cut].status, cuts[cut].text);
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
	if (s->server->frontend)
		report_auth(s, FRONTEND_UNAUTHENTICATED);
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

/* ---- who it is ------------------------------------------------------------------------------- */

static void refuse(struct session *s, enum stream_refusal refusal)
{
	s->server->stats.refused[refusal]++;
	report_auth(s, FRONTEND_REFUSED);
	session_end(s, stream_refusal_status(refusal), stream_refusal_text(refusal));
}

static void watch(struct session *s)
{
	s->step = STEP_WATCH;
	s->deadline_ms = 0;
	s->end_ms = UINT64_MAX;
	if (watch_begin(s->server, s) < 0)
		session_cut(s, CUT_WATCHERS);
	else
		server_stream_read(s->stream); /* to learn of its end */
}

/* Ends the stream after LEAST ms and a random time, so that agents do not reconnect all at once. */
static void set_age(struct session *s, uint64_t least)
{
	s->end_ms = server_now(s->server) + least +
		    server_random(s->server) % (s->server->o.limits.age_ms / 5 + 1);
}

/*
 * A node has one stream. When more than half of all streams are in use, the node's others that wait
 * for their Hello are cut.
 */
static void cut_waiting(const struct session *s)
{
	struct stream_server_counts counts;
	struct session *other, *next;

	stream_server_read(s->server->streams, &counts);
	if (counts.open <= s->server->o.limits.streams / 2)
		return;
	for (other = s->server->sessions; other; other = next) {
		next = other->next;
		if (other != s && other->step == STEP_HELLO &&
		    streq(other->node_name, s->node_name))
			session_cut(other, CUT_REPLACED);
	}
}

static void granted(struct session *s, const struct stream_grant *grant)
{
	uint64_t now = server_now(s->server), age = s->server->o.limits.age_ms;

	s->server->stats.refused[STREAM_GRANTED]++;
	report_auth(s, FRONTEND_GRANTED);
	if (s->watches) {
		watch(s);
		return;
	}
	s->has_pod = grant->has_pod;
	memcpy(s->pod_uid, grant->pod_uid, sizeof(s->pod_uid));
	snprintf(s->node_name, sizeof(s->node_name), "%s", grant->node);
	cut_waiting(s);
	s->step = STEP_HELLO;
	s->deadline_ms = now + s->server->o.limits.hello_ms;
	set_age(s, age - age / 10);
	server_stream_read(s->stream);
}

/*
 * The first answer, or one while the stream is in use. When the API server cannot be asked, a
 * stream that was granted stays until the token itself has expired. A pod that was known and is not
 * in the cache any more is gone.
 */
static void on_grant(void *arg, const struct stream_grant *grant)
{
	struct session *s = arg;
	uint64_t now = server_now(s->server);
	bool first = s->step == STEP_AUTH;

	s->check = NULL;
	if (session_has_ended(s))
		return;
	if (grant->refusal != STREAM_GRANTED) {
		bool unsure = stream_refusal_status(grant->refusal) == RPC_UNAVAILABLE &&
			      grant->refusal != STREAM_UNKNOWN_POD && !s->pod_gone;

		if (first || !unsure || s->token_until_ms <= now)
			refuse(s, grant->refusal);
		else
			s->verify_ms = now + VERIFY_AGAIN_MS;
		return;
	}
	if (grant->controller != s->watches) {
		refuse(s, STREAM_OTHER_ACCOUNT);
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
	else if (s->step == STEP_AUTH)
		tell_claim(s);
}

static void *on_opened(void *arg, struct server_stream *stream,
		       const struct stream_request *request)
{
	struct node_server *server = arg;
	struct session *s = calloc(1, sizeof(*s));

	if (s)
		s->authorization = strdup(request->authorization);
	if (!s || !s->authorization) {
		free(s);
		return NULL;
	}
	s->server = server;
	s->stream = stream;
	s->watches = request->method == METHOD_WATCH;
	s->ref = frontend_find(server->frontend, request->fd);
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

	if (session_has_ended(s))
		return;
	if (s->step == STEP_AUTH) {
		if (s->deadline_ms <= now)
			refuse(s, STREAM_API_SERVER);
		else
			tell_claim(s);
		return;
	}
	if (s->end_ms <= now && stream_auth_is_away(server->auth))
		set_age(s, 0); /* no other replica could verify its token */
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
	else if (s->step == STEP_WATCH)
		watch_beat(s);
}

const struct stream_server_events session_events = {
    .opened = on_opened, .received = session_received, .sent = session_sent, .closed = on_closed};
