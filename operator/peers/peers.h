/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct peers: the replicas of the role stream, as the controller that leads sees them. It
 * connects to each (kiln.node.v1.NodeService/Watch, over TLS and with a token of its own account),
 * so that who serves agents needs no right to write what they say, and the controller no port that
 * agents could reach. The replicas are found by name, which is resolved again and again. Loop
 * thread only.
 */
#pragma once

#include "lib/base.h" /* before uv.h: sys/param.h defines MIN and MAX too */

#include <uv.h>

#include "lib/buf.h"
#include "lib/error.h"

enum {
	PEERS_MAX = 64,
	PEERS_LOOK_MS = 5000,	 /* between two looks at the names */
	PEERS_RETRY_MS = 1000,	 /* after a connection that ended; doubles up to PEERS_LOOK_MS */
	PEERS_SILENT_MS = 60000, /* a replica says something every 20 s */
};

struct peers_options {
	uv_loop_t *loop;
	const char *targets;	 /* "HOST:PORT[,HOST:PORT...]"; borrowed, as are the others */
	const char *server_name; /* of their certificate */
	const char *token_file;	 /* of audience kiln.dev/node-stream */
	const char *user_agent;
	/* What their certificate is checked with; NULL: not known yet. */
	const char *(*ca)(void *arg);
	/* A packed kiln.node.v1.NodeEvents of PEER, which is a number that no other connection has
	 * or had. Negative ends the connection. */
	int (*take)(void *arg, uint64_t peer, const uint8_t *bytes, size_t len, bool *ret_whole);
	void (*gone)(void *arg, uint64_t peer);
	/* Every replica that there is has told of all its agents, or not any more. */
	void (*settled)(void *arg, bool settled);
	void *arg;
};

/* -EINVAL: TARGETS are none. */
int peers_check(const char *targets, struct error *err) _must_check_;

struct peers;
/* -EINVAL: no such targets. Nothing is connected to before peers_start(). */
int peers_new(const struct peers_options *options, struct peers **ret,
	      struct error *err) _must_check_;
void peers_start(struct peers *p); /* twice is as once; takes NULL */
/* No callback comes any more. Run the loop on after this. Takes NULL. */
struct peers *peers_free(struct peers *p);
void peers_metrics(const struct peers *p, struct buf *out);
