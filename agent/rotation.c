/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two windows take turns: one takes samples while a worker names the other one. Its batch then goes
 * to the exporters; where policies route samples (agent/export/route.h), a window becomes several
 * batches. If the worker is not done at the end of an interval, the current window is used on
 * (M_WINDOWS_LATE). Loop thread, but for name_window().
 */
#include "agent/agent_internal.h"

#include "agent/budget.h"

/* ---- naming ---------------------------------------------------------------------------------- */

static void name_window(struct work *work)
{
	struct agent *a = container_of(work, struct agent, naming_work);
	const struct window *w = &a->windows[1 - a->current];
	int r;

	a->naming_result = 0;
	window_split(w, &a->split);
	for (size_t i = 0; i < a->split.n; i++) {
		r = naming_build(a->naming, w, split_whose(&a->split, i), a->duration_ns,
				 &a->batches[i]);
		a->naming_result = r < 0 ? r : a->naming_result;
	}
	if (!a->split.whole && a->whole_wanted &&
	    naming_build(a->naming, w, 0, a->duration_ns, &a->whole) < 0)
		a->whole = NULL;
}

static void deliver(struct agent *a)
{
	struct batch *all = a->split.whole ? a->batches[0] : a->whole;

	for (size_t i = 0; i < a->split.n; i++)
		if (a->batches[i])
			router_deliver(a->router, a->split.parts[i], a->batches[i]);
	if (a->pprof && all)
		debug_pprof_consume(a->pprof, all);
	if (a->live && all)
		live_consume(a->live, all);
	for (size_t i = 0; i < a->split.n; i++)
		a->batches[i] = batch_unref(a->batches[i]);
	a->whole = batch_unref(a->whole);
	metric_add(M_WINDOWS, 1);
	/* The first window is the one that opened and read every file. */
	if (!a->reported)
		footprint_trim();
	a->reported = true;
}

static enum memory_pressure limiter_pressure(const struct processors_config *p)
{
	uint64_t resident = p->memory_limit_bytes ? footprint_resident() : 0;

	if (resident > p->memory_limit_bytes)
		return PRESSURE_HARD;
	return resident > p->memory_limit_bytes - MIN(p->memory_spike_bytes, p->memory_limit_bytes)
		   ? PRESSURE_SOFT
		   : PRESSURE_NONE;
}

/*
 * Near the memory budget or the memory_limiter's limit, the agent frees what it can find again;
 * beyond it, new stacks are counted without their frames.
 */
void agent_limit_memory(void *agent)
{
	struct agent *a = agent;
	uint64_t budget = a->memory_budget, slabs,
		 used = footprint_anonymous() + sampler_map_bytes(a->sampler, &slabs);
	enum memory_pressure pressure;

	sampler_limit_slabs(a->sampler, budget_for_slabs(budget, used - slabs));
	pressure = MAX(budget_pressure(budget, used), limiter_pressure(&a->config->processors));
	metric_set(M_MEMORY_USED_BYTES, (int64_t)used);
	if (pressure != a->pressure)
		log_warn("agent", "memory: %llu MiB of a budget of %llu, %llu MiB resident: %s",
			 (unsigned long long)(used >> 20), (unsigned long long)(budget >> 20),
			 (unsigned long long)(footprint_resident() >> 20),
			 pressure == PRESSURE_HARD   ? "new stacks lose their frames"
			 : pressure == PRESSURE_SOFT ? "caches are kept small"
						     : "all is well again");
	a->pressure = pressure;
	metric_set(M_MEMORY_PRESSURE, pressure);
	intake_set_pressure(a->intake, pressure);
	if (pressure)
		footprint_trim();
}

static void window_named(struct work *work)
{
	struct agent *a = container_of(work, struct agent, naming_work);
	struct window *w = &a->windows[1 - a->current];

	a->naming_busy = false;
	cpu_budget_window_begins(a->cpu_budget);
	deliver(a);
	if (a->naming_result) {
		metric_add(M_WINDOWS_FAILED, 1);
		log_error("agent", "a window of %zu stacks could not be named: %s", w->n,
			  strerror(-a->naming_result));
	}
	agent_limit_memory(a);
	intake_sweep(a->intake, w);
	window_reset(w, 0, 0);
	footprint_decay();
	cpu_budget_window_ends(a->cpu_budget);
	agent_advance(a);
}

