/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handles the changes of the caches: updates the policies (from the configs) and the counts of the
 * pods that they match, and tells the agents' streams and the controllers. Loop thread only.
 */
#include "operator/kube/json.h"
#include "operator/operator_internal.h"
#include "operator/render/render.h"

enum { INVALID_LOG_S = 60 };

/*
 * A config in NS, or ("") the cluster's, has changed the policies. BEFORE: their revision before.
 */
static void policies_changed(struct operator* op, const char *ns, uint64_t before)
{
	if (op->matches)
		match_counts_policies(op->matches, ns, before);
	operator_recount(op);
	node_server_policies(operator_agents(op), ns);
}

static void configs_changed(struct operator* op)
{
	operator_objects_due(op);
	operator_statuses_due(op, POLICIES_MS);
}

static void on_services(void *arg, const uint8_t uid[16])
{
	node_server_services(operator_agents(arg), uid);
}

static void on_pod(void *arg, const struct pod *pod, const struct pod *old)
{
	struct operator* op = arg;

	node_server_pod(operator_agents(op), pod, old);
	if (op->matches && match_counts_pod(op->matches, pod, old))
		operator_counts_due(op);
}

static void on_namespace(void *arg, const struct meta_object *object, bool removed)
{
	struct operator* op = arg;

	if (op->matches)
		match_counts_namespace(op->matches, object->name);
	operator_recount(op);
	node_server_namespace(operator_agents(op), object->name);
}

/* A node's labels choose its group, and with it rates and configuration. */
static void on_node(void *arg, const struct meta_object *object, bool removed)
{
	const struct cluster_config *config;
	struct operator* op = arg;

	node_server_node(operator_agents(op), object->name);
	config = policy_set_get_cluster(op->policies);
	if (!config || !config->n_groups)
		return;
	nodes_config_changed(op->nodes);
	if (op->matches)
		match_counts_node(op->matches, object->name);
	operator_counts_due(op);
}

/* ---- configs --------------------------------------------------------------------------------- */

static void tell_invalid(struct operator* op, const char *ns, const char *name,
			 const struct error *err)
{
	unsigned int held_back = 0;

	op->invalid_configs++;
	/* Anybody can write such configs: limit the log. Each status has its text. */
	if (ns[0] && !log_allowed(&op->invalid_log, INVALID_LOG_S, &held_back))
		return;
	log_warn("policy", "%s%s%s: %s (%u more like it)", ns, ns[0] ? "/" : "", name, err->message,
		 held_back);
}

/*
 * Ends the program. A store has a change that the policies do not have, and reports it only once:
 * an opt-out might be lost. After a restart everything is read again.
 */
static void out_of_memory(struct operator* op)
{
	if (op->ending)
		return;
	op->ending = true;
	op->result = error_set(op->err, -ENOMEM, "out of memory for policies; start again");
	uv_stop(&op->loop);
}

/*
 * Parses a config and tries to render it, so that every replica refuses a config that cannot be
 * rendered, not only the one that renders.
 */
static int parse_cluster_config(const struct operator* op, const cJSON *object,
				struct cluster_config **ret, struct error *err)
{
	/* As if some policy asked for samples: otherwise no DaemonSet would be rendered. */
	struct render_input input = {
	    .ns = op->ns, .image = "kiln-agent", .stream = true, .max_hz = 1};
	struct rendered *rendered = NULL;
	int r = cluster_config_parse(object, ret, err);

	if (r < 0)
		return r;
	input.config = *ret;
	r = render(&input, &rendered, err);
	rendered_free(rendered);
	if (r < 0)
		*ret = cluster_config_free(*ret);
	return r;
}

/* True when there is a change that the policies' revision does not show. */
static bool on_cluster_config(struct operator* op, const char *name, const cJSON *object)
{
	struct cluster_config *config = NULL;
	struct error err = {0};
	int r = object ? parse_cluster_config(op, object, &config, &err) : 0;
	bool news;

	if (r == -ENOMEM) {
		out_of_memory(op);
		return false;
	}
	if (r < 0) {
		/* Pods keep the policies, and nodes the agents, of the last valid config. */
		news = !op->objects ||
		       objects_refuse(op->objects, json_generation(object), err.message);
		if (policy_set_refuse_cluster(op->policies, cluster_config_is_disabled(object),
					      err.message) < 0)
			out_of_memory(op);
		if (news)
			tell_invalid(op, "", name, &err);
		return news;
	}
	news = op->objects && objects_refuse(op->objects, 0, "");
	if (policy_set_cluster(op->policies, config) < 0)
		out_of_memory(op);
	return news;
}

