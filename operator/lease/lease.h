/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct lease: leader election by a Lease object (coordination.k8s.io/v1), with the algorithm of
 * client-go (tools/leaderelection, v0.34). A lease has expired when it has not changed for its
 * duration by our own monotonic clock; the timestamps in it are never compared. Loop thread only.
 *
 * Lease duration 12 s, renew deadline 8 s (client-go's defaults: 15 s and 10 s), retry period 2 s
 * with a jitter factor of 1.2. A standby sees the last renewal up to one retry late: a dead leader
 * is replaced after at most 12 + 2.4 s.
 *
 * The holder must have stopped writing before lost() returns: after that another one may lead.
 */
#pragma once

#include "operator/kube/client.h"

struct lease_options {
	const char *ns, *name, *identity; /* identity: the pod's name and something unique */
	uint64_t duration_ms, renew_deadline_ms, retry_ms; /* 0: 12000, 8000, 2000 */
	void (*gained)(void *arg);
	void (*lost)(void *arg);
	void *arg;
};

struct lease;
int lease_new(uv_loop_t *loop, struct kube_client *client, const struct lease_options *options,
	      struct lease **ret, struct error *err) _must_check_;
void lease_start(struct lease *lease);
bool lease_held(const struct lease *lease);
const char *lease_holder(const struct lease *lease); /* "" while unknown */
/*
 * Gives the lease back (holder emptied, duration 1 s) when it is ours, then calls DONE. Takes at
 * most one request timeout. lost() is called first when the lease was held.
 */
void lease_release(struct lease *lease, void (*done)(void *arg), void *arg);
struct lease *lease_free(struct lease *lease);
DEFINE_CLEANUP(struct lease *, lease_free)
