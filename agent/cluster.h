/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct cluster: the agent as part of a Kubernetes cluster: what the operator tells of this node's
 * pods, and what follows for the kernel (policies of cgroups) and for samples (identity). Owned by
 * the loop thread.
 */
#pragma once

#include <uv.h>

#include "agent/config/config.h"
#include "agent/export/route.h"
#include "agent/policy/policy.h"
#include "agent/runtime/runtimes.h"
#include "agent/sampler/sampler.h"
#include "agent/window/window.h"

/* What the configuration says of off-CPU time, as in struct kiln_policy. */
static inline uint32_t config_off_cpu(const struct config *c)
{
	return KILN_OFF_CPU_RATE(c->receiver.off_cpu_threshold * 1000);
}

struct cluster;
/*
 * CONFIG has processors.node_stream.enabled and outlives it, as ROUTER does, and SAMPLER, which is
 * not started yet: when this returns the kernel has the policies of the cgroups that are there.
 */
int cluster_new(const struct config *config, enum cgroup_mode mode, struct sampler *sampler,
		struct router *router, uv_loop_t *loop, struct cluster **ret,
		struct error *err) _must_check_;
/* Closes its handles: before the loop's last run. Takes NULL. */
void cluster_stop(struct cluster *c);
struct cluster *cluster_free(struct cluster *c);

/* What the CPU budget is divided among; as long as the cluster. */
struct policies *cluster_policies(struct cluster *c);
struct cpu_budget;
/* For reports; outlives the last one. */
void cluster_use_cpu_budget(struct cluster *c, const struct cpu_budget *cpu_budget);
/* What the agent may cost by the configuration and the operator's word: for CPU that of the
 * operator counts, of memory the smaller one. Changes while the agent runs. */
struct budget cluster_budget(const struct cluster *c);
/* Whose state reports tell; outlives the last report. */
void cluster_use_runtimes(struct cluster *c, const struct runtimes *rt);
/* Reports tell of them; they outlive C's last report. */
struct probes;
void cluster_use_probes(struct cluster *c, const struct probes *probes);
/* W is over, NEXT (empty) begins. LAST: there is none after W, nothing can wait. */
void cluster_close_window(struct cluster *c, struct window *w, struct window *next, bool last);
/* Which container the cgroup ID is; NULL: none. ARG: the cluster. */
const struct container_identity *cluster_container(uint64_t cgroup, void *arg);
/* What samples of each policy may tell: policies_rules(). */
const struct sample_rules *cluster_rules(const struct cluster *c);
/* RULES, which outlive C, hold until the operator has told of others. */
void cluster_set_own_rules(struct cluster *c, struct sample_rules rules);
