/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The status of configs: conditions, counts and clamped fields. Written by server-side apply of the
 * status subresource, and only when it differs from the present one. Loop thread only.
 */
#pragma once

#include "operator/reconcile/match.h"
#include "operator/reconcile/objects.h"

struct status_writer;
struct status_writer_options {
	uv_loop_t *loop;
	struct kube_client *client;
	struct policy_set *policies;
	struct match_counts *matches;
	struct objects *objects;
	struct recorder *events;
	struct json_store *clusters, *configs; /* the live objects */
	const struct node_reports *reports;    /* NULL: agents have no stream */
	bool (*may_write)(void *arg);	       /* asked before each write: true while we lead */
	/*
	 * Asked before a write that changes only counts; when false the write is left to the next
	 * pass over the statuses, which asks again. NULL: always true.
	 */
	bool (*may_write_counts)(void *arg, const char *ns, const char *name);
	void *arg;
};

int status_writer_new(const struct status_writer_options *options,
		      struct status_writer **ret) _must_check_;
struct status_writer *status_writer_free(struct status_writer *w);
DEFINE_CLEANUP(struct status_writer *, status_writer_free)

/*
 * Writes the status of a config if needed. NS "": the cluster's. DONE is called once, during this
 * call or later; with 0 also when nothing was to be written or the config is gone. Several may be
 * under way, each for another config; at most STATUS_WRITES_MAX.
 */
enum { STATUS_WRITES_MAX = 16 };
void status_reconcile(struct status_writer *w, const char *ns, const char *name,
		      void (*done)(void *arg, const char *key, int result), void *arg);
uint64_t status_writes(const struct status_writer *w);

/* Builds the status that a config should have: a pure function. LIVE may be NULL. */
struct status_input {
	const struct policy_verdict *verdict;
	const struct objects_state *objects;
	struct match_result matches;
	struct node_totals agents;	       /* nodes 0: nobody has reported */
	const struct status_cause *unresolved; /* of a destination that is left out; NULL: none */
	/* of a tenant's destination that fails; NULL: none */
	const struct status_cause *failing;
	bool is_cluster;
	int64_t generation, now;
	const cJSON *live; /* the status that the object has */
};
int status_build(const struct status_input *input, cJSON **ret) _must_check_;
/* True when the two differ only in numbers of pods and nodes, and in messages with such numbers. */
bool status_differs_in_counts(const cJSON *before, const cJSON *now);
/*
 * True when the status of OBJECT, for its current generation, says that its namespace is over
 * quota.
 */
bool status_tells_over_quota(const cJSON *object);
