/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct cluster: the agent as part of a Kubernetes cluster: receives the pods of this node from
 * the operator, and derives the cgroups' policies in the kernel and the identity of samples. Owned
 * by the loop thread.
 */
#pragma once

#include <uv.h>

#include "agent/config/config.h"
#include "agent/export/route.h"
#include "agent/policy/policy.h"
#include "agent/runtime/runtimes.h"
#include "agent/sampler/sampler.h"
#include "agent/window/window.h"

/* The configured off-CPU rate, in the unit of struct kiln_policy. */
static inline uint32_t config_off_cpu(const struct config *c)
{
	return KILN_OFF_CPU_RATE(c->receiver.off_cpu_threshold * 1000);
}

struct cluster;
/*
 * CONFIG has processors.node_stream.enabled. CONFIG, ROUTER and SAMPLER must outlive the cluster;
 * SAMPLER is not started yet. When this returns, the kernel has the policies of the existing
 * cgroups.
 */
int cluster_new(const struct config *config, enum cgroup_mode mode, struct sampler *sampler,
		struct router *router, uv_loop_t *loop, struct cluster **ret,
		struct error *err) _must_check_;
/* Closes its handles; to be called before the loop's last run. Takes NULL. */
void cluster_stop(struct cluster *c);
struct cluster *cluster_free(struct cluster *c);

/* The policies that the CPU budget is divided among; valid as long as the cluster. */
struct policies *cluster_policies(struct cluster *c);
struct cpu_budget;
/* CPU_BUDGET is included in reports; it must outlive the last one. */
void cluster_use_cpu_budget(struct cluster *c, const struct cpu_budget *cpu_budget);
/* The budget from the configuration and the operator: the operator's CPU budget if it sent one, and
 * the smaller of the two memory budgets. Changes while the agent runs. */
struct budget cluster_budget(const struct cluster *c);
/* The state of RT is included in reports; it must outlive the last one. */
void cluster_use_runtimes(struct cluster *c, const struct runtimes *rt);
/* The state of PROBES is included in reports; it must outlive the last one. */
struct probes;
void cluster_use_probes(struct cluster *c, const struct probes *probes);
/* Closes window W; NEXT (empty) takes samples from here on. LAST: W is the last window, so no
 * sample can wait for the next one. */
void cluster_close_window(struct cluster *c, struct window *w, struct window *next, bool last);
/* The container that the cgroup belongs to; NULL: the cgroup is not known. ARG: the cluster. */
const struct container_identity *cluster_container(uint64_t cgroup, void *arg);
/* Which labels and times samples of each policy may export: policies_rules(). */
const struct sample_rules *cluster_rules(const struct cluster *c);
/* RULES apply while no policy of the operator does; they must outlive C. */
void cluster_set_own_rules(struct cluster *c, struct sample_rules rules);
