/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The node stream's server over caches that the test fills, an API server whose TokenReview answers
 * follow from the token, and agents on real TLS connections that keep what they receive.
 */
#pragma once

#include "lib/grpc_stream.h"
#include "operator/stream/server.h"
#include "tests/support/test.h"

#include "kiln/node/v1/node.pb-c.h"

enum { RIG_PODS_MAX = 8192, RIG_POLICIES_MAX = 64, RIG_REVIEWS_MAX = 64, RIG_AGENTS_MAX = 16 };

struct rig {
	uv_loop_t loop;
	struct intern *strings;
	struct pod_store *pods;
	struct meta_store *namespaces, *nodes;
	struct service_index *services;
	struct policy_set *policies;
	struct stream_tls tls;
	struct node_server *server;
	char ca_file[64];
	uv_timer_t reviews_due, alarm;
	struct rig_review {
		char *token;
		void (*done)(void *arg, const struct kube_token_review *,
			     const struct kube_answer *);
		void *arg;
	} reviews[RIG_REVIEWS_MAX];
	size_t n_reviews;
	bool api_down, hold_reviews;
	bool timed_out;
	const struct agent *agents[RIG_AGENTS_MAX]; /* connected; printed by a failed wait */
	size_t n_agents;
	unsigned int n_events, whole;
	char last_event[256];
};

/* LIMITS may be NULL. Cluster policy: everything at 20 Hz. */
void rig_init(struct rig *rig, const struct node_server_limits *limits);
/* Answers the reviews that are held, and holds no more. */
void rig_release_reviews(struct rig *rig);
void rig_done(struct rig *rig);
/* Runs the loop until IS(ARG); fails the test after 120 s. */
void rig_until(struct rig *rig, bool (*is)(void *arg), void *arg);
void rig_turns(struct rig *rig, unsigned int n); /* loop iterations, 5 ms apart */
struct node_server_stats rig_stats(struct rig *rig);
/* Runs the loop until FIELD is at least VALUE; VALUE 0: until it is 0. Fails as rig_until() does.
 */
void rig_until_count(struct rig *rig, size_t offset, uint64_t value);
#define rig_until_stat(rig, field, value)                                                          \
	do {                                                                                       \
		_Static_assert(sizeof(((struct node_server_stats *)0)->field) == 8, "a counter");  \
		rig_until_count(rig, offsetof(struct node_server_stats, field), value);            \
	} while (0)

/* How long rigs that are made later remember a granted token; 0: the server's default. */
extern uint64_t rig_keep_ms;
/* UID 0xa becomes 0000000a-0000-4000-8000-000000000000. ID: the hexadecimal digit that the
 * container's id is made of; 0: none. */
void rig_pod(struct rig *rig, const char *ns, const char *name, unsigned int uid, const char *node,
	     char id);
void rig_pod_labeled(struct rig *rig, const char *ns, const char *name, unsigned int uid,
		     const char *node, const char *value);
/* A pod with more labels or annotations than are kept. */
void rig_pod_cut(struct rig *rig, const char *ns, const char *name, unsigned int uid,
		 const char *node, char id);
void rig_remove_pod(struct rig *rig, const char *ns, const char *name, unsigned int uid);
void rig_node(struct rig *rig, const char *name);
void rig_namespace(struct rig *rig, const char *name, const char *label_value);
/* NS "": the cluster's config. */
void rig_policy(struct rig *rig, const char *ns, const char *spec);
const char *rig_uid(unsigned int uid);

struct agent {
	struct rig *rig;
	struct grpc_stream *stream;
	struct seen_pod {
		char uid[40], name[64], ns[64], label[64];
		uint64_t policy;
		size_t n_containers;
		uint8_t id;	   /* first byte of the first container's id */
		bool policy_known; /* the policy was known when the pod came */
		bool in_snapshot;
	} pods[RIG_PODS_MAX];
	size_t n_pods;
	struct seen_policy {
		uint64_t id;
		uint32_t hz;
		bool enabled;
	} policies[RIG_POLICIES_MAX];
	size_t n_policies;
	struct seen_policy fallback;
	uint64_t epoch, revision; /* received state; sent in the next hello to resume */
	char node[256];
	unsigned int welcomes, snapshots, updates, deletes, closes;
	size_t bytes, largest;
	bool connected, in_snapshot, no_hello, no_ack, ack_due;
	unsigned int report_interval_s; /* from the welcome */
	unsigned int protocol;		/* sent in the hello; 0: 1 */
	int status;
	char message[256];
};

/* TOKEN: "node:n1", "pod:NAME:UID", "account:n1" (another ServiceAccount), "bad", "" (none),
 * "expired:n1", "opaque". */
void agent_connect(struct rig *rig, struct agent *a, const char *token);
void agent_done(struct agent *a);
/* Each runs the loop until the state is reached. */
void agent_until_live(struct agent *a);
void agent_until_snapshot(struct agent *a); /* of this connection */
void agent_until_closed(struct agent *a);
void agent_until_pods(struct agent *a, size_t n);
void agent_until_revision(struct agent *a, uint64_t above);
const struct seen_pod *agent_pod(const struct agent *a, unsigned int uid);
const struct seen_policy *agent_policy(const struct agent *a, uint64_t id);
void agent_send(struct agent *a, const Kiln__Node__V1__AgentMessage *m);
bool agent_send_raw(struct agent *a, const void *data, size_t len); /* false: not possible now */
void agent_hello(struct agent *a);
void agent_ack(struct agent *a, uint64_t epoch, uint64_t revision);
void agent_report(struct agent *a, uint64_t samples);
/* Writes the header's value for the token WHAT: see agent_connect(). */
void agent_token(const char *what, char out[1024]);
