/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct lease: leader election over a coordination.k8s.io/v1 Lease by the rules of client-go
 * (tools/leaderelection, v0.34): 2 s retry with a jitter factor of 1.2. Whether another's lease has
 * run out is judged by our own monotonic clock since we last saw it change, never by the times that
 * it carries. Loop thread only.
 *
 * 12 s duration, 8 s renew deadline; client-go's default is 15 s and 10 s. Another may see the last
 * renewal a whole retry late, so a dead holder is replaced after at most 12 + 2.4 s.
 *
 * The holder must have stopped writing before lost() returns: after it another may lead.
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
 * Gives the lease back (holder emptied, duration 1 s) when it is ours, then calls DONE. At most
 * one request timeout. lost() is called first when it was held.
 */
void lease_release(struct lease *lease, void (*done)(void *arg), void *arg);
struct lease *lease_free(struct lease *lease);
DEFINE_CLEANUP(struct lease *, lease_free)
