/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct meta_client: this agent's end of the node stream (docs/node-stream-agent.md). It keeps a
 * connection to the operator, fills a pod table from it, tells the operator how the agent is, and
 * keeps the last known good state in a file, with which it starts while the operator is away.
 *
 * Nothing here fails for long: when the operator is away, refuses or talks nonsense, the table
 * stays as it is and the client tries again. Loop thread only.
 */
#pragma once

#include "lib/base.h" /* before uv.h: sys/param.h defines MIN and MAX too */

#include <uv.h>

#include "agent/meta/pods.h"

enum {
	META_TRACERS_MAX = 16,
	META_VERSIONS_MAX = 8, /* of a tracer's runtime */
	META_EXPORTERS_MAX = 16,
	META_CUT_MAX = 64,
	META_POLICIES_MAX = 64,
	META_PROBES_MAX = 16,
};

struct meta_options {
	/* Strings are copied; NULL is "" or none. */
	const char *endpoint; /* host:port, see lib/grpc_client.h */
	bool insecure;	      /* plaintext: for tests, a token would be readable */
	const char *ca_file;  /* NULL: the system's roots */
	const char *server_name;
	const char *token_file;	   /* NULL: no token is sent */
	const char *snapshot_file; /* NULL: none; its directory must exist */
	const char *agent_version, *kernel, *cgroup_mode, *container_runtime, *config_hash;
	/* 0: the default in brackets. */
	/* [1000], [30000]: longest wait before the first and before any attempt; the actual wait is
	 * random, from 0 to that. */
	uint64_t retry_initial_ms, retry_max_ms;
	uint64_t keepalive_ms; /* [60000] */
	/* [30000] longest wait for the operator's Welcome; ten times that for each step of a
	 * snapshot, which may have to wait for its turn. */
	uint64_t answer_ms;
	/* [10000] after a connection that lived so long, the waits start over. */
	uint64_t stable_ms;
	uint64_t snapshot_ms;	     /* [10000] between two writes */
	uint64_t tick_ms;	     /* [1000] interval of the timer for all of the above */
	double (*random)(void *arg); /* [0, 1); NULL: the system's */
	void *random_arg;
};

enum meta_tracer_state {
	META_TRACER_UNKNOWN,
	META_TRACER_LOADED,
	META_TRACER_DISABLED,
	META_TRACER_UNAVAILABLE,
};

/* The agent's state, as in node.v1.Report. Strings must stay valid until control returns to the
 * loop; NULL is "". */
struct meta_report {
	int64_t started_s; /* Unix time */
	uint64_t samples, dropped, truncated, exported;
	uint64_t unresolved_containers;
	struct {
		const char *name, *reason;
		const char *versions[META_VERSIONS_MAX]; /* seen on the node */
		size_t n_versions;
		enum meta_tracer_state state;
	} tracers[META_TRACERS_MAX];
	size_t n_tracers;
	struct {
		const char *destination, *error;
		bool healthy;
	} exporters[META_EXPORTERS_MAX];
	size_t n_exporters;
	struct {
		uint64_t id;
		uint32_t containers;
	} policies[META_POLICIES_MAX];
	size_t n_policies;
	/* The state of the CPU budget; cpu 0: there is no budget. */
	struct {
		uint32_t cpu; /* millionths of all CPUs */
		uint32_t policies, n_cut, detail;
		bool exhausted;
		struct {
			uint64_t id;
			uint32_t hz, hz_now;
			int64_t since_s;
		} cut[META_CUT_MAX]; /* the first n_cut of all that are cut */
	} budget;
	struct {
		const char *name, *reason; /* NULL: attached */
	} probes[META_PROBES_MAX];
	size_t n_probes;
};

struct meta_events {
	struct pod_events pods; /* with an argument of its own */
	/* Fill RET, which is zeroed, with a report. NULL: reports are empty. */
	void (*report)(struct meta_report *ret, void *arg);
	void *arg;
};

enum meta_source { META_NOTHING, META_FROM_DISK, META_FROM_OPERATOR };

struct meta_status {
	bool connected; /* the operator has sent its Welcome, and the table is up to date */
	enum meta_source source;
	uint64_t epoch, revision;
	uint64_t attempts, connections; /* begun; welcomed */
	uint64_t refused;		/* UNAUTHENTICATED or PERMISSION_DENIED */
	uint64_t malformed;		/* messages that made no sense: each ended its connection */
	uint64_t renewals;		/* connections that were replaced for a newer token */
	uint64_t snapshots_written, snapshots_failed, snapshots_corrupt;
	uint64_t reports, acks;
	const char *node_name, *cluster_uid; /* "" before the first Welcome */
	const char *error;		     /* why there is no connection; "" while there is one */
	uint64_t retry_ms;		     /* the wait after the last failure */
};

struct meta_client;

/*
 * Loads the snapshot, if there is one, before it returns (with events), and begins to connect.
 * -EINVAL with words: options that cannot work at all.
 */
int meta_client_new(const struct meta_options *options, const struct meta_events *events,
		    uv_loop_t *loop, struct meta_client **ret, struct error *err) _must_check_;
/*
 * Ends the connection, writes what the file does not have yet. The memory, the table too, is freed
 * when the loop has closed the handles, so run the loop until it ends. Not from a callback.
 */
struct meta_client *meta_client_free(struct meta_client *c);

const struct pod_table *meta_client_table(const struct meta_client *c);
/* Call when the report has changed (a tracer failed, an exporter recovered): it is sent soon, at
 * most once a second. */
void meta_client_report_soon(struct meta_client *c);
void meta_client_status(const struct meta_client *c, struct meta_status *ret);
