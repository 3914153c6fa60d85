/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What server.c (nodes, caches, clock), session.c, session_send.c and session_receive.c (one
 * stream's protocol) and watch.c (what the controller is told) share. Loop thread only.
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
	/* And one pod more. What a connection's buffers hold of a message stays touched: with 8 KiB
	 * a stream costs 8 KiB more. */
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
	STEP_HELLO,   /* the agent's is awaited */
	STEP_WELCOME, /* ours is due, and so on */
	STEP_BEGIN,
	STEP_BODY,
	STEP_END,
	STEP_LIVE,
	STEP_WATCH, /* the controller's: what agents say is told (watch.c) */
};

struct session {
	struct node_server *server;
	struct server_stream *stream; /* NULL: cannot be ended any more */
	struct door_guest guest;      /* its connection */
	enum door_standing standing;  /* as the door was told */
	struct session *prev, *next;  /* server->sessions */
	struct node *node;	      /* from Hello on */
	enum session_step step;
	bool watches; /* it asked for Watch: a controller, or who says so */
	bool resumes, sending, has_slot, waits;
	bool has_pod;	     /* the token's pod is known: */
	uint8_t pod_uid[16]; /* which one, */
	bool pod_gone;	     /* and whether the cache has it no more */
	char *authorization; /* secret: to verify again */
	struct stream_check *check;
	char node_name[STREAM_NODE_MAX + 1];
	char *facts[4]; /* of its hello, in the order of struct node_report */
	uint64_t deadline_ms, verify_ms, token_until_ms, end_ms;
	uint64_t revision; /* what it has been sent */
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
	uint64_t left_ms;	 /* since when */
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
	struct door *door;
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
	uint64_t settings;	/* of the view, when pods were last looked at for their policies */
	uint64_t revision_base; /* no state that was forgotten got further */
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
/* The node's state, made when there is none. NULL out of memory. */
struct node *server_node(struct node_server *server, const char *name);
/* session_pump() soon. */
void server_ready(struct node_server *server, struct node *node);

/* session.c */
extern const struct stream_server_events session_events; /* ARG is to be set to the server */
/* Once a second. */
void session_tick(struct session *s);
/* Neither does anything more once it has ended; its node may have another stream. */
void session_cut(struct session *s, enum stream_cut cut);
void session_end(struct session *s, int status, const char *message);
bool session_has_ended(const struct session *s);
void session_free(struct session *s); /* its stream is gone */

/* session_send.c */
/* Sends the next message when there is one and it may. */
void session_pump(struct session *s);
/* Its snapshot's, or its place in the queue for one. */
void session_release_slot(struct session *s);
void session_sent(void *arg);

/* session_receive.c */
void session_received(void *arg, const uint8_t *data, size_t len);
