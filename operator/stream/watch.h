/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends agents' events (kiln.node.v1.NodeEvents) to the controller: to the callers of Watch, and to
 * the events() callback of this process. Each node keeps its last report; the nodes are in a list
 * by when they changed last, and each watcher has its place in it. So only the newest event of a
 * node is sent, however slow a watcher is. Loop thread only.
 */
#pragma once

#include "operator/stream/server_internal.h"

enum {
	WATCH_MESSAGE = 16 << 10, /* bytes after which a message takes no other node */
	WATCH_REPORT_MAX = 16 << 10,
	WATCHERS_MAX = 4,
};

struct watcher {
	struct watcher *prev, *next;
	struct session *session; /* NULL: the process's own */
	struct node *at;	 /* the next node to send; NULL: none */
	bool is_whole;		 /* all nodes were sent once, and the message that says so */
};

/* NODE's agent has sent a report, MESSAGE, or (NULL) its Hello. */
void watch_heard(struct node_server *server, struct node *node,
		 const Kiln__Node__V1__Report *message);
/* NODE's stream has ended. */
void watch_left(struct node_server *server, struct node *node);
/* The destinations of NODE that are left out may have changed. */
void watch_look(struct node_server *server, struct node *node);
/* NODE's state is about to be freed. */
void watch_forget(struct node_server *server, struct node *node);

/* -ENOSPC: there are enough of them. */
int watch_begin(struct node_server *server, struct session *session) _must_check_;
void watch_end(struct node_server *server, const struct session *session);
/* Sends an empty message when nothing was sent for a while: the replica is alive. */
void watch_beat(struct session *s);
/* Schedules watch_pump(). */
void watch_ready(struct node_server *server);
void watch_pump(struct node_server *server);
