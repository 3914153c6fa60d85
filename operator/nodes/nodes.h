/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct nodes: the reports of agents to the replicas of the node stream, which the leader writes
 * to the status of their ProfilingNodes; and all ProfilingNodes, added up for the statuses of
 * configs. docs/node-stream.md says how often. Loop thread only.
 */
#pragma once

#include "lib/base.h" /* before uv.h: sys/param.h defines MIN and MAX too */

#include <uv.h>

#include "lib/buf.h"
#include "lib/error.h"
#include "operator/kube/client.h"
#include "operator/reconcile/match.h"

enum {
	NODES_TICK_MS = 250,
	NODES_WRITES_S = 50,	   /* statuses a second */
	NODES_BURST = 25,	   /* statuses at once */
	NODES_CALLS_MAX = 16,	   /* under way */
	NODES_COUNTERS_MS = 60000, /* at least, between two writes of a node's counters */
	NODES_COUNTERS_PER_S = 50, /* at most, writes of counters a second, of all nodes */
	NODES_TURN_MS = 5000,	   /* between two writes of changed facts */
	NODES_SILENT_MS = 5000,	   /* how long to wait for a Report after a Hello */
	NODES_GRACE_MS = 15000,	   /* without a stream, before the status says so */
	NODES_BEAT_MS = 600000,	   /* lastReportTime is not older while there are reports */
	NODES_STALE_S = 900, /* without a report: away, even if not all replicas could be asked */
	NODES_RETRY_MS = 2000,
};

struct nodes_options {
	uv_loop_t *loop;
	struct kube_client *client; /* without a limit: this struct limits the rate of its writes */
	/* The uid of the Node NODE; NULL: it is not known. */
	const char *(*uid)(void *arg, const char *node);
	/* The hash of the configuration that is rendered for NODE, "" when not known. */
	void (*wanted)(void *arg, const char *node, char ret[static 17]);
	bool (*leads)(void *arg);
	/* The policies that agents apply, or the totals, have changed. */
	void (*turned)(void *arg);
	/* The CPU budget of NODE begins (IS_BAD) or ceases to cut rates. May be NULL. */
	void (*budget)(void *arg, const char *node, bool is_bad, const char *note);
	int64_t (*now)(void); /* seconds since the epoch; NULL: the clock */
	void *arg;
};

struct nodes;
int nodes_new(const struct nodes_options *options, struct nodes **ret,
	      struct error *err) _must_check_;
void nodes_start(struct nodes *n);
/* Writes the statuses that are due. Called every NODES_TICK_MS once started. */
void nodes_tick(struct nodes *n);
bool nodes_synced(const struct nodes *n);
/* Run the loop on after this. */
struct nodes *nodes_free(struct nodes *n);

/*
 * Takes the events of a replica: BYTES are a packed kiln.node.v1.NodeEvents. PEER is a number that
 * identifies the replica. *RET_WHOLE: the replica has reported all its nodes. -EBADMSG: the message
 * is malformed, or too large once decoded.
 */
int nodes_take(struct nodes *n, uint64_t peer, const uint8_t *bytes, size_t len,
	       bool *ret_whole) _must_check_;
/* The replica PEER is gone: its nodes have no stream. */
void nodes_peer_gone(struct nodes *n, uint64_t peer);
/* SETTLED: every replica has reported all its nodes. */
void nodes_settled(struct nodes *n, bool settled);
/* The configuration that nodes should have may have changed. */
void nodes_config_changed(struct nodes *n);

/* The reports of agents, for statuses of configs; NULL if N is NULL. */
const struct node_reports *nodes_reports(struct nodes *n);

struct nodes_stats {
	size_t connected, objects, due; /* current numbers */
	uint64_t writes, failures, stale;
	uint64_t refused; /* events and objects beyond the limits */
	uint64_t no_node; /* attempts to write a node whose Node is not in the cache */
};
void nodes_read(const struct nodes *n, struct nodes_stats *ret);
void nodes_metrics(const struct nodes *n, struct buf *out);
