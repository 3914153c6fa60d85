/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The start. One libuv loop owns all state. A timer drains the ring buffer; the ring's descriptor
 * wakes the loop earlier in the cases listed at DRAIN_MS (agent_internal.h). At each reporting
 * interval the current window is exchanged for an empty one (rotation.c). shutdown.c describes the
 * end; `phase` is the step reached, and only goes forward.
 *
 * A signal before the first sample ends the start. Only the loading of the BPF programs has to
 * finish first.
 */
#include "agent/agent_internal.h"

#include <signal.h>
#include <sys/sysinfo.h>

#include "agent/budget.h"
#include "agent/elf/image.h"
#include "agent/meta/pods.h"
#include "agent/process/pid_namespace.h"
#include "agent/process/procfs.h"
#include "lib/wakeup.h"

enum {
	WARM_MS = 2000, /* longest time to prepare the tables of running runtimes at the start */
};

struct sampler_options agent_sampler_options(const struct config *c)
{
	struct sampler_options options = {
	    .hz = c->receiver.samples_per_second,
	    .max_hz = c->processors.node_stream.enabled ? POD_HZ_MAX : 0,
	    /* With an operator, policies enable off-CPU sampling. */
	    .off_cpu = c->processors.node_stream.enabled ? 0 : config_off_cpu(c),
	    .max_depth = c->receiver.max_stack_depth,
	    .unwind_bytes = (size_t)c->receiver.unwind_table_mib << 20,
	    .pids = c->receiver.pids,
	    .n_pids = c->receiver.n_pids,
	    .pid_namespace = pid_namespace_nested("/proc"),
	    .cgroup_mode = CGROUP_V2,
	};

	if (cgroup_mode_detect("/sys/fs/cgroup", &options.cgroup_mode) < 0)
		options.cgroup_mode = CGROUP_V2;
	return options;
}

static int create_exporters(struct agent *a, struct error *err)
{
	const struct config *c = a->config;
	int r;

	a->exporters = calloc(MAX(c->n_exporters, 1), sizeof(*a->exporters));
	if (!a->exporters)
		return error_set(err, -ENOMEM, "out of memory");
	for (size_t i = 0; i < c->n_exporters; i++) {
		r = exporter_new(&c->exporters[i], &a->loop, &a->exporters[i], err);
		/* A failure here means that the settings cannot be used, whatever errno the call
		 * returned. */
		if (r < 0)
			return error_wrap(err, r == -ENOMEM ? r : -EINVAL, "exporters.%s",
					  c->exporters[i].id);
		a->n_exporters++;
	}
	r = router_new(&a->loop, a->exporters, a->n_exporters, &a->router);
	return r < 0 ? error_set(err, r, "out of memory") : 0;
}

static int listen_extensions(struct agent *a, struct error *err)
{
	const struct config *c = a->config;
	struct health_callbacks callbacks = {agent_is_ready, agent_refresh_metrics, a};
	int r;

	if (c->health_check.enabled) {
		r = health_new(&a->loop, &c->health_check, &callbacks, &a->health, err);
		if (r < 0)
			return r;
		log_info("agent", "health and metrics on http://%s/metrics",
			 health_address(a->health));
	}
	if (c->pprof.enabled) {
		r = debug_pprof_new(&a->loop, &c->pprof, c->receiver.reporter_interval_ms,
				    &a->pprof, err);
		if (r < 0)
			return r;
		log_info("agent", "own profile on http://%s/debug/pprof/profile",
			 debug_pprof_address(a->pprof));
	}
	if (c->live.enabled) {
		r = live_new(&a->loop, &c->live, c->receiver.reporter_interval_ms, &a->live, err);
		if (r < 0)
			return r;
		log_info("agent", "flame graph on %s://%s/", c->live.cert_file ? "https" : "http",
			 live_address(a->live));
	}
	return 0;
}

/* Called before anything that takes time: from here on a signal ends the agent with exit code 0. */
static int start_signals(struct agent *a, struct error *err)
{
	int r = 0;

	r |= uv_signal_init(&a->loop, &a->sigint);
	r |= uv_signal_init(&a->loop, &a->sigterm);
	a->has_signals = !r;
	a->sigint.data = a->sigterm.data = a;
	r |= uv_signal_start(&a->sigint, agent_on_signal, SIGINT);
	r |= uv_signal_start(&a->sigterm, agent_on_signal, SIGTERM);
	return r ? error_set(err, -EIO, "cannot set up the signal handlers") : 0;
}

