/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connects the pod table (agent/meta), policies and cgroups (agent/policy), and the sampler, which
 * do not know each other. At the start the last known good snapshot is loaded first, then the
 * existing cgroups are scanned, so that the first sample is taken under the policy of the last run.
 * The operator's state replaces the snapshot when it arrives.
 */
#include "agent/cluster.h"

#include <time.h>

#include "agent/cpu_budget.h"
#include "agent/meta/client.h"
#include "agent/meta/snapshot.h"
#include "agent/policy/cgroup_watch.h"
#include "agent/policy/policy.h"
#include "agent/report.h"
#include "agent/window/identify.h"
#include "lib/log.h"

struct cluster {
	const struct config *config;
	uv_loop_t *loop;
	struct sampler *sampler;
	struct router *router;
	struct meta_client *client;   /* NULL: no operator is configured, */
	struct pod_table *own_pods;   /* ... and this table holds the snapshot */
	const struct pod_table *pods; /* the client's table or own_pods */
	struct policies *policies;
	struct cgroup_watch *watch;
	int64_t started_s;
	uint64_t unresolved; /* containers of the last window that the operator has not described */
	uint64_t told;	     /* report_word() of the last report */
	const struct runtimes *runtimes;
	const struct cpu_budget *cpu_budget; /* NULL: not created yet */
	const struct probes *probes;
	struct report_texts texts;
};

/* ---- the sampler as policies see it ---------------------------------------------------------- */

static int kernel_set_policy(void *arg, uint32_t index, const struct kiln_policy *policy)
{
	return sampler_set_policy(arg, index, policy);
}

static int kernel_set_default(void *arg, uint32_t index)
{
	sampler_set_default_policy(arg, index);
	return 0;
}

static int kernel_set_cgroup(void *arg, uint64_t cgroup, uint32_t index)
{
	return sampler_set_cgroup_policy(arg, cgroup, index);
}

static int kernel_delete_cgroup(void *arg, uint64_t cgroup)
{
	return sampler_delete_cgroup_policy(arg, cgroup);
}

static int kernel_set_rate(void *arg, uint32_t hz)
{
	int r = sampler_set_rate(arg, hz);

	if (r < 0)
		log_error("policy", "cannot set the sampling rate to %u Hz", hz);
	else
		log_debug("policy", "timers at %u Hz", hz);
	return r;
}

static int kernel_set_off_cpu(void *arg, bool on)
{
	struct error err = {};
	int r = sampler_set_off_cpu(arg, on, &err);

	if (r < 0)
		log_error("policy", "off-CPU time is not sampled: %s", err.message);
	else
		log_info("policy", "off-CPU time is %s", on ? "sampled" : "no longer sampled");
	return r;
}

/* ---- events ---------------------------------------------------------------------------------- */

static void on_settled(void *arg)
{
	struct cluster *c = arg;

	if (!c->policies)
		return;
	policies_changed(c->policies);
	router_update(c->router, c->pods);
}

static uint64_t route_of(void *arg, const struct pod_policy *policy)
{
	struct cluster *c = arg;

	return router_route(c->router, c->pods, policy);
}

static void on_made(uint64_t id, const char *path, void *arg)
{
	struct cluster *c = arg;

	policies_cgroup_made(c->policies, id, path);
}

static void on_removed(uint64_t id, void *arg)
{
	struct cluster *c = arg;

	policies_cgroup_removed(c->policies, id, uv_now(c->loop));
}

static void on_scan_begins(void *arg)
{
	struct cluster *c = arg;

	policies_scan_begins(c->policies);
}

static void on_scan_ends(void *arg)
{
	struct cluster *c = arg;

	policies_scan_ends(c->policies, uv_now(c->loop));
}

/* ---- the beginning --------------------------------------------------------------------------- */

static void fill_report(struct meta_report *ret, void *arg);

