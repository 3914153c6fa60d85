/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct operator: shared by operator.c and the files beside it. The file that creates a part is
 * named with its functions below; operator.c frees all parts. Loop thread only.
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
	COUNTS_MS = 1000,	/* from a pod's change to the statuses */
	COUNTS_EVERY_MS = 5000, /* between two such updates */
	POLICIES_MS = 50,	/* from a policy's change to the statuses */
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
	/* The parts from here to `peers` are NULL in the role stream. */
	struct objects *objects;
	struct match_counts *matches;
	struct recorder *events;
	struct status_writer *statuses;
	struct work_queue *object_queue, *status_queue;
	struct lease *lease; /* NULL also without leader election */
	struct first_config *first_config;
	struct kube_client *nodes_client; /* struct nodes limits the rate of its writes */
	struct nodes *nodes;		  /* NULL also without a node stream */
	struct peers *peers;		  /* NULL: the stream is this process's own */
	char peers_name[128];

	struct operator_http *http;
	struct stream_service *stream;
	bool begun; /* the caches are synced */
	uv_timer_t sync_timer, counts_timer, recount_timer, first_config_timer;
	uv_signal_t sigint, sigterm;
	bool has_handles;
	uint64_t counts_due_ms; /* 0: the timer rests */
	unsigned int counts_put_off;
	uint64_t counted_ms;	  /* when all statuses were last checked */
	uint64_t count_credit_ms; /* may_write_counts() in controllers.c */
	struct request_counts requests;
	struct reconcile_counts object_counts, status_counts;
	uint64_t object_started_ns;
	uint64_t invalid_configs;
	struct log_limit invalid_log, quota_log;
	int result;
	struct error *err;
};

/*
 * The role: operator_serves() when this process serves agents, operator_controls() when it writes
 * the cluster's objects.
 */
static inline bool operator_serves(const struct operator* op)
{
	return op->options->role != ROLE_CONTROLLER && op->options->stream.address;
}

static inline bool operator_controls(const struct operator* op)
{
	return op->options->role != ROLE_STREAM;
}

/* True when agents connect to this process or to another one. */
static inline bool operator_has_stream(const struct operator* op)
{
	return op->options->role == ROLE_CONTROLLER || op->options->stream.address;
}

/* NULL without a stream; all functions of node_server take NULL. */
static inline struct node_server *operator_agents(struct operator* op)
{
	return stream_service_server(op->stream);
}

/* controllers.c; where operator_controls() */
int operator_create_queues(struct operator* op) _must_check_;
/* The recorder of events and the reconciler of rendered objects. */
int operator_create_objects(struct operator* op) _must_check_;
int operator_create_writers(struct operator* op) _must_check_;
/* Resumes or pauses the queues: only the leader works on them. */
void operator_set_working(struct operator* op, bool working);
/* ARG: the operator. Queues the status of the config OBJECT. */
int operator_status_due(void *arg, const cJSON *object);
/*
 * Any status may have changed: all of them are checked in DELAY_MS, once however often this is
 * called.
 */
void operator_statuses_due(struct operator* op, uint64_t delay_ms);
/* The same for counts of pods, which change all the time in a busy cluster: checked less often. */
void operator_counts_due(struct operator* op);
/* Starts to count the queued pods again (match_counts_work()), a few at a time. */
void operator_recount(struct operator* op);
void operator_objects_due(void *arg);

/* handlers.c */
int operator_create_world(struct operator* op) _must_check_;

/* agents.c */
int operator_create_nodes(struct operator* op) _must_check_;
int operator_create_stream(struct operator* op) _must_check_;
/* Called once the caches are synced. -EAGAIN: not possible yet, call again. */
int operator_serve_agents(struct operator* op) _must_check_;

/* leader.c */
int operator_create_lease(struct operator* op) _must_check_;
bool operator_may_write(void *arg);
/* Starts the work of the leader. */
void operator_lead(void *arg);

/* operator_metrics.c */
void operator_metrics(void *arg, struct buf *out);
void operator_on_request(void *arg, const char *method, int status);
