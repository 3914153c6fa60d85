/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One table row for each cache: its kind, how to list it, its store. All stores share one table of
 * interned strings: a namespace's name is in each of its pods.
 */
#include "operator/world.h"

enum {
	PODS_MAX = 400000,
	NAMESPACES_MAX = 50000,
	NODES_MAX = 20000,
	CONFIGS_MAX = 50000,
	NAMESPACE_CONFIGS_MAX = 2048,
	NAMESPACE_CONFIGS_COST = 4 << 20, /* bytes of memory */
	SLICES_MAX = 100000,
	ENDPOINTS_MAX = 2 * PODS_MAX, /* a pod backs one service or two */
	STRINGS_MAX = 512 << 20,      /* bytes */
};

static const char *const no_annotations[] = {NULL};

#define META_OPS                                                                                   \
	{                                                                                          \
		.put = meta_store_put, .remove = meta_store_remove,                                \
		.replaced = meta_store_replaced                                                    \
	}
#define JSON_OPS                                                                                   \
	{                                                                                          \
		.put = json_store_put, .remove = json_store_remove,                                \
		.replaced = json_store_replaced                                                    \
	}
#define SERVICE_OPS                                                                                \
	{                                                                                          \
		.put = service_index_put, .remove = service_index_remove,                          \
		.replaced = service_index_replaced                                                 \
	}
#define POD_OPS                                                                                    \
	{                                                                                          \
		.put = pod_store_put, .remove = pod_store_remove, .replaced = pod_store_replaced   \
	}

static const struct part {
	const char *name;
	enum kube_kind kind;
	bool metadata_only;
	struct informer_ops ops;
} parts[WORLD_PARTS] = {
    [WORLD_NAMESPACES] = {"namespaces", KUBE_NAMESPACES, true, META_OPS},
    [WORLD_NODES] = {"nodes", KUBE_NODES, true, META_OPS},
    [WORLD_CLUSTER_CONFIGS] = {"clusterprofilingconfigs", KUBE_CLUSTER_CONFIGS, false, JSON_OPS},
    [WORLD_CONFIGS] = {"profilingconfigs", KUBE_CONFIGS, false, JSON_OPS},
    [WORLD_ENDPOINT_SLICES] = {"endpointslices", KUBE_ENDPOINT_SLICES, false, SERVICE_OPS},
    [WORLD_PODS] = {"pods", KUBE_PODS, false, POD_OPS},
};

const char *world_part_name(enum world_part part)
{
	return parts[part].name;
}

static void on_pod(void *arg, const struct pod *pod, const struct pod *old)
{
	struct world *w = arg;

	w->events.pod(w->events.arg, pod, old);
}

static void on_namespace(void *arg, const struct meta_object *object, bool removed)
{
	struct world *w = arg;

	w->events.namespace(w->events.arg, object, removed);
}

static void on_node(void *arg, const struct meta_object *object, bool removed)
{
	struct world *w = arg;

	if (w->events.node)
		w->events.node(w->events.arg, object, removed);
}

static void on_config(void *arg, const char *ns, const char *name, const cJSON *object)
{
	struct world *w = arg;

	w->events.config(w->events.arg, ns, name, object);
}

static void on_over(void *arg, const char *ns, bool over)
{
	struct world *w = arg;

	w->events.over_quota(w->events.arg, ns, over);
}

static void on_left_out(void *arg, const char *ns, const char *name, const cJSON *object)
{
	struct world *w = arg;

	w->events.left_out(w->events.arg, ns, name, object);
}

static void on_services(void *arg, const uint8_t uid[16])
{
	struct world *w = arg;

	if (w->events.services)
		w->events.services(w->events.arg, uid);
}

static size_t or_default(size_t given, size_t otherwise)
{
	return given ? given : otherwise;
}