static int connect_operator(struct cluster *c, const struct pod_events *events,
			    enum cgroup_mode mode, struct error *err)
{
	const struct operator_config *o = &c->config->processors.node_stream;
	_cleanup_free_ char *kernel = host_kernel_release();
	char hash[17] = "";
	const struct meta_options options = {
	    .endpoint = o->endpoint,
	    .ca_file = o->ca_file,
	    .server_name = o->server_name,
	    .token_file = o->token_file,
	    .snapshot_file = o->snapshot_file,
	    .agent_version = KILN_VERSION,
	    .kernel = kernel,
	    .cgroup_mode = cgroup_mode_name(mode),
	    .config_hash = hash,
	};
	const struct meta_events meta_events = {.pods = *events, .report = fill_report, .arg = c};
	int r;

	/* In the form in which the operator hashes the ConfigMap that it renders:
	 * operator/render/render.c. */
	if (c->config->file_hash)
		snprintf(hash, sizeof(hash), "%016llx", (unsigned long long)c->config->file_hash);
	r = meta_client_new(&options, &meta_events, c->loop, &c->client, err);
	if (r < 0)
		return error_wrap(err, r, "processors.k8sattributes.operator");
	c->pods = meta_client_table(c->client);
	return 0;
}

/* Without an operator, pods come from the snapshot file. The agent also works if the file cannot be
 * used: then it knows no pods. */
static int read_snapshot(struct cluster *c, const struct pod_events *events, struct error *err)
{
	const char *path = c->config->processors.node_stream.snapshot_file;
	struct error why = {};
	int r = pod_table_new(events, &c->own_pods);

	if (r < 0)
		return error_set(err, r, "out of memory");
	c->pods = c->own_pods;
	r = snapshot_load(path, c->own_pods, uv_now(c->loop), &why);
	if (r < 0)
		log_warn("meta", "%s: %s", path, why.message[0] ? why.message : strerror(-r));
	return 0;
}

static int follow_cgroups(struct cluster *c, enum cgroup_mode mode, struct error *err)
{
	const struct cgroup_watch_callbacks callbacks = {on_made, on_removed, on_scan_begins,
							 on_scan_ends, c};
	const struct cgroup_watch_options options = {
	    .mode = mode, .policy_map = sampler_cgroup_policies_fd(c->sampler)};
	struct error why;
	int r = cgroup_watch_new(c->loop, &options, &callbacks, &c->watch, &why, err);

	if (r < 0)
		return r;
	if (why.message[0])
		log_warn("policy",
			 "new cgroups are found by looking for them every few seconds: %s",
			 why.message);
	return 0;
}

int cluster_new(const struct config *config, enum cgroup_mode mode, struct sampler *sampler,
		struct router *router, uv_loop_t *loop, struct cluster **ret, struct error *err)
{
	const struct policy_kernel kernel = {kernel_set_policy,
					     kernel_set_default,
					     kernel_set_cgroup,
					     kernel_delete_cgroup,
					     kernel_set_rate,
					     kernel_set_off_cpu,
					     sampler};
	struct cluster *c = calloc(1, sizeof(*c));
	const struct pod_events events = {.settled = on_settled, .arg = c};
	int r;

	if (!c)
		return error_set(err, -ENOMEM, "out of memory");
	c->config = config;
	c->sampler = sampler;
	c->router = router;
	c->loop = loop;
	c->started_s = time(NULL);
	/* From here on the caller frees it, because handles have to be closed by the loop. */
	*ret = c;
	sampler_use_cgroups(sampler);
	if (config->processors.node_stream.endpoint)
		r = connect_operator(c, &events, mode, err);
	else
		r = read_snapshot(c, &events, err);
	if (r < 0)
		return r;
	r = policies_new(&kernel, config->receiver.samples_per_second, ~0U, config->known_tracers,
			 c->pods, &c->policies);
	if (r < 0)
		return error_set(err, r, "cannot set up policies: %s", strerror(-r));
	policies_set_own_off_cpu(c->policies, config_off_cpu(config));
	if (config->processors.node_stream.export_untold)
		policies_export_untold(c->policies);
	policies_use_routes(c->policies, route_of, c);
	router_update(router, c->pods);
	return follow_cgroups(c, mode, err);
}

