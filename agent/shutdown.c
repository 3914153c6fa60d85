/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ending: stop sampling, drain, wait for the tables that samples lack, name the last window, flush
 * the exporters, close every handle. Each step begins when the one before is done: all code that
 * may complete a step calls agent_advance(). Loop thread only.
 */
#include "agent/agent_internal.h"

#include "lib/pace.h"

enum {
	TABLES_WAIT_MS = 2000, /* for samples that lack a table */
	FLUSH_MS = 10000,      /* for the exporters */
};

static void close_handle(uv_handle_t *handle, void *arg)
{
	if (!uv_is_closing(handle))
		uv_close(handle, NULL);
}

static void on_flushed(void *arg)
{
	struct agent *a = arg;

	a->flushed++;
	agent_advance(a);
}

static void flush_exporters(struct agent *a)
{
	size_t n = a->n_exporters;

	a->phase = FLUSHING;
	for (size_t i = 0; i < n; i++)
		a->exporters[i]->ops->flush(a->exporters[i], FLUSH_MS, on_flushed, a);
	router_flush(a->router, FLUSH_MS, on_flushed, a);
}

void agent_close(struct agent *a)
{
	a->phase = CLOSING;
	for (size_t i = 0; i < a->n_exporters; i++)
		if (a->exporters[i]->failed)
			error_set(&a->failure, -EIO,
				  "exporters.%s: not everything could be written",
				  a->exporters[i]->name);
	for (size_t i = 0; i < a->n_exporters; i++)
		a->exporters[i] = a->exporters[i]->ops->destroy(a->exporters[i]);
	a->n_exporters = 0;
	router_close(a->router);
	intake_stop(a->intake);
	cluster_stop(a->cluster);
	cpu_budget_stop(a->cpu_budget);
	a->health = health_free(a->health);
	a->pprof = debug_pprof_free(a->pprof);
	a->live = live_free(a->live);
	if (a->has_signals) {
		close_handle((uv_handle_t *)&a->sigint, NULL);
		close_handle((uv_handle_t *)&a->sigterm, NULL);
	}
	if (!a->has_handles)
		return;
	close_handle((uv_handle_t *)&a->drain_timer, NULL);
	close_handle((uv_handle_t *)&a->window_timer, NULL);
	close_handle((uv_handle_t *)&a->end_timer, NULL);
	close_handle((uv_handle_t *)&a->ring_poll, NULL);
}

void agent_advance(struct agent *a)
{
	if (a->phase == SETTLING && !a->naming_busy &&
	    (!intake_busy(a->intake) || uv_now(&a->loop) >= a->settle_until_ms)) {
		intake_give_up(a->intake, &a->windows[a->current]);
		a->phase = NAMING_LAST;
		agent_close_window(a);
	}
	if (a->phase == NAMING_LAST && !a->naming_busy)
		flush_exporters(a);
	if (a->phase == FLUSHING && a->flushed > a->n_exporters)
		agent_close(a);
}

void agent_stop(struct agent *a)
{
	if (a->phase != RUNNING)
		return;
	a->phase = SETTLING;
	/* The user waits for the end, so the workers are not slowed down. */
	pace_set_limit(0);
	cpu_budget_stop(a->cpu_budget);
	sampler_stop(a->sampler);
	while (intake_drain(a->intake, &a->windows[a->current]))
		;
	uv_timer_stop(&a->window_timer);
	a->settle_until_ms = uv_now(&a->loop) + TABLES_WAIT_MS;
	agent_advance(a);
}

void agent_on_end_timer(uv_timer_t *timer)
{
	agent_stop(timer->data);
}

void agent_on_signal(uv_signal_t *handle, int signum)
{
	struct agent *a = handle->data;

	if (a->phase == STARTING) {
		a->phase = CLOSING; /* checked by start() */
		return;
	}
	if (a->phase != RUNNING && signum == SIGINT) {
		/* The second request: do not wait for anything. */
		log_warn("agent", "second interrupt: leaving without flushing");
		_exit(130);
	}
	agent_stop(a);
}
