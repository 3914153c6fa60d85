/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What binds the agents to the rest: their stream (stream/) is fed from the caches once those are
 * whole, their reports become ProfilingNodes (nodes/), and the destinations that they are not told
 * of are told to people. Without an address for the stream there is neither; all of it then does
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

/* ---- destinations ---------------------------------------------------------------------------- */

/* Does OBJECT, a config of NS, declare the destination? */
static bool declares(const cJSON *object, const char *ns, const char *name)
{
	const cJSON *meta = cJSON_GetObjectItemCaseSensitive(object, "metadata"), *i;
	const cJSON *spec = cJSON_GetObjectItemCaseSensitive(object, "spec");
	const char *own = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(meta, "namespace"));

	if (!streq(own ? own : "", ns))
		return false;
	cJSON_ArrayForEach(i, cJSON_GetObjectItemCaseSensitive(spec, "destinations"))
	{
		const char *of = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(i, "name"));

		if (of && streq(of, name))
			return true;
	}
	return false;
}

struct left_out {
	struct operator* op;
	const char *ns, *name, *cause;
};

static int warn_config(void *arg, const cJSON *object)
{
	const cJSON *meta = cJSON_GetObjectItemCaseSensitive(object, "metadata");
	const struct left_out *l = arg;
	char note[DESTINATION_CAUSE_MAX + 128];

	if (!declares(object, l->ns, l->name))
		return 0;
	snprintf(note, sizeof(note), "destination %s is left out: %s", l->name, l->cause);
	recorder_emit(
	    l->op->events,
	    (struct kube_event){
		.kind = l->ns[0] ? KUBE_CONFIGS : KUBE_CLUSTER_CONFIGS,
		.ns = l->ns,
		.name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(meta, "name")),
		.uid = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(meta, "uid")),
		.type = "Warning",
		.reason = "DestinationLeftOut",
		.action = "Resolve",
		.note = note});
	return 0;
}

static void on_left_out(void *arg, const char *ns, const char *name, const char *cause)
{
	struct left_out l = {arg, ns, name, cause};

	log_warn("stream", "destination %s%s%s is left out: %s", ns, ns[0] ? "/" : "", name, cause);
	if (!l.op->events)
		return;
	json_store_each(ns[0] ? l.op->world.configs : l.op->world.clusters, warn_config, &l);
	operator_statuses_due(l.op, POLICIES_MS);
}

static void on_secret(void *arg)
{
	operator_statuses_due(arg, COUNTS_MS);
}

bool operator_destination_cause(void *arg, const char *ns, const char *name,
				struct status_cause *ret)
{
	struct destination_cause cause;
	struct operator* op = arg;

	if (!node_server_destination_cause(operator_agents(op), ns, name, &cause))
		return false;
	ret->reason = cause.reason;
	snprintf(ret->text, sizeof(ret->text), "%s", cause.text);
	return true;
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
	    .secret = on_secret,
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