static int refuse_config(struct operator* op, const cJSON *object, const char *cause)
{
	struct namespace_config *standin;
	bool disabled;
	int r = namespace_config_salvage(object, &standin, &disabled);

	return r < 0 ? r : policy_set_refuse(op->policies, standin, disabled, cause);
}

static void on_namespace_config(struct operator* op, const char *ns, const char *name,
				const cJSON *object)
{
	uint64_t revision = policy_set_revision(op->policies);
	struct namespace_config *config = NULL;
	struct error err = {0};
	int r = 0;

	if (!object)
		policy_set_remove(op->policies, ns, name);
	else if (namespace_config_parse(object, &config, &err) < 0) {
		r = refuse_config(op, object, err.message);
		if (policy_set_revision(op->policies) != revision)
			tell_invalid(op, ns, name, &err);
	} else {
		r = policy_set_put(op->policies, config);
	}
	if (r == -ENOMEM)
		out_of_memory(op);
	else if (r < 0)
		log_error("policy", "%s/%s: %s", ns, name,
			  r == -E2BIG ? "too many configs" : strerror(-r));
}

static void list_keys(const struct string_list *list, const char *keys[CONFIG_KEYS_MAX + 1])
{
	size_t n = 0;

	for (; list && n < list->n && n < CONFIG_KEYS_MAX; n++)
		keys[n] = list->items[n];
	keys[n] = NULL;
}

/* The caches keep only the annotations that the cluster's config asks for. When it asks for others,
 * pods or namespaces are listed again. */
static void keep_annotations(struct operator* op)
{
	const struct cluster_config *c = policy_set_get_cluster(op->policies);
	const char *keys[CONFIG_KEYS_MAX + 1];
	int pods, namespaces;

	list_keys(c ? &c->metadata.pod_annotations : NULL, keys);
	pods = pod_store_keep_annotations(op->world.pods, keys);
	list_keys(c ? &c->metadata.namespace_annotations : NULL, keys);
	namespaces = meta_store_keep_annotations(op->world.namespaces, keys);
	if (pods < 0 || namespaces < 0)
		log_error("operator", "out of memory: pods and namespaces keep the annotations of "
				      "the previous config");
	if (pods > 0)
		informer_relist(op->world.informers[WORLD_PODS]);
	if (namespaces > 0)
		informer_relist(op->world.informers[WORLD_NAMESPACES]);
}

/* Also called after our own writes of a status, which do not change the policies. */
static void on_config(void *arg, const char *ns, const char *name, const cJSON *object)
{
	struct operator* op = arg;
	uint64_t revision = policy_set_revision(op->policies);
	bool news = false;

	if (ns[0])
		on_namespace_config(op, ns, name, object);
	else
		news = on_cluster_config(op, name, object);
	if (policy_set_revision(op->policies) != revision) {
		if (!ns[0])
			keep_annotations(op);
		policies_changed(op, ns, revision);
		news = true;
	}
	if (news)
		configs_changed(op);
	if (object)
		operator_status_due(op, object);
}

/* Closes or reopens NS: when its configs do not all fit, the missing one might be an opt-out. */
static void on_over_quota(void *arg, const char *ns, bool over)
{
	struct operator* op = arg;
	uint64_t revision = policy_set_revision(op->policies);
	unsigned int held_back = 0;

	if (policy_set_close(op->policies, ns, over) < 0)
		out_of_memory(op);
	if (over && log_allowed(&op->quota_log, INVALID_LOG_S, &held_back))
		log_warn("policy",
			 "namespace %s: its ProfilingConfigs are too many or too large, nothing in "
			 "it is profiled (%u more like it)",
			 ns, held_back);
	policies_changed(op, ns, revision);
	configs_changed(op);
}

/* The cache has no room for a config: its status says so to its owner. */
static void on_left_out(void *arg, const char *ns, const char *name, const cJSON *object)
{
	if (!status_tells_over_quota(object))
		operator_status_due(arg, object);
}

/* ---- life ------------------------------------------------------------------------------------ */

int operator_create_world(struct operator* op)
{
	const struct world_events events = {.pod = on_pod,
					    .namespace = on_namespace,
					    .node = on_node,
					    .config = on_config,
					    .over_quota = on_over_quota,
					    .left_out = on_left_out,
					    .services = operator_serves(op) ? on_services : NULL,
					    .arg = op};
	const struct world_limits limits = {0};
	int r = world_init(&op->world, &op->loop, op->client, &limits, &events, op->err);

	op->has_world = !r;
	return r;
}
