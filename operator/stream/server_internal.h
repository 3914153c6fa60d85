/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by server.c (nodes, caches, clock), session.c, session_send.c and session_receive.c (one
 * stream's protocol) and watch.c (events for the controller). Loop thread only.
 */
#pragma once

#include "lib/uthash.h"
#include "kiln/node/v1/node.pb-c.h"
#include "operator/stream/node_state.h"
#include "operator/stream/server.h"

enum {
	STREAM_PROTOCOL = 1,
	SESSION_WINDOW = 1 << 20, /* bytes that an agent has not acknowledged */
	SESSION_UNACKED_MAX = 32, /* and messages */
	/*
	 * Bytes of an Update, and one pod more. Pages of a connection's buffers that a message has
	 * touched stay resident: with 8 KiB a stream costs 8 KiB more.
	 */
	SESSION_UPDATE_MAX = 2560,
	SESSION_MESSAGE_MAX = 128 << 10, /* of an agent's */
};

/* A token bucket in thousandths. */
struct bucket {
	uint64_t level, last_ms;
};

enum { METHOD_CONNECT, METHOD_WATCH, METHODS };

enum session_step {
	STEP_AUTH,
	STEP_HELLO,   /* wait for the agent's Hello */
	STEP_WELCOME, /* send Welcome; then, unless the agent resumes, a snapshot */
	STEP_BEGIN,
	STEP_BODY,
	STEP_LIVE,
	STEP_WATCH, /* the controller's: send agents' events (watch.c) */
};

struct session {
	struct node_server *server;
	struct server_stream *stream; /* NULL: it has closed */
	struct frontend_ref ref;      /* its connection */
	enum frontend_auth auth;      /* as reported to the front end */
	struct session *prev, *next;  /* server->sessions */
	struct node *node;	      /* from Hello on */
	enum session_step step;
	bool watches; /* it called Watch: a controller, if its token is verified */
	bool resumes, sending, has_slot, waits;
	bool has_pod;	     /* the token's pod is known */
	uint8_t pod_uid[16]; /* uid of that pod */
	bool pod_gone;	     /* the cache does not have that pod any more */
	char *authorization; /* secret: to verify again */
	struct stream_check *check;
	char node_name[STREAM_NODE_MAX + 1];
	char *facts[4]; /* of its Hello, in the order of NodeEvent's fields */
	uint64_t deadline_ms, verify_ms, token_until_ms, end_ms;
	uint64_t revision; /* that it has been sent */
	uint64_t sending_since_ms;
	struct {
		uint64_t revision, sent_ms;
		size_t bytes;
	} unacked[SESSION_UNACKED_MAX]; /* a ring */
	unsigned int first_unacked, n_unacked;
	size_t unacked_bytes, snapshot_bytes;
	struct bucket messages, bytes, reports;
	struct session *slot_prev, *slot_next; /* server->slot_waiting */
};

/* A node that has a stream, or had one a while ago. */
struct node {
	struct node_state *state;
	struct session *session; /* NULL: none */
	uint64_t left_ms;	 /* when the last stream ended */
	bool ready;		 /* in server->ready */
	bool touch_all, touch_policies;
	struct node *ready_next;
	/* For the controller (watch.c). */
	struct node *event_prev, *event_next; /* server->events */
	bool in_events;
	int64_t heard_ms; /* since the epoch */
	uint8_t *report;  /* the last one, packed; NULL: none */
	size_t n_report;
	uint64_t left_out_hash;
	UT_hash_handle hh; /* by node_state_name() */
};

struct node_server {
	struct node_server_options o;
	struct frontend *frontend;
	struct stream_server *streams;
	struct stream_auth *auth;
	struct node_view *view;
	struct destination_table *destinations; /* NULL: without o.secrets */
	struct node *nodes;
	struct node *ready, *ready_last;
	struct session *sessions;
	struct session *slot_waiting, *slot_waiting_last;
	struct node *events;	  /* by when something of them changed last */
	struct watcher *watchers; /* watch.c */
	bool watch_due;
	uv_idle_t pump; /* while any is ready; a timer of 0 ms would let nothing else run */
	uv_timer_t tick;
	unsigned int open_handles;
	bool draining;
	uint64_t epoch, random;
	uint64_t settings;	/* of the view, at the last change of the cluster's config */
	uint64_t revision_base; /* highest revision of forgotten states */
	uint64_t pods_refused;
	struct node_server_stats stats;
	struct pod_info info; /* scratch: it is large */
	struct buf update, message;
};

/* server.c */
uint64_t server_now(const struct node_server *server);
uint64_t server_random(struct node_server *server);
/* How often a node's agent is to report, in seconds: rarer in a large cluster. */
uint32_t server_report_interval_s(const struct node_server *server);
/* The node NAME, with its state, made if needed. NULL out of memory. */
struct node *server_node(struct node_server *server, const char *name);
/* Queues the node for session_pump(). */
void server_ready(struct node_server *server, struct node *node);

/* session.c */
extern const struct stream_server_events session_events; /* ARG is to be set to the server */
/* Once a second. */
void session_tick(struct session *s);
/* Both do nothing when the session has ended. Its node may then get another stream. */
void session_cut(struct session *s, enum stream_cut cut);
void session_end(struct session *s, int status, const char *message);
bool session_has_ended(const struct session *s);
void session_free(struct session *s); /* its stream is gone */

/* session_send.c */
/* Sends the next message, if there is one and it may be sent. */
void session_pump(struct session *s);
/* Releases the slot of its snapshot, or its place in the queue for one. */
void session_release_slot(struct session *s);
void session_sent(void *arg);

/* session_receive.c */
void session_received(void *arg, const uint8_t *data, size_t len);