static int create_stores(struct world *w, const struct world_limits *l)
{
	struct pod_store_options pods = {.max_pods = or_default(l->pods, PODS_MAX),
					 .annotations = no_annotations,
					 .changed = on_pod,
					 .arg = w};
	struct meta_store_options namespaces = {.max_objects =
						    or_default(l->namespaces, NAMESPACES_MAX),
						.annotations = no_annotations,
						.changed = on_namespace,
						.arg = w};
	struct meta_store_options nodes = {.max_objects = or_default(l->nodes, NODES_MAX),
					   .annotations = no_annotations,
					   .changed = on_node,
					   .arg = w};
	struct json_store_options configs = {.max_objects = or_default(l->configs, CONFIGS_MAX),
					     .max_ns_objects = NAMESPACE_CONFIGS_MAX,
					     .max_ns_cost = NAMESPACE_CONFIGS_COST,
					     .lean = true,
					     .changed = on_config,
					     .over = on_over,
					     .left_out = on_left_out,
					     .arg = w};
	struct service_index_options services = {.max_slices = or_default(l->slices, SLICES_MAX),
						 .max_endpoints =
						     or_default(l->endpoints, ENDPOINTS_MAX),
						 .changed = on_services,
						 .arg = w};
	int r = intern_new(or_default(l->string_bytes, STRINGS_MAX), &w->strings);

	pods.intern = namespaces.intern = nodes.intern = services.intern = w->strings;
	if (!r)
		r = pod_store_new(&pods, &w->pods);
	if (!r)
		r = meta_store_new(&namespaces, &w->namespaces);
	if (!r)
		r = meta_store_new(&nodes, &w->nodes);
	if (!r)
		r = json_store_new(&configs, &w->clusters);
	if (!r)
		r = json_store_new(&configs, &w->configs);
	if (!r)
		r = service_index_new(&services, &w->services);
	return r;
}

static void *store_of(const struct world *w, enum world_part part)
{
	switch (part) {
	case WORLD_NAMESPACES:
		return w->namespaces;
	case WORLD_NODES:
		return w->nodes;
	case WORLD_CLUSTER_CONFIGS:
		return w->clusters;
	case WORLD_CONFIGS:
		return w->configs;
	case WORLD_ENDPOINT_SLICES:
		return w->services;
	default:
		return w->pods;
	}
}

int world_init(struct world *w, uv_loop_t *loop, struct kube_client *client,
	       const struct world_limits *limits, const struct world_events *events,
	       struct error *err)
{
	int r;

	*w = (struct world){.events = *events};
	r = create_stores(w, limits);
	if (r < 0)
		error_set(err, r, "caches: %s", strerror(-r));
	for (unsigned int i = 0; i < WORLD_PARTS && !r; i++) {
		struct informer_options options = {.kind = parts[i].kind,
						   .metadata_only = parts[i].metadata_only,
						   .bulk = i == WORLD_PODS};

		if (i == WORLD_ENDPOINT_SLICES && !events->services)
			continue;
		r = informer_new(loop, client, &options, &parts[i].ops, store_of(w, i),
				 &w->informers[i], err);
	}
	if (r < 0)
		world_done(w);
	return r;
}

void world_start(struct world *w)
{
	for (unsigned int i = 0; i < WORLD_PARTS; i++)
		if (w->informers[i])
			informer_start(w->informers[i]);
}

bool world_synced(const struct world *w, const char **ret_missing)
{
	for (unsigned int i = 0; i < WORLD_PARTS; i++)
		if (w->informers[i] && !informer_stats(w->informers[i])->synced) {
			*ret_missing = parts[i].name;
			return false;
		}
	return true;
}

void world_done(struct world *w)
{
	for (unsigned int i = 0; i < WORLD_PARTS; i++)
		w->informers[i] = informer_free(w->informers[i]);
	w->pods = pod_store_free(w->pods);
	w->namespaces = meta_store_free(w->namespaces);
	w->nodes = meta_store_free(w->nodes);
	w->clusters = json_store_free(w->clusters);
	w->configs = json_store_free(w->configs);
	w->services = service_index_free(w->services);
	w->strings = intern_free(w->strings);
}
