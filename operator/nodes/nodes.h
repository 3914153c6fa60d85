/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct nodes: what agents report to the replicas of the node stream, written by who leads as the
 * status of their ProfilingNodes; and all ProfilingNodes, added up for the statuses of configs.
 * docs/node-stream.md tells how often. Loop thread only.
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
	NODES_WRITES_S = 50,	   /* statuses a second; */
	NODES_BURST = 25,	   /* and at once */
	NODES_CALLS_MAX = 16,	   /* under way */
	NODES_COUNTERS_MS = 60000, /* between two writes of a node's counters, at least; */
	NODES_COUNTERS_PER_S = 50, /* and so long that all nodes together make so many a second */
	NODES_TURN_MS = 5000,	   /* between two writes of what turned */
	NODES_SILENT_MS = 5000,	   /* after a Hello without a Report */
	NODES_GRACE_MS = 15000,	   /* without a stream, before the node is told to be away */
	NODES_BEAT_MS = 600000,	   /* lastReportTime is not older while there are reports */
	NODES_STALE_S = 900, /* then nobody has it, also when not all replicas could be asked */
	NODES_RETRY_MS = 2000,
};

struct nodes_options {
	uv_loop_t *loop;
	struct kube_client *client; /* one of its own: the pace is kept here */
	/* The uid of a Node; NULL: there is none of that name. */
	const char *(*uid)(void *arg, const char *node);
	/* The hash of the configuration that is rendered for NODE, "" when not known. */
	void (*wanted)(void *arg, const char *node, char ret[static 17]);
	bool (*leads)(void *arg);
	/* What agents apply, or how many do, is another than before. */
	void (*turned)(void *arg);
	/* The CPU budget of NODE begins to cut rates (IS_BAD) or does no more. May be NULL. */
	void (*budget)(void *arg, const char *node, bool is_bad, const char *note);
	int64_t (*now)(void); /* seconds since the epoch; NULL: the clock */
	void *arg;
};

struct nodes;
int nodes_new(const struct nodes_options *options, struct nodes **ret,
	      struct error *err) _must_check_;
void nodes_start(struct nodes *n);
/* Writes what is due; by itself every NODES_TICK_MS once started. */
void nodes_tick(struct nodes *n);
bool nodes_synced(const struct nodes *n);
/* Run the loop on after this. */
struct nodes *nodes_free(struct nodes *n);

/*
 * What a replica tells: BYTES are a packed kiln.node.v1.NodeEvents. PEER is a number for the
 * replica, any but that of another. -EBADMSG: it is none, or too large once decoded; what came
 * before it in BYTES counts.
 */
int nodes_take(struct nodes *n, uint64_t peer, const uint8_t *bytes, size_t len,
	       bool *ret_whole) _must_check_;
/* Nobody tells of what PEER told any more. */
void nodes_peer_gone(struct nodes *n, uint64_t peer);
/* Every replica that there is has told of all its nodes, or not. */
void nodes_settled(struct nodes *n, bool settled);
/* Which configuration nodes should have may be another. */
void nodes_config_changed(struct nodes *n);

/* What agents said, for statuses of configs; NULL of NULL. */
const struct node_reports *nodes_reports(struct nodes *n);

struct nodes_stats {
	size_t connected, objects, due; /* now */
	uint64_t writes, failures, stale;
	uint64_t refused; /* events and objects beyond the limits */
	uint64_t no_node; /* looks at an agent of whose Node nobody knows */
};
void nodes_read(const struct nodes *n, struct nodes_stats *ret);
void nodes_metrics(const struct nodes *n, struct buf *out);
