/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What binds the agents to the rest: their stream (stream/) is fed from the caches once those are
 * whole, their reports become ProfilingNodes (nodes/), with the destinations that they are not told
 * of. Without an address for the stream there is neither; all of it then does
 * nothing. The role controller reads ProfilingNodes and keeps the stream's CA. Loop thread only.
 */
#include "operator/operator_internal.h"

/* ---- ProfilingNodes -------------------------------------------------------------------------- */

static void on_report(void *arg, const struct node_report *report)
{
	struct operator* op = arg;

	nodes_report(op->nodes, report);
}

static void on_left(void *arg, const char *node)
{
	struct operator* op = arg;

	nodes_left(op->nodes, node);
}

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

static size_t left_out_of_node(void *arg, const char *node,
			       const struct left_out *ret[static LEFT_OUT_MAX])
{
	return node_server_left_out(operator_agents(arg), node, ret);
}

static void reports_turned(void *arg)
{
	operator_statuses_due(arg, COUNTS_MS);
}

int operator_create_nodes(struct operator* op)
{
	struct kube_client_options client = {.credentials = op->credentials,
					     .user_agent = OPERATOR_USER_AGENT};
	struct nodes_options nodes = {.loop = &op->loop,
				      .identity = op->identity,
				      .uid = uid_of_node,
				      .wanted = config_of_node,
				      .left_out = left_out_of_node,
				      .leads = operator_may_write,
				      .turned = reports_turned,
				      .arg = op};
	int r;

	if (!operator_has_stream(op))
		return 0;
	r = kube_client_new(&op->loop, &client, &op->nodes_client, op->err);
	if (r < 0)
		return r;
	kube_client_on_result(op->nodes_client, operator_on_request, op);
	nodes.client = op->nodes_client;
	return nodes_new(&nodes, &op->nodes, op->err);
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
	    .arg = op};

	if (!operator_has_stream(op))
		return 0;
	return stream_service_new(&op->loop, &stream, &op->stream, op->err);
}

/* Agents forget what they are not told of, so they are told of nothing before it is everything. */
int operator_serve_agents(struct operator* op)
{
	const struct world *w = &op->world;
	const struct view_sources sources = {w->pods,	  w->namespaces, w->nodes,
					     w->services, op->policies,	 w->strings};

	int r = op->stream ? stream_service_serve(op->stream, &sources, op->err) : 0;

	if (!r && operator_serves(op))
		node_server_on_report(operator_agents(op), on_report, on_left, op);
	return r;
}
