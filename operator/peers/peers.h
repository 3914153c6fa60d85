/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct peers: the replicas of the role stream, as the leading controller sees them. It connects
 * to each (kiln.node.v1.NodeService/Watch, over TLS and with a token of its own service account),
 * so that a replica needs no right to write its agents' statuses, and the controller needs no port
 * that agents could reach. The replicas are found by names, which are resolved again and again.
 * Loop thread only.
 */
#pragma once

#include "lib/base.h" /* before uv.h: sys/param.h defines MIN and MAX too */

#include <uv.h>

#include "lib/buf.h"
#include "lib/error.h"

enum {
	PEERS_MAX = 64,
	PEERS_LOOK_MS = 5000,	 /* between two look-ups of the names */
	PEERS_RETRY_MS = 1000,	 /* after a connection that ended; doubles up to PEERS_LOOK_MS */
	PEERS_SILENT_MS = 60000, /* silence that ends a connection; replicas send every 20 s */
};

struct peers_options {
	uv_loop_t *loop;
	const char *targets;	 /* "HOST:PORT[,HOST:PORT...]"; borrowed, as are the others */
	const char *server_name; /* of their certificate */
	const char *token_file;	 /* of audience kiln.dev/node-stream */
	const char *user_agent;
	/* The CA that the replicas' certificate is verified with, as PEM; NULL: not known yet. */
	const char *(*ca)(void *arg);
	/*
	 * Takes a packed kiln.node.v1.NodeEvents of PEER, the number of the connection, which is
	 * never reused. A negative result ends the connection.
	 */
	int (*take)(void *arg, uint64_t peer, const uint8_t *bytes, size_t len, bool *ret_whole);
	void (*gone)(void *arg, uint64_t peer);
	/* SETTLED: every replica has reported all of its agents; else that is not true any more. */
	void (*settled)(void *arg, bool settled);
	void *arg;
};

/* -EINVAL: TARGETS are no list of HOST:PORT. */
int peers_check(const char *targets, struct error *err) _must_check_;

struct peers;
/* -EINVAL: no such targets. Nothing is connected to before peers_start(). */
int peers_new(const struct peers_options *options, struct peers **ret,
	      struct error *err) _must_check_;
void peers_start(struct peers *p); /* a second call does nothing; takes NULL */
/* No callback comes any more. Run the loop on after this. Takes NULL. */
struct peers *peers_free(struct peers *p);
void peers_metrics(const struct peers *p, struct buf *out);
