/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by nodes.c (records, life), node_schedule.c (due writes, their rate), node_writer.c (the
 * writes of one record), node_stale.c (nodes that no replica reports) and metrics.c. Loop thread
 * only.
 */
#pragma once

#include "lib/base.h"

#include <time.h>

#include "lib/log.h"
#include "lib/uthash.h"
#include "operator/cache/informer.h"
#include "operator/kube/json.h"
#include "operator/kube/write.h"
#include "operator/nodes/node_store.h"
#include "operator/nodes/nodes.h"
#include "operator/nodes/told.h"

enum { NODES_MAX = 20000 };

struct node_record {
	UT_hash_handle hh;
	struct nodes *owner;
	struct told told; /* the replica's last event */
	char *runtime;	  /* the Node's, if the agent reports none; "": the Node has none either */
	uint64_t peer;	  /* the replica; `replica` is its name */
	char *replica;
	bool connected;
	uint64_t since_ms; /* when `connected` last changed, or a new stream began */
	int64_t heard_ms;  /* last message, by the replica's clock, since the epoch */
	int64_t reported;  /* last report, by the same clock, in seconds */
	char wanted[17];
	bool wanted_known;
	struct node_turns turns;
	uint64_t written, written_counters; /* hashes of the status at the API server; 0: none */
	uint64_t written_ms, not_before_ms;
	/* The write under way. */
	struct kube_call *call;
	bool creating;
	uint64_t writing, writing_counters;
	char name[];
};

struct nodes {
	struct nodes_options o;
	struct node_record *records, *next; /* next: where the next tick begins; NULL: the first */
	struct node_store *store;
	struct informer *informer;
	struct node_reports reports;
	uv_timer_t *timer;		       /* NULL: not started */
	uint64_t tokens, filled_ms, looked_ms; /* tokens: thousandths */
	size_t calls, connected;
	bool settled;
	uint64_t settled_ms;
	/* The write of a stale node. */
	struct kube_call *stale_call;
	struct log_limit log;
	struct nodes_stats stats;
};

static inline uint64_t nodes_now_ms(const struct nodes *n)
{
	return uv_now(n->o.loop);
}

static inline int64_t nodes_now_s(const struct nodes *n)
{
	return n->o.now ? n->o.now() : (int64_t)time(NULL);
}

/* nodes.c */
struct node_record *nodes_find(struct nodes *n, const char *name);
void nodes_forget(struct nodes *n, struct node_record *r);
/* node_schedule.c: the hash of the status without its counters; never 0. */
uint64_t node_record_content(struct nodes *n, struct node_record *r);

/* node_writer.c */
void node_record_write(struct nodes *n, struct node_record *r);
/* A ProfilingNode with nothing but its name; NULL: no memory. */
cJSON *nodes_make_body(const char *name);

/* node_stale.c */
void nodes_look_for_stale(struct nodes *n, uint64_t now);