/* Runs the loop once to receive pending signals. True: one has asked the agent to end. */
static bool asked_to_end(struct agent *a)
{
	(void)uv_run(&a->loop, UV_RUN_NOWAIT);
	return a->phase != STARTING;
}

static int start_handles(struct agent *a, struct error *err)
{
	const struct config *c = a->config;
	uint64_t interval = c->receiver.reporter_interval_ms;
	/* With the live page, the first window is short: somebody waits for it to show data. */
	uint64_t first = c->live.enabled ? MIN(interval, (uint64_t)LIVE_FIRST_WINDOW_MS) : interval;
	int r = 0;

	r |= uv_timer_init(&a->loop, &a->drain_timer);
	r |= uv_timer_init(&a->loop, &a->window_timer);
	r |= uv_timer_init(&a->loop, &a->end_timer);
	r |= uv_poll_init(&a->loop, &a->ring_poll, sampler_ring_fd(a->sampler));
	a->has_handles = !r;
	a->drain_timer.data = a->window_timer.data = a->end_timer.data = a;
	a->ring_poll.data = a;
	r |= uv_timer_start(&a->drain_timer, agent_on_drain_timer, DRAIN_NAMES_MS, DRAIN_NAMES_MS);
	r |= uv_timer_start(&a->window_timer, agent_on_window_timer, first, interval);
	if (c->duration_ms)
		r |= uv_timer_start(&a->end_timer, agent_on_end_timer, c->duration_ms, 0);
	r |= uv_poll_start(&a->ring_poll, UV_READABLE, agent_on_ring);
	r |= cpu_budget_start(a->cpu_budget);
	return r ? error_set(err, -EIO, "cannot set up the event loop") : 0;
}

/* Prepares tables and walkers for runtimes that run already: a sample that is taken without them
 * cannot get its runtime frames later. */
static void warm_up(struct agent *a)
{
	uint64_t until = clock_ns(CLOCK_MONOTONIC) + WARM_MS * 1000000ULL;

	/* With policies, most of these processes may not be sampled at all. */
	if (a->cluster)
		return;
	intake_warm(a->intake);
	while ((intake_busy(a->intake) || sampler_loads_walkers(a->sampler)) &&
	       clock_ns(CLOCK_MONOTONIC) < until && !asked_to_end(a))
		usleep(1000);
}

static int join_cluster(struct agent *a, enum cgroup_mode mode, struct error *err)
{
	int r;

	if (!a->config->processors.node_stream.enabled)
		return 0;
	r = cluster_new(a->config, mode, a->sampler, a->router, &a->loop, &a->cluster, err);
	if (r < 0)
		return r;
	intake_set_containers(a->intake, cluster_container, a->cluster);
	cluster_set_own_rules(a->cluster, intake_own_rules(a->intake));
	intake_set_rules(a->intake, cluster_rules(a->cluster));
	cluster_use_runtimes(a->cluster, intake_runtimes(a->intake));
	return 0;
}

static void prepare_windows(struct agent *a)
{
	for (size_t i = 0; i < ARRAY_SIZE(a->windows); i++) {
		window_init(&a->windows[i]);
		a->windows[i].default_route = router_default(a->router);
	}
	window_reset(&a->windows[0], 1, clock_ns(CLOCK_REALTIME));
}

static void set_memory_budget(struct agent *a, uint64_t bytes)
{
	struct sysinfo machine = {};

	(void)sysinfo(&machine);
	a->memory_budget =
	    bytes ? bytes : budget_default((uint64_t)machine.totalram * machine.mem_unit);
	metric_set(M_MEMORY_BUDGET_BYTES, (int64_t)a->memory_budget);
}

/* Every second: takes over a budget that the operator may have changed. */
static void agent_follow_budget(void *arg)
{
	struct agent *a = arg;
	struct budget budget;

	if (a->cluster && a->phase == RUNNING) {
		budget = cluster_budget(a->cluster);
		cpu_budget_set_cpu(a->cpu_budget, budget.cpu);
		set_memory_budget(a, budget.memory_bytes);
	}
	agent_limit_memory(a);
}