void cluster_stop(struct cluster *c)
{
	if (!c)
		return;
	c->watch = cgroup_watch_free(c->watch);
	c->client = meta_client_free(c->client);
	/* The client's table is freed with it; the last window's identities hold the references
	 * that they need. */
	if (!c->own_pods)
		c->pods = NULL;
}

struct cluster *cluster_free(struct cluster *c)
{
	if (!c)
		return NULL;
	cluster_stop(c);
	policies_free(c->policies);
	pod_table_free(c->own_pods);
	free(c);
	return NULL;
}

/* ---- telling the operator -------------------------------------------------------------------- */

static void look(struct cluster *c, struct meta_report *ret)
{
	const struct report_sources sources = {
	    .config = c->config,
	    .sampler = c->sampler,
	    .router = c->router,
	    .policies = c->policies,
	    .runtimes = c->runtimes,
	    .governor = c->cpu_budget ? cpu_budget_state(c->cpu_budget) : NULL,
	    .cpu_budget = c->cpu_budget ? cpu_budget_cpu(c->cpu_budget) : 0,
	    .probes = c->probes,
	};

	ret->started_s = c->started_s;
	ret->unresolved_containers = c->unresolved;
	report_fill(&sources, &c->texts, ret);
}

static void fill_report(struct meta_report *ret, void *arg)
{
	struct cluster *c = arg;

	look(c, ret);
	c->told = report_word(ret);
}

/* Sends a report early when a destination fails or recovers, or the applied policies change. */
static void report_turns(struct cluster *c)
{
	struct meta_report now = {0};

	if (!c->client)
		return;
	look(c, &now);
	if (report_word(&now) != c->told)
		meta_client_report_soon(c->client);
}

/* ---- windows --------------------------------------------------------------------------------- */

void cluster_close_window(struct cluster *c, struct window *w, struct window *next, bool last)
{
	uint64_t now = uv_now(c->loop);

	c->unresolved = window_identify(w, next, c->policies, last);
	policies_window(c->policies, next->number, now);
	router_sweep(c->router, policies_routes(c->policies));
	/* A policy or destination that found no free slot may find one after the sweep; one that
	 * found no memory or descriptors, at any time. */
	if (router_take_refused(c->router) || policies_refused(c->policies)) {
		policies_changed(c->policies);
		router_update(c->router, c->pods);
	}
	report_turns(c);
}

struct policies *cluster_policies(struct cluster *c)
{
	return c->policies;
}

struct budget cluster_budget(const struct cluster *c)
{
	const struct budget *own = &c->config->receiver.budget;
	struct pod_table_budget told = {};
	struct budget budget = *own;

	if (c->pods)
		told = pod_table_budget(c->pods);
	if (told.cpu)
		budget.cpu = told.cpu;
	/* The configuration's value was derived from the container's memory limit. */
	if (told.memory)
		budget.memory_bytes =
		    own->memory_bytes ? MIN(own->memory_bytes, told.memory) : told.memory;
	return budget;
}

void cluster_use_cpu_budget(struct cluster *c, const struct cpu_budget *cpu_budget)
{
	c->cpu_budget = cpu_budget;
}

void cluster_use_runtimes(struct cluster *c, const struct runtimes *rt)
{
	c->runtimes = rt;
}

void cluster_use_probes(struct cluster *c, const struct probes *probes)
{
	c->probes = probes;
}

const struct sample_rules *cluster_rules(const struct cluster *c)
{
	return policies_rules(c->policies);
}

void cluster_set_own_rules(struct cluster *c, struct sample_rules rules)
{
	policies_set_own_rules(c->policies, rules);
}

const struct container_identity *cluster_container(uint64_t cgroup, void *arg)
{
	struct cluster *c = arg;

	return policies_cgroup(c->policies, cgroup);
}
