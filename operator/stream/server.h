/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct node_server: the operator's end of kiln.node.v1.NodeService. It sends each agent the pods
 * of its node and their policies, from the caches, and the controller the agents' reports.
 * docs/node-stream.md has the rules. Create it once the caches are synced: agents delete what the
 * caches do not have. Loop thread only.
 */
#pragma once

#include "lib/buf.h"
#include "lib/grpc_server.h"
#include "operator/frontend/frontend.h"
#include "operator/stream/auth.h"
#include "operator/stream/node_view.h"
#include "operator/stream/tls.h"

#define STREAM_METHOD "/kiln.node.v1.NodeService/Connect"
#define WATCH_METHOD  "/kiln.node.v1.NodeService/Watch"

struct node_server;

struct node_server_limits { /* zero: the defaults, docs/node-stream.md */
	size_t streams;
	size_t snapshots; /* at once */
	uint64_t hello_ms, auth_ms, ack_ms;
	uint64_t age_ms;  /* of a stream, +-10 % */
	uint64_t keep_ms; /* a node's state after its stream, to resume from */
	struct frontend_limits frontend;
};

struct node_server_options {
	uv_loop_t *loop;
	const char *address; /* "host:port" */
	const struct stream_tls *tls;
	const char *ns; /* of the agents */
	struct view_sources sources;
	struct kube_client *client;	 /* for TokenReviews: one of its own, with a high rate */
	struct stream_auth_options auth; /* only with client NULL, for tests: review, cancel */
	/*
	 * The Secrets of destinations; NULL: agents use the destinations of their own
	 * configuration. LEFT_OUT as in destinations.h, may be NULL.
	 */
	struct secrets *secrets;
	void (*left_out)(void *arg, const char *ns, const char *name, const char *cause);
	void *left_out_arg;
	struct node_server_limits limits;
	/* Of revisions; 0: a random one. */
	uint64_t epoch;
	const char *replica; /* name of this replica; borrowed, may be NULL */
	/*
	 * Called with agents' events, a packed kiln.node.v1.NodeEvents, which the callers of Watch
	 * get, too; may be NULL.
	 */
	void (*events)(void *arg, const uint8_t *bytes, size_t len);
	void *arg;
};

/* Why the operator ended a stream: enum, metric label, message and status for the agent. */
#define STREAM_CUTS(X)                                                                             \
	X(NO_HELLO, "no_hello", "want a Hello first, in time", RPC_DEADLINE_EXCEEDED)              \
	X(SECOND_HELLO, "second_hello", "Hello comes once", RPC_INVALID_ARGUMENT)                  \
	X(BAD_MESSAGE, "bad_message", "a message that cannot be understood", RPC_INVALID_ARGUMENT) \
	X(BAD_ACK, "bad_ack", "an Ack of what was not sent", RPC_INVALID_ARGUMENT)                 \
	X(OLD_PROTOCOL, "old_protocol", "the operator speaks protocol 1", RPC_FAILED_PRECONDITION) \
	X(TOO_MUCH, "too_much", "too many messages or bytes", RPC_RESOURCE_EXHAUSTED)              \
	X(NO_ACK, "no_ack", "no Ack in time", RPC_DEADLINE_EXCEEDED)                               \
	X(REPLACED, "replaced", "another stream of this node came", RPC_ABORTED)                   \
	X(AGE, "age", "rebalance", RPC_UNAVAILABLE)                                                \
	X(WATCHERS, "watchers", "enough controllers watch already", RPC_RESOURCE_EXHAUSTED)        \
	X(ENDING, "ending", "the operator ends", RPC_UNAVAILABLE)                                  \
	X(OUT_OF_MEMORY, "no_memory", "out of memory", RPC_RESOURCE_EXHAUSTED)

enum stream_cut {
#define X(id, name, text, status) CUT_##id,
	STREAM_CUTS(X)
#undef X
	    STREAM_CUT_COUNT
};

struct node_server_stats {
	struct frontend_stats frontend;
	struct stream_server_counts streams;
	struct stream_auth_counts auth;
	struct view_counts view;
	uint64_t refused[STREAM_REFUSAL_COUNT]; /* [STREAM_GRANTED]: let in */
	uint64_t cuts[STREAM_CUT_COUNT];
	uint64_t snapshots, resumes, updates, bytes, acks, reports;
	uint64_t reports_dropped; /* too frequent, too large, or no memory */
	uint64_t pods_refused;	  /* beyond a node's cap, or without memory */
	size_t nodes, live;	  /* node states; streams that have sent their Hello */
	size_t pods;		  /* that were sent to nodes */
	size_t state_bytes;
	size_t snapshots_running, snapshots_waiting;
};

int node_server_new(const struct node_server_options *options, struct node_server **ret,
		    struct error *err) _must_check_;
/* Run the loop on after this: its handles close there. */
struct node_server *node_server_free(struct node_server *server);
/*
 * Ends every stream, so that agents go to another replica, also when the server is freed next. New
 * streams are refused.
 */
void node_server_drain(struct node_server *server);
int node_server_port(const struct node_server *server);
int node_server_certificate(struct node_server *server, const struct stream_tls *tls,
			    struct error *err) _must_check_;

/*
 * Called from the caches' callbacks; they only mark what may have changed. All take a NULL server.
 */
void node_server_pod(struct node_server *server, const struct pod *pod, const struct pod *old);
void node_server_namespace(struct node_server *server, const char *ns);
void node_server_node(struct node_server *server, const char *node);
void node_server_services(struct node_server *server, const uint8_t uid[16]);
/* The values or the state of a Secret that a destination uses have changed. */
void node_server_secret(struct node_server *server, const char *ns, const char *name);
/* The configs of NS changed; "": the cluster's. */
void node_server_policies(struct node_server *server, const char *ns);
/* True when nodes wait to be pumped. */
bool node_server_busy(const struct node_server *server);

void node_server_read(struct node_server *server, struct node_server_stats *ret);
void node_server_metrics(struct node_server *server, struct buf *out);
