/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connects the agents to the other parts: their stream (stream/) is fed from the caches once these
 * are synced; agents' reports become ProfilingNodes (nodes/), by way of the replicas of the other
 * role (peers/) or, in a process that has both roles, directly. Without a stream all of it does
 * nothing. The role controller keeps the stream's CA. Loop thread only.
 */
#include "operator/operator_internal.h"

/* ---- ProfilingNodes -------------------------------------------------------------------------- */

static const char *uid_of_node(void *arg, const char *node)
{
	struct operator* op = arg;
	struct meta_object object;

	return meta_store_find(op->world.nodes, "", node, &object) < 0 ? NULL : object.uid;
}

static void config_of_node(void *arg, const char *node, char ret[static 17])
{
	const struct node_group *group = NULL;
	struct label labels[VIEW_PAIRS_MAX];
	struct operator* op = arg;
	struct meta_object object;
	size_t n = 0;

	if (meta_store_find(op->world.nodes, "", node, &object) == 0) {
		for (; n < object.n_labels && n < VIEW_PAIRS_MAX; n++)
			labels[n] = (struct label){object.labels[n].key, object.labels[n].value};
		group = policy_node_group(op->policies, labels, n);
	}
	snprintf(ret, 17, "%s", objects_config_hash(op->objects, group ? group->name : ""));
}

static void reports_turned(void *arg)
{
	operator_statuses_due(arg, COUNTS_MS);
}

/* ---- sources of reports ---------------------------------------------------------------------- */

enum { OWN_PEER = 0 /* this process's own stream */ };

static void on_own_events(void *arg, const uint8_t *bytes, size_t len)
{
	struct operator* op = arg;
	bool whole = false;

	if (nodes_take(op->nodes, OWN_PEER, bytes, len, &whole) < 0)
		log_error("nodes", "out of memory: a message of an agent is lost");
	if (whole)
		nodes_settled(op->nodes, true);
}

static const char *ca_of_peers(void *arg)
{
	const struct operator* op = arg;

	return stream_service_ca(op->stream);
}

static int take_from_peer(void *arg, uint64_t peer, const uint8_t *bytes, size_t len,
			  bool *ret_whole)
{
	struct operator* op = arg;

	return nodes_take(op->nodes, peer, bytes, len, ret_whole);
}

static void peer_gone(void *arg, uint64_t peer)
{
	struct operator* op = arg;

	nodes_peer_gone(op->nodes, peer);
}

static void peers_settled(void *arg, bool settled)
{
	struct operator* op = arg;

	nodes_settled(op->nodes, settled);
}

static int create_peers(struct operator* op)
{
	struct peers_options o = {.loop = &op->loop,
				  .targets = op->options->peers,
				  .server_name = op->peers_name,
				  .token_file = op->options->peers_token,
				  .user_agent = OPERATOR_USER_AGENT,
				  .ca = ca_of_peers,
				  .take = take_from_peer,
				  .gone = peer_gone,
				  .settled = peers_settled,
				  .arg = op};

	if (!o.targets)
		return 0;
	snprintf(op->peers_name, sizeof(op->peers_name), STREAM_SERVICE ".%s.svc", op->ns);
	return peers_new(&o, &op->peers, op->err);
}

/* The event is about the Node, where administrators look. */
static void budget_turned(void *arg, const char *node, bool is_bad, const char *note)
{
	struct operator* op = arg;
	const char *uid = uid_of_node(arg, node);

	if (!op->events || !uid)
		return;
	recorder_emit(op->events, (struct kube_event){.kind = KUBE_NODES,
						      .ns = "",
						      .name = node,
						      .uid = uid,
						      .type = is_bad ? "Warning" : "Normal",
						      .reason = is_bad ? "ProfilingRatesCut"
								       : "ProfilingRatesRestored",
						      .action = "Sample",
						      .note = note});
}

int operator_create_nodes(struct operator* op)
{
	struct kube_client_options client = {.credentials = op->credentials,
					     .user_agent = OPERATOR_USER_AGENT};
	struct nodes_options nodes = {.loop = &op->loop,
				      .uid = uid_of_node,
				      .wanted = config_of_node,
				      .leads = operator_may_write,
				      .turned = reports_turned,
				      .budget = budget_turned,
				      .arg = op};
	int r;

	if (!operator_has_stream(op))
		return 0;
	r = kube_client_new(&op->loop, &client, &op->nodes_client, op->err);
	if (r < 0)
		return r;
	kube_client_on_result(op->nodes_client, operator_on_request, op);
	nodes.client = op->nodes_client;
	r = nodes_new(&nodes, &op->nodes, op->err);
	return r < 0 ? r : create_peers(op);
}

static void on_left_out(void *arg, const char *ns, const char *name, const char *cause)
{
	log_warn("stream", "destination %s%s%s is left out: %s", ns, ns[0] ? "/" : "", name, cause);
}

/* ---- the stream ------------------------------------------------------------------------------ */

int operator_create_stream(struct operator* op)
{
	const struct stream_service_options stream = {
	    .stream = &op->options->stream,
	    .credentials = op->credentials,
	    .ns = op->ns,
	    .events = op->events,
	    .may_write = operator_controls(op) ? operator_may_write : NULL,
	    .left_out = on_left_out,
	    .replica = op->identity,
	    .agent_events = op->nodes && !op->peers ? on_own_events : NULL,
	    .arg = op};

	if (!operator_has_stream(op))
		return 0;
	return stream_service_new(&op->loop, &stream, &op->stream, op->err);
}

/*
 * Agents drop what a snapshot does not contain, so nothing is sent before the caches are complete.
 */
int operator_serve_agents(struct operator* op)
{
	const struct world *w = &op->world;
	const struct view_sources sources = {w->pods,	  w->namespaces, w->nodes,
					     w->services, op->policies,	 w->strings};

	return op->stream ? stream_service_serve(op->stream, &sources, op->err) : 0;
}
