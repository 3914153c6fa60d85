/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct node_store: the fields of all ProfilingNodes at the API server that are needed to write
 * them and to add them up: under 1 KiB each, whichever replica wrote them. Fits struct
 * informer_ops. Loop thread only.
 */
#pragma once

#include "operator/kube/decode.h"
#include "operator/nodes/node_status.h"
#include "operator/reconcile/match.h"

struct stored_node {
	const char *name;
	uint64_t replica; /* hash of status.operator; 0: no replica has its stream */
	uint64_t owner;	  /* hash of the owner's uid; 0: none */
	int64_t reported; /* status.lastReportTime; 0: none */
	struct node_turns turns;
	bool has_status;
};

struct node_store;
struct node_store_options {
	size_t max_nodes;
	/*
	 * The totals or the policies that a node applies have changed, and with them perhaps
	 * statuses of configs.
	 */
	void (*turned)(void *arg);
	/* NAME was added, written or removed. */
	void (*changed)(void *arg, const char *name);
	void *arg;
};
int node_store_new(const struct node_store_options *options, struct node_store **ret) _must_check_;
struct node_store *node_store_free(struct node_store *s);
DEFINE_CLEANUP(struct node_store *, node_store_free)

int node_store_put(void *store, const struct kube_item *item, uint32_t generation);
int node_store_remove(void *store, const struct kube_item *item);
int node_store_replaced(void *store, uint32_t generation);

/* NULL: none. Good until the store changes. */
const struct stored_node *node_store_find(const struct node_store *s, const char *name);
int node_store_each(const struct node_store *s,
		    int (*fn)(void *arg, const struct stored_node *node), void *arg);
size_t node_store_count(const struct node_store *s);
uint64_t node_store_refused(const struct node_store *s);
/* For struct node_reports; STORE is its arg. */
unsigned int node_store_state(void *store, uint64_t node, uint64_t policy);
void node_store_totals(void *store, struct node_totals *ret);
uint32_t node_store_failing(void *store, const char *ns, const char *name);
bool node_store_left_out(void *store, const char *ns, const char *name, struct status_cause *ret);

uint64_t node_text_hash(const char *text); /* 0 for "" and NULL, never for others */