void agent_close_window(struct agent *a)
{
	struct window *next = &a->windows[1 - a->current];
	uint64_t now = clock_ns(CLOCK_MONOTONIC);

	window_reset(next, a->windows[a->current].number + 1, clock_ns(CLOCK_REALTIME));
	a->duration_ns = now - a->window_start_ns;
	a->window_start_ns = now;
	a->current = 1 - a->current;
	intake_use_window(a->intake, next);
	if (a->cluster)
		cluster_close_window(a->cluster, &a->windows[1 - a->current], next,
				     a->phase != RUNNING);
	agent_name_probes(a, &a->windows[1 - a->current]);
	a->whole_wanted = a->live || (a->pprof && debug_pprof_pending(a->pprof));
	a->naming_busy = true;
	if (work_submit(&a->loop, &a->naming_work, name_window, window_named) < 0) {
		a->naming_busy = false;
		metric_add(M_WINDOWS_FAILED, 1);
	}
}

/* ---- timers ---------------------------------------------------------------------------------- */

/* Logs once: the maps have their sizes until the agent is restarted. */
static void warn_of_cpus_beyond(struct agent *a)
{
	size_t beyond = sampler_cpus_beyond(a->sampler);

	if (!beyond || a->cpus_beyond)
		return;
	a->cpus_beyond = true;
	log_warn("agent",
		 "CPUs that were added are not sampled (%zu): there is room for CPUs 0 to %d; "
		 "restart the agent",
		 beyond, sampler_cpus(a->sampler) - 1);
}

/* Logs only the first of several failures in a row; the next window tries again. */
static void follow_cpus(struct agent *a)
{
	struct error err = {};
	bool failed = a->phase == RUNNING && (sampler_refresh_cpus(a->sampler, &err) < 0 ||
					      intake_refresh_cpus(a->intake, &err) < 0);

	if (failed && !a->cpus_failed)
		log_warn("agent", "a CPU that came online is not sampled: %s", err.message);
	a->cpus_failed = failed;
	warn_of_cpus_beyond(a);
}

/*
 * Sets the time of the next drain. MORE: the ring is not empty. Even then the timer waits for
 * DRAIN_MORE_MS, so that the loop serves its other handles: libuv (1.44, src/timer.c,
 * uv__run_timers()) runs all due timers one after the other, also one that starts itself again
 * without a delay. An agent that gets too little CPU time would then serve nothing else.
 */
static void set_drain_timer(struct agent *a, bool more)
{
	uint64_t now = uv_now(&a->loop), interval = DRAIN_MS;

	if (intake_met_names(a->intake))
		a->names_ms = now;
	if (intake_lost_names(a->intake)) {
		a->lost_for_ms = now - a->lost_ms < 4 * a->lost_for_ms
				     ? MIN(2 * a->lost_for_ms, (uint64_t)LOST_FOR_MAX_MS)
				     : LOST_FOR_MS;
		a->lost_ms = now;
	}
	if (now - a->names_ms < NEW_FOR_MS && now - a->lost_ms < a->lost_for_ms)
		interval = DRAIN_LOST_MS;
	else if (intake_left_names(a->intake))
		interval = DRAIN_NAMES_MS;
	/* The timer's expiry is aligned to a multiple of its interval, and so is the budget's: two
	 * timers that expire together wake the loop once. */
	(void)uv_timer_start(&a->drain_timer, agent_on_drain_timer,
			     more ? DRAIN_MORE_MS : interval - now % interval, interval);
}

static void drain(struct agent *a)
{
	if (a->ring_rests)
		a->ring_rests = uv_poll_start(&a->ring_poll, UV_READABLE, agent_on_ring) < 0;
	set_drain_timer(a, intake_drain(a->intake, &a->windows[a->current]));
}

void agent_on_window_timer(uv_timer_t *timer)
{
	struct agent *a = timer->data;

	follow_cpus(a);
	drain(a);
	if (a->naming_busy) {
		metric_add(M_WINDOWS_LATE, 1);
		return;
	}
	cpu_budget_window_begins(a->cpu_budget);
	agent_close_window(a);
	cpu_budget_window_ends(a->cpu_budget);
}

static bool nobody_listens(const struct agent *a)
{
	for (size_t i = 0; i < a->n_exporters; i++)
		if (!a->exporters[i]->gone)
			return false;
	return a->n_exporters > 0 && !router_has_live(a->router);
}

void agent_on_drain_timer(uv_timer_t *timer)
{
	struct agent *a = timer->data;

	drain(a);
	if (a->phase != RUNNING)
		agent_advance(a);
	else if (nobody_listens(a))
		agent_stop(a);
}

void agent_on_ring(uv_poll_t *poll, int status, int events)
{
	struct agent *a = poll->data;
	uint64_t now = uv_now(&a->loop);

	drain(a);
	if (now - a->ring_ms < RING_REST_MS) {
		a->ring_rests = uv_poll_stop(poll) == 0;
		(void)uv_timer_start(&a->drain_timer, agent_on_drain_timer, RING_REST_MS, 0);
	}
	a->ring_ms = now;
}
