/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What agents say, on its way to the controller (kiln.node.v1.NodeEvents): to the calls of Watch,
 * and to who asked for it in this process. Each node keeps its last report; the nodes are in a list
 * by when something of them changed last, and each watcher has its place in it. So of a node only
 * the newest event is told, however slow a watcher is. Loop thread only.
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
	struct node *at;	 /* what is told next; NULL: nothing */
	bool is_whole;		 /* all nodes have been told once, and it has been told that */
};

/* NODE said something: MESSAGE, or (NULL) Hello. */
void watch_heard(struct node_server *server, struct node *node,
		 const Kiln__Node__V1__Report *message);
/* Its stream is gone. */
void watch_left(struct node_server *server, struct node *node);
/* Perhaps its destinations that are left out are others. */
void watch_look(struct node_server *server, struct node *node);
/* Its state goes. */
void watch_forget(struct node_server *server, struct node *node);

/* -ENOSPC: there are enough of them. */
int watch_begin(struct node_server *server, struct session *session) _must_check_;
void watch_end(struct node_server *server, const struct session *session);
/* A replica with nothing to tell says that it is there. */
void watch_beat(struct session *s);
/* Something may go out. */
void watch_ready(struct node_server *server);
void watch_pump(struct node_server *server);
