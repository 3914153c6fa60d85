/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct operator: what operator.c and the files beside it share. The file that makes a part is
 * named with its functions below; all parts go in operator.c. Loop thread only.
 */
#pragma once

#include "operator/http/prometheus.h"
#include "operator/lease/lease.h"
#include "operator/nodes/nodes.h"
#include "operator/operator.h"
#include "operator/peers/peers.h"
#include "operator/reconcile/status.h"
#include "operator/render/first_config.h"
#include "operator/work/queue.h"
#include "operator/world.h"

#define OPERATOR_LEASE	    "kiln-operator"
#define OPERATOR_USER_AGENT "kiln-operator/" KILN_VERSION " (linux)"

enum {
	COUNTS_MS = 1000,	/* how soon a pod's change shows in a status */
	COUNTS_EVERY_MS = 5000, /* and how soon the next one */
	POLICIES_MS = 50,	/* and a policy's */
};

struct operator
{
	const struct operator_options *options;
	uv_loop_t loop;
	struct kube_credentials *credentials;
	struct kube_client *client;
	char *ns, identity[256];
	struct policy_set *policies;
	struct world world;
	bool has_world, ending;
	/* From here on NULL in the role stream, which writes none of it. */
	struct objects *objects;
	struct match_counts *matches;
	struct recorder *events;
	struct status_writer *statuses;
	struct work_queue *object_queue, *status_queue;
	struct lease *lease; /* NULL also without leader election */
	struct first_config *first_config;
	struct kube_client *nodes_client; /* of its own: thousands of nodes are written at a pace */
	struct nodes *nodes;		  /* NULL also without a node stream */
	struct peers *peers;		  /* NULL: the stream is this process's own */
	char peers_name[128];

	struct operator_http *http;
	struct stream_service *stream;
	bool begun; /* the caches are whole */
	uv_timer_t sync_timer, counts_timer, recount_timer, first_config_timer;
	uv_signal_t sigint, sigterm;
	bool has_handles;
	uint64_t counts_due_ms; /* 0: the timer rests */
	unsigned int counts_put_off;
	uint64_t counted_ms;	  /* when all statuses were looked at last */
	uint64_t count_credit_ms; /* operator_may_write_counts() */
	struct request_counts requests;
	struct reconcile_counts object_counts, status_counts;
	uint64_t object_started_ns;
	uint64_t invalid_configs;
	struct log_limit invalid_log, quota_log;
	int result;
	struct error *err;
};

/* The role: does this process serve agents, does it write what runs in the cluster? */
static inline bool operator_serves(const struct operator* op)
{
	return op->options->role != ROLE_CONTROLLER && op->options->stream.address;
}

static inline bool operator_controls(const struct operator* op)
{
	return op->options->role != ROLE_STREAM;
}

/* Do agents come, to this process or to another? */
static inline bool operator_has_stream(const struct operator* op)
{
	return op->options->role == ROLE_CONTROLLER || op->options->stream.address;
}

/* operator_agents() of no stream is NULL, which all of node_server takes. */
static inline struct node_server *operator_agents(struct operator* op)
{
	return stream_service_server(op->stream);
}

/* controllers.c; where operator_controls() */
int operator_create_queues(struct operator* op) _must_check_;
/* What is rendered, as it is at the API server. */
int operator_create_objects(struct operator* op) _must_check_;
int operator_create_writers(struct operator* op) _must_check_;
/* Only who leads works on them. */
void operator_set_working(struct operator* op, bool working);
/* ARG: the operator. The status of the config OBJECT may be another. */
int operator_status_due(void *arg, const cJSON *object);
/* Any status may be another in DELAY_MS: one look at all of them then, however often asked. */
void operator_statuses_due(struct operator* op, uint64_t delay_ms);
/* The same for numbers of pods, which change without end in a busy cluster. */
void operator_counts_due(struct operator* op);
/* Pods are to be counted again (match_counts_pending()): a few at a time from now on. */
void operator_recount(struct operator* op);
void operator_objects_due(void *arg);

/* handlers.c */
int operator_create_world(struct operator* op) _must_check_;

/* agents.c */
int operator_create_nodes(struct operator* op) _must_check_;
int operator_create_stream(struct operator* op) _must_check_;
/* Once the caches are whole. -EAGAIN: not yet, ask again. */
int operator_serve_agents(struct operator* op) _must_check_;

/* leader.c */
int operator_create_lease(struct operator* op) _must_check_;
bool operator_may_write(void *arg);
/* This replica leads from here on. */
void operator_lead(void *arg);

/* operator_metrics.c */
void operator_metrics(void *arg, struct buf *out);
void operator_on_request(void *arg, const char *method, int status);