/* Until the first window is measured, the slabs may use the whole budget. */
static int set_budget(struct agent *a, struct error *err)
{
	struct budget budget = a->cluster ? cluster_budget(a->cluster) : a->config->receiver.budget;
	const struct cpu_budget_options options = {
	    .loop = &a->loop,
	    .sampler = a->sampler,
	    .policies = a->cluster ? cluster_policies(a->cluster) : NULL,
	    .hz = a->config->receiver.samples_per_second,
	    .cpu = budget.cpu,
	    .each_second = agent_follow_budget,
	    .arg = a,
	};

	set_memory_budget(a, budget.memory_bytes);
	sampler_limit_slabs(a->sampler, budget_for_slabs(a->memory_budget, 0));
	if (cpu_budget_new(&options, &a->cpu_budget) < 0)
		return error_set(err, -ENOMEM, "out of memory");
	if (a->cluster)
		cluster_use_cpu_budget(a->cluster, a->cpu_budget);
	return 0;
}

/* Starts everything: phase is RUNNING then. After a signal returns 0 with another phase, and
 * sampling is not started. */
static int start(struct agent *a, struct error *err)
{
	const struct config *c = a->config;
	struct sampler_options options = agent_sampler_options(c);
	int r;

	r = start_signals(a, err);
	if (r < 0)
		return r;
	footprint_raise_files();
	r = image_catch_faults(err);
	if (r < 0)
		return r;
	r = host_check_privileges(err);
	if (r < 0)
		return r;
	if (options.pid_namespace)
		log_warn("agent", "%s", pid_namespace_advice());
	r = create_exporters(a, err);
	if (r < 0)
		return r;
	/* Before the sampler, because loading the programs needs the most memory of the whole
	 * start. */
	footprint_trim();
	r = sampler_new(&options, &a->sampler, err);
	if (asked_to_end(a))
		return 0;
	if (r < 0)
		return r;
	r = intake_new(c, a->sampler, &a->loop, &a->intake, err);
	if (r < 0)
		return r;
	r = naming_new(c, &a->naming, err);
	if (r < 0)
		return r;
	naming_use_runtimes(a->naming, intake_runtimes(a->intake));
	r = listen_extensions(a, err);
	if (r < 0)
		return r;
	r = join_cluster(a, options.cgroup_mode, err);
	if (r < 0)
		return r;
	prepare_windows(a);
	r = set_budget(a, err);
	if (r < 0)
		return r;
	warm_up(a);
	footprint_trim();
	if (asked_to_end(a))
		return 0;
	/* From here on the loop must run soon after a new process wakes it. */
	wakeup_soon();
	a->phase = RUNNING;
	r = sampler_start(a->sampler, err);
	if (r < 0)
		return r;
	/* Timers count from the loop's cached time, which is from before the start. */
	uv_update_time(&a->loop);
	a->window_start_ns = clock_ns(CLOCK_MONOTONIC);
	a->names_ms = uv_now(&a->loop);
	r = agent_start_probes(a, err);
	if (r < 0)
		return r;
	r = start_handles(a, err);
	if (r < 0)
		return r;
	log_info("agent", "profiling at %u Hz, window %.3g s", c->receiver.samples_per_second,
		 (double)c->receiver.reporter_interval_ms / 1000);
	return 0;
}

static void finish(struct agent *a)
{
	window_done(&a->windows[0]);
	window_done(&a->windows[1]);
	naming_free(a->naming);
	intake_free(a->intake);
	cpu_budget_free(a->cpu_budget);
	cluster_free(a->cluster);
	probes_free(a->probes);
	sampler_free(a->sampler);
	router_free(a->router);
	free(a->exporters);
}

int agent_run(const struct config *config, struct error *err)
{
	_cleanup_free_ struct agent *a = calloc(1, sizeof(*a));
	int r;

	if (!a)
		return error_set(err, -ENOMEM, "out of memory");
	a->config = config;
	/* Writing to a closed connection returns EPIPE instead of ending the process. */
	signal(SIGPIPE, SIG_IGN);
	if (uv_loop_init(&a->loop) < 0)
		return error_set(err, -EIO, "cannot set up the event loop");
	r = start(a, err);
	if (r < 0 || a->phase != RUNNING)
		agent_close(a);
	uv_run(&a->loop, UV_RUN_DEFAULT);
	finish(a);
	if (uv_loop_close(&a->loop) < 0)
		log_debug("agent", "some handles were left open");
	if (!r && a->failure.code < 0)
		r = error_set(err, a->failure.code, "%s", a->failure.message);
	return r;
}
