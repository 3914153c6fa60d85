/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct world: the operator's view of the cluster: the caches and the informers that fill them.
 * Loop thread only.
 */
#pragma once

#include "operator/cache/informer.h"
#include "operator/cache/meta_store.h"
#include "operator/cache/service_index.h"

enum world_part {
	WORLD_NAMESPACES,
	WORLD_NODES,
	WORLD_CLUSTER_CONFIGS,
	WORLD_CONFIGS,
	WORLD_ENDPOINT_SLICES,
	WORLD_PODS, /* last: owners and policies before the pods */
	WORLD_PARTS
};

struct world_events {
	void (*pod)(void *arg, const struct pod *pod, const struct pod *old);
	void (*namespace)(void *arg, const struct meta_object *object, bool removed);
	/* The labels of a node changed, or it was added or removed. May be NULL. */
	void (*node)(void *arg, const struct meta_object *object, bool removed);
	/* OBJECT NULL: removed. NS "" for the cluster's config. */
	void (*config)(void *arg, const char *ns, const char *name, const cJSON *object);
	/* OVER: the configs of NS do not all fit; else they do again. */
	void (*over_quota)(void *arg, const char *ns, bool over);
	/* There is no room for OBJECT, which is not kept. Called for each of its events. */
	void (*left_out)(void *arg, const char *ns, const char *name, const cJSON *object);
	/* The services of the pod UID may have changed. NULL: endpoint slices are not watched. */
	void (*services)(void *arg, const uint8_t uid[16]);
	void *arg;
};

struct world_limits { /* zero: the defaults */
	size_t pods, namespaces, nodes, configs, slices, endpoints;
	size_t string_bytes;
};

struct world {
	struct intern *strings;
	struct pod_store *pods;
	struct meta_store *namespaces, *nodes;
	struct json_store *clusters, *configs;
	struct service_index *services;
	struct informer *informers[WORLD_PARTS]; /* NULL: not watched */
	struct world_events events;
};

int world_init(struct world *w, uv_loop_t *loop, struct kube_client *client,
	       const struct world_limits *limits, const struct world_events *events,
	       struct error *err) _must_check_;
void world_start(struct world *w);
/* True when every cache has been synced once; else *RET_MISSING names one that has not. */
bool world_synced(const struct world *w, const char **ret_missing);
void world_done(struct world *w); /* also of a half-made one */
/* "pods": of world_part, for messages and metrics. */
const char *world_part_name(enum world_part part);
