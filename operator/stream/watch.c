/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See the header. server->events is the list, in the order of the last changes. A node that changes
 * moves to its end; a watcher whose next node it was continues with the node after it, and a
 * watcher that has sent all nodes continues with this one.
 */
#include "operator/stream/watch.h"

#include <time.h>
#include <utlist.h>

#include "operator/stream/frame.h"

enum {
	/* Fields of node.proto. */
	EVENTS_REPLICA = 1,
	EVENTS_NODES = 2,
	EVENTS_WHOLE = 3,
	EVENT_NODE = 1,
	EVENT_CONNECTED = 2,
	EVENT_HEARD = 3,
	EVENT_FACTS = 4, /* and the three after it */
	EVENT_REPORT = 8,
	EVENT_LEFT_OUT = 9,
	LEFT_OUT_NAME = 1,
	LEFT_OUT_REASON = 2,
	LEFT_OUT_MESSAGE = 3,
	BEAT_MS = 20000,
};

/* ---- the list -------------------------------------------------------------------------------- */

static void unlink_event(struct node_server *server, struct node *node)
{
	struct watcher *w;

	if (!node->in_events)
		return;
	DL_FOREACH (server->watchers, w)
		if (w->at == node)
			w->at = node->event_next;
	DL_DELETE2(server->events, node, event_prev, event_next);
	node->in_events = false;
}

static void note(struct node_server *server, struct node *node)
{
	struct watcher *w;

	unlink_event(server, node);
	DL_APPEND2(server->events, node, event_prev, event_next);
	node->in_events = true;
	DL_FOREACH (server->watchers, w)
		if (!w->at)
			w->at = node;
	watch_ready(server);
}

static uint64_t hash_left_out(const struct node *node)
{
	const struct left_out *list[LEFT_OUT_MAX];
	size_t n = node_state_left_out(node->state, list);
	uint64_t h = n;

	for (size_t i = 0; i < n; i++) {
		h = hash_bytes(list[i]->id, strlen(list[i]->id), h);
		h = hash_bytes(list[i]->text, strlen(list[i]->text), h);
	}
	return h;
}

static int64_t wall_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void drop_report(struct node *node)
{
	free(TAKE_PTR(node->report));
	node->n_report = 0;
}

/* Replaces the node's report. False: it is too large, or no memory; then there is none. */
static bool keep_report(struct node *node, const Kiln__Node__V1__Report *message)
{
	Kiln__Node__V1__Report r = *message;
	size_t n;

	r.base.n_unknown_fields = 0; /* of a newer agent: nobody could use them */
	n = kiln__node__v1__report__get_packed_size(&r);
	drop_report(node);
	node->report = n <= WATCH_REPORT_MAX ? malloc(n + 1) : NULL;
	if (!node->report)
		return false;
	node->n_report = kiln__node__v1__report__pack(&r, node->report);
	return true;
}

void watch_heard(struct node_server *server, struct node *node,
		 const Kiln__Node__V1__Report *message)
{
	node->heard_ms = wall_ms();
	if (!message)
		drop_report(node); /* it may be another agent */
	else if (!keep_report(node, message))
		server->stats.reports_dropped++;
	note(server, node);
}

void watch_left(struct node_server *server, struct node *node)
{
	note(server, node);
}

void watch_look(struct node_server *server, struct node *node)
{
	uint64_t h = hash_left_out(node);

	if (h == node->left_out_hash)
		return;
	node->left_out_hash = h;
	note(server, node);
}

void watch_forget(struct node_server *server, struct node *node)
{
	unlink_event(server, node);
	drop_report(node);
}

/* ---- messages -------------------------------------------------------------------------------- */

static void put_text(struct buf *out, unsigned int field, const char *text)
{
	if (text && text[0])
		frame_bytes(out, field, text, strlen(text));
}

