/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct router: decides which exporters get a batch. A receiver is an exporter of the agent's own
 * configuration, or one that is made for a Destination of the node stream. Each receiver has a bit;
 * a route is a set of bits (agent/window/window.h). Loop thread only.
 *
 * When the configuration has an exporter TYPE/ID for the Destination ID, that exporter is the
 * receiver, with the settings that the operator sent: so nothing is sent twice. Other exporters are
 * made when a policy names their Destination, and destroyed when no window can hold samples of such
 * a policy any more.
 */
#pragma once

#include "agent/export/exporter.h"
#include "agent/meta/pods.h"

enum {
	/* Exporters with a bit of their own; the others share the last bit. */
	ROUTE_CONFIGURED_MAX = 47,
	/* Exporters made for Destinations; samples for further ones are dropped. */
	ROUTE_LIVE_MAX = 16,
	/* Batches that wait for a Destination that the operator has not sent yet. */
	ROUTE_HELD_MAX = 12,
	ROUTE_RETIRE_MS = 30000,	  /* how long a removed exporter may send its queue */
	ROUTE_LIVE_QUEUE_BYTES = 4 << 20, /* of each: together as much as one configured exporter */
};

struct router;
/* CONFIGURED is borrowed and must outlive the router's last delivery. */
int router_new(uv_loop_t *loop, struct exporter *const *configured, size_t n,
	       struct router **ret) _must_check_;
/* After router_close(). Takes NULL. */
struct router *router_free(struct router *r);

/* The bits of all exporters of the configuration. */
uint64_t router_default(const struct router *r);
/* The route of POLICY's samples; 0: the default route. A bit keeps its meaning as long as
 * router_sweep() is told that it is in use. */
uint64_t router_route(struct router *r, const struct pod_table *pods,
		      const struct pod_policy *policy);
/* PODS has changed: Destinations may have been added or changed. */
void router_update(struct router *r, const struct pod_table *pods);
/* Between windows: removes the Destinations whose bit is not in IN_USE. */
void router_sweep(struct router *r, uint64_t in_use);
/* True when some Destination has found no free bit, or no memory or descriptors, since the last
 * call: policies have to be routed again, and router_update() called. */
bool router_take_refused(struct router *r);
void router_deliver(struct router *r, uint64_t route, struct batch *batch);
bool router_has_live(const struct router *r);
/* Calls EACH for every receiver. ID: the Destination's; for a configured exporter, its name after
 * the type. ERROR: why it fails; valid during the call. */
void router_each(const struct router *r,
		 void (*each)(const char *id, bool healthy, const char *error, void *arg),
		 void *arg);

/* True when there are exporters and all of them are rejected. REASON: the name and error of one. */
bool router_refused(const struct router *r, char *reason, size_t size);

/* Flushes the exporters made for Destinations, as exporter_ops.flush does. DONE is called once,
 * maybe from inside this call. */
void router_flush(struct router *r, uint64_t deadline_ms, void (*done)(void *), void *arg);
/* Destroys the exporters made for Destinations. The loop must run on to close their handles. */
void router_close(struct router *r);
