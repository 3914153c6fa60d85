/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct objects: keeps the cluster's objects equal to the result of render(). It watches the
 * objects that the operator has rendered (by label, in the operator's namespace), applies those
 * that differ, deletes those that are not rendered any more, and writes nothing else. One pass at a
 * time, one write at a time. Loop thread only.
 *
 * The result of a write comes back by the watch. Until then the cached object is known to be behind
 * and is left alone, so that one change is one write.
 */
#pragma once

#include "operator/cache/informer.h"
#include "operator/policy/policy.h"
#include "operator/reconcile/recorder.h"
#include "operator/render/render.h"

struct objects;

struct objects_options {
	uv_loop_t *loop;
	struct kube_client *client;
	struct policy_set *policies;
	struct recorder *events;
	const char *ns, *image;
	bool stream; /* agents connect to the node stream */
	/* Asked before each write: do we still lead? */
	bool (*may_write)(void *arg);
	/* The rendered objects or the state of their rollout have changed. */
	void (*changed)(void *arg);
	/* A rendered object or the world changed: a pass is due. */
	void (*due)(void *arg);
	void *arg;
};

/* Of the last pass that ended, and of the DaemonSets as the API server has them. */
struct objects_state {
	int64_t generation;   /* of the config it was for; 0: no config */
	char config_hash[17]; /* "" while nothing is rendered */
	char error[512];      /* why the config cannot be rendered or applied; "" */
	bool invalid;	      /* the error is the config's own fault */
	bool applied;	      /* everything is written */
	uint32_t desired, programmed, degraded; /* nodes */
	uint64_t writes, deletes;
	uint64_t cache_refused; /* live objects beyond the caches' limits */
};

int objects_new(const struct objects_options *options, struct objects **ret,
		struct error *err) _must_check_;
void objects_start(struct objects *o); /* the informers */
bool objects_synced(const struct objects *o);
struct objects *objects_free(struct objects *o);
DEFINE_CLEANUP(struct objects *, objects_free)

/*
 * The cluster's config is invalid at GENERATION, because of CAUSE: the objects stay as they are.
 * CAUSE "": the config is valid again. True when this was not known.
 */
bool objects_refuse(struct objects *o, int64_t generation, const char *cause);
/* Starts a pass. DONE is called once, during this call or later. Not while a pass is under way. */
void objects_reconcile(struct objects *o, void (*done)(void *arg, int result), void *arg);
void objects_read(struct objects *o, struct objects_state *ret);
/*
 * The hash of the agent's configuration for the nodes of GROUP ("": in no group) that is at the API
 * server; "" if there is none.
 */
const char *objects_config_hash(const struct objects *o, const char *group);
