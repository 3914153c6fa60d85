/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The status of configs: what became of them, in conditions, counts and clamped fields. Written by
 * server-side apply of the status subresource, and only when it says something else than what is
 * there. Loop thread only.
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
	bool (*may_write)(void *arg);	       /* asked before each write: do we still lead? */
	/* May a status be written of which only counts are others? Asked before such a write; the
	 * next pass over the statuses asks again. NULL: always. */
	bool (*may_write_counts)(void *arg, const char *ns, const char *name);
	void *arg;
};

int status_writer_new(const struct status_writer_options *options,
		      struct status_writer **ret) _must_check_;
struct status_writer *status_writer_free(struct status_writer *w);
DEFINE_CLEANUP(struct status_writer *, status_writer_free)

/*
 * NS "": the cluster's. DONE once, later or at once; 0 when nothing was to be written or the
 * config is gone. Several may be under way, each for another config; at most STATUS_WRITES_MAX.
 */
enum { STATUS_WRITES_MAX = 16 };
void status_reconcile(struct status_writer *w, const char *ns, const char *name,
		      void (*done)(void *arg, const char *key, int result), void *arg);
uint64_t status_writes(const struct status_writer *w);

/* The status as it should be, pure but for the inputs it is given; LIVE may be NULL. */
struct status_input {
	const struct policy_verdict *verdict;
	const struct objects_state *objects;
	struct match_result matches;
	struct node_totals agents;	       /* nodes 0: nobody has reported */
	const struct status_cause *unresolved; /* of the config's destinations; NULL: none is */
	const struct status_cause *failing;    /* one of a tenant's that takes nothing */
	bool is_cluster;
	int64_t generation, now;
	const cJSON *live; /* the status that the object has */
};
int status_build(const struct status_input *input, cJSON **ret) _must_check_;
/* Do the two differ in numbers of pods and nodes alone (and the texts that tell them)? */
bool status_differs_in_counts(const cJSON *before, const cJSON *now);
/* Does the status that OBJECT has say, of this generation, that its namespace is over quota? */
bool status_tells_over_quota(const cJSON *object);
