/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct nodes: what the agents that are connected to this replica report, written as the status of
 * their ProfilingNodes; and what all replicas have written, added up for the statuses of configs.
 * docs/node-stream.md tells who writes what and how often. Loop thread only.
 */
#pragma once

#include "lib/base.h" /* before uv.h: sys/param.h defines MIN and MAX too */

#include <uv.h>

#include "lib/buf.h"
#include "lib/error.h"
#include "operator/kube/client.h"
#include "operator/reconcile/match.h"
#include "operator/stream/destinations.h"

enum {
	NODES_TICK_MS = 250,
	NODES_WRITES_S = 50,	   /* of one replica: statuses a second; */
	NODES_BURST = 25,	   /* and at once */
	NODES_CALLS_MAX = 16,	   /* under way */
	NODES_COUNTERS_MS = 60000, /* between two writes of a node's counters, at least; */
	NODES_COUNTERS_PER_S = 50, /* and so long that all nodes together make so many a second */
	NODES_TURN_MS = 5000,	   /* between two writes of what turned */
	NODES_SILENT_MS = 5000,	   /* after a Hello without a Report */
	NODES_GRACE_MS = 15000,	   /* without a stream, before the node is told to be away */
	NODES_BEAT_MS = 600000,	   /* lastReportTime is not older while there are reports */
	NODES_STALE_S = 900,	   /* then nobody has it: its replica is gone */
	NODES_RETRY_MS = 2000,
};

struct nodes_options {
	uv_loop_t *loop;
	struct kube_client *client; /* one of its own: the pace is kept here */
	const char *identity;	    /* of this replica */
	/* The uid of a Node; NULL: there is none of that name. */
	const char *(*uid)(void *arg, const char *node);
	/* The hash of the configuration that is rendered for NODE, "" when not known. */
	void (*wanted)(void *arg, const char *node, char ret[static 17]);
	/* The destinations that NODE needs and is not told, as node_state_left_out(). May be NULL.
	 */
	size_t (*left_out)(void *arg, const char *node,
			   const struct left_out *ret[static LEFT_OUT_MAX]);
	bool (*leads)(void *arg);
	/* What agents apply, or how many do, is another than before. */
	void (*turned)(void *arg);
	int64_t (*now)(void); /* seconds since the epoch; NULL: the clock */
	void *arg;
};

struct nodes;
struct node_report; /* operator/stream/server.h */
int nodes_new(const struct nodes_options *options, struct nodes **ret,
	      struct error *err) _must_check_;
void nodes_start(struct nodes *n);
/* Writes what is due; by itself every NODES_TICK_MS once started. */
void nodes_tick(struct nodes *n);
bool nodes_synced(const struct nodes *n);
/* Run the loop on after this. */
struct nodes *nodes_free(struct nodes *n);

/* For the node stream. */
void nodes_report(struct nodes *n, const struct node_report *report);
void nodes_left(struct nodes *n, const char *node);
/* Which configuration nodes should have may be another. */
void nodes_config_changed(struct nodes *n);

/* What agents said, for statuses of configs; NULL of NULL. */
const struct node_reports *nodes_reports(struct nodes *n);

struct nodes_stats {
	size_t connected, objects, due; /* now */
	uint64_t writes, failures, stale;
	uint64_t refused; /* reports and objects beyond the limits */
	uint64_t no_node; /* looks at an agent of whose Node nobody knows */
};
void nodes_read(const struct nodes *n, struct nodes_stats *ret);
void nodes_metrics(const struct nodes *n, struct buf *out);