static void put_left_out(struct buf *out, const struct left_out *l)
{
	char bytes[DESTINATION_CAUSE_MAX + 1024], name[512];
	struct buf b;

	snprintf(name, sizeof(name), "%s%s%s", l->ns, l->ns[0] ? "/" : "", l->name);
	buf_init(&b, sizeof(bytes));
	put_text(&b, LEFT_OUT_NAME, name);
	put_text(&b, LEFT_OUT_REASON, l->reason);
	put_text(&b, LEFT_OUT_MESSAGE, l->text);
	if (!buf_error(&b))
		frame_bytes(out, EVENT_LEFT_OUT, b.data, b.len);
	buf_done(&b);
}

static void put_event(struct buf *out, const struct node *node)
{
	const struct left_out *list[LEFT_OUT_MAX];
	const struct session *s = node->session;
	size_t n;

	put_text(out, EVENT_NODE, node_state_name(node->state));
	if (!s)
		return;
	frame_number(out, EVENT_CONNECTED, 1);
	frame_number(out, EVENT_HEARD, (uint64_t)node->heard_ms);
	for (unsigned int i = 0; i < ARRAY_SIZE(s->facts); i++)
		put_text(out, EVENT_FACTS + i, s->facts[i]);
	if (node->report)
		frame_bytes(out, EVENT_REPORT, node->report, node->n_report);
	n = node_state_left_out(node->state, list);
	for (size_t i = 0; i < n; i++)
		put_left_out(out, list[i]);
}

/* Makes the next message for W in server->message; false when there is nothing to send. */
static bool make_message(struct node_server *server, struct watcher *w)
{
	struct buf *m = &server->message, *e = &server->update;

	if (!w->at && w->is_whole)
		return false;
	buf_reset(m);
	put_text(m, EVENTS_REPLICA, server->o.replica);
	for (; w->at && m->len < WATCH_MESSAGE; w->at = w->at->event_next) {
		if (!w->at->session && !w->is_whole)
			continue; /* its connection was never sent */
		buf_reset(e);
		put_event(e, w->at);
		frame_bytes(m, EVENTS_NODES, e->data, e->len);
	}
	if (!w->at && !w->is_whole) {
		w->is_whole = true;
		frame_number(m, EVENTS_WHOLE, 1);
	}
	return !buf_error(m) && !buf_error(e);
}

static void send_message(struct session *s)
{
	struct node_server *server = s->server;

	if (server_stream_send(s->stream, server->message.data, server->message.len) < 0) {
		session_cut(s, CUT_OUT_OF_MEMORY);
		return;
	}
	s->sending = true;
	s->sending_since_ms = server_now(server);
	server->stats.bytes += server->message.len;
}

void watch_beat(struct session *s)
{
	struct node_server *server = s->server;

	if (s->sending || server_now(server) < s->sending_since_ms + BEAT_MS)
		return;
	buf_reset(&server->message);
	put_text(&server->message, EVENTS_REPLICA, server->o.replica);
	send_message(s);
}

static void pump(struct node_server *server, struct watcher *w)
{
	struct session *s = w->session;

	if (s && (s->sending || session_has_ended(s)))
		return;
	if (!make_message(server, w))
		return;
	if (s) {
		send_message(s);
		return;
	}
	server->o.events(server->o.arg, (const uint8_t *)server->message.data, server->message.len);
	watch_ready(server);
}

void watch_pump(struct node_server *server)
{
	struct watcher *w, *next;

	server->watch_due = false;
	DL_FOREACH_SAFE (server->watchers, w, next)
		pump(server, w);
}

/* ---- watchers -------------------------------------------------------------------------------- */

int watch_begin(struct node_server *server, struct session *session)
{
	struct watcher *w;
	int count;

	DL_COUNT(server->watchers, w, count);
	if (count >= WATCHERS_MAX)
		return -ENOSPC;
	w = calloc(1, sizeof(*w));
	if (!w)
		return -ENOMEM;
	w->session = session;
	w->at = server->events;
	DL_APPEND(server->watchers, w);
	watch_ready(server);
	return 0;
}

void watch_end(struct node_server *server, const struct session *session)
{
	struct watcher *w, *next;

	DL_FOREACH_SAFE (server->watchers, w, next) {
		if (w->session != session)
			continue;
		DL_DELETE(server->watchers, w);
		free(w);
	}
}
