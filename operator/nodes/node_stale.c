/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ProfilingNodes that no replica reports: their agents went away while there was no leader, or
 * their replica is gone. Their status is set to disconnected once every replica has reported all
 * its nodes; when some replica cannot be reached, once the last report is NODES_STALE_S old. Loop
 * thread only.
 */
#include "operator/nodes/nodes_internal.h"

enum { STALE_LOOK_MS = 10000 };

static void on_stale_written(void *arg, const struct kube_answer *answer)
{
	struct nodes *n = arg;

	n->stale_call = NULL;
	if (answer->status >= 200 && answer->status <= 299)
		n->stats.stale++;
	else if (answer->status != 404)
		n->stats.failures++;
}

static bool is_settled(const struct nodes *n)
{
	return n->settled && nodes_now_ms(n) >= n->settled_ms + NODES_GRACE_MS;
}

static int find_stale(void *arg, const struct stored_node *node)
{
	const struct stored_node **ret = ((void **)arg)[1];
	struct nodes *n = ((void **)arg)[0];

	if (!node->has_status || !node->replica || nodes_find(n, node->name) ||
	    (!is_settled(n) && node->reported + NODES_STALE_S > nodes_now_s(n)))
		return 0;
	*ret = node;
	return 1;
}

/*
 * Starts the write of one stale node: its new status has nothing of the agent's old report. False
 * when there is none, or on failure.
 */
static bool mark_stale(struct nodes *n)
{
	const struct stored_node *node = NULL;
	void *search[] = {n, &node};
	_cleanup_(cJSON_Deletep) cJSON *body = NULL;
	struct node_status_input in = {.wanted_hash = ""};
	struct node_turns turns;
	cJSON *status;

	node_store_each(n->store, find_stale, search);
	if (!node)
		return false;
	turns = node->turns;
	in.reported = node->reported;
	in.now = nodes_now_s(n);
	body = nodes_make_body(node->name);
	if (!body || node_status_build(&in, &turns, &status) < 0)
		return false;
	if (!cJSON_AddItemToObject(body, "status", status)) {
		cJSON_Delete(status);
		return false;
	}
	return !kube_apply_status(n->o.client, KUBE_PROFILING_NODES, NULL, node->name, body,
				  on_stale_written, n, &n->stale_call);
}

void nodes_look_for_stale(struct nodes *n, uint64_t now)
{
	if (n->stale_call || now < n->looked_ms + STALE_LOOK_MS)
		return;
	if (mark_stale(n))
		n->tokens -= MIN(n->tokens, 1000U);
	else
		n->looked_ms = now;
}
