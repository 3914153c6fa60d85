/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct router: who gets a batch. A receiver is an exporter of the agent's own configuration or
 * one made for a Destination of the node stream, each with a bit; a route is a set of them
 * (agent/window/window.h). Loop thread only.
 *
 * A destination of the cluster that the configuration has too (component TYPE/ID) is that exporter,
 * sent to as the operator says: nothing goes out twice. The others are made when a policy names
 * them and destroyed when no window can hold samples of such a policy any more.
 */
#pragma once

#include "agent/export/exporter.h"
#include "agent/meta/pods.h"

enum {
	ROUTE_CONFIGURED_MAX = 47, /* with a bit of their own; the rest share the last one */
	ROUTE_LIVE_MAX = 16,	   /* made for destinations; more: their samples are given up */
	/* Batches that wait for a destination of which nobody has told how to reach it. */
	ROUTE_HELD_MAX = 12,
	ROUTE_RETIRE_MS = 30000,	  /* to send what a destination that goes still has */
	ROUTE_LIVE_QUEUE_BYTES = 4 << 20, /* of each: all of them as one configured exporter */
};

struct router;
/* CONFIGURED: borrowed, must outlive the router's last delivery. */
int router_new(uv_loop_t *loop, struct exporter *const *configured, size_t n,
	       struct router **ret) _must_check_;
/* After router_close(). Takes NULL. */
struct router *router_free(struct router *r);

/* The exporters of the configuration. */
uint64_t router_default(const struct router *r);
/* Where POLICY's samples go; 0: where the configuration says. The bits mean the same as long as
 * router_sweep() is told that they are in use. */
uint64_t router_route(struct router *r, const struct pod_table *pods,
		      const struct pod_policy *policy);
/* PODS has changed: destinations may be there, or others, under their ids. */
void router_update(struct router *r, const struct pod_table *pods);
/* Between windows: whoever is not in IN_USE gets nothing more. */
void router_sweep(struct router *r, uint64_t in_use);
/* Some destination had no place since this was asked last: policies are to be routed again. */
bool router_take_refused(struct router *r);
void router_deliver(struct router *r, uint64_t route, struct batch *batch);
bool router_has_live(const struct router *r);
/* EACH destination by its id (the configuration's by what follows the type); ERROR: why it fails,
 * good during the call. */
void router_each(const struct router *r,
		 void (*each)(const char *id, bool healthy, const char *error, void *arg),
		 void *arg);

/* There are exporters, and everything is rejected by each. REASON: one's name and words. */
bool router_refused(const struct router *r, char *reason, size_t size);

/* Of the live ones: as exporter_ops.flush. DONE once, maybe from inside. */
void router_flush(struct router *r, uint64_t deadline_ms, void (*done)(void *), void *arg);
/* Destroys the live ones. The loop must run on. */
void router_close(struct router *r);
