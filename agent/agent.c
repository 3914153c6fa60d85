/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of things. One libuv loop owns all state. A timer drains the ring buffer; the ring's
 * descriptor wakes the loop only for new processes. At each reporting interval the current window
 * is exchanged for an empty one and named by a worker; the batch that comes back goes to every
 * exporter. Where policies say who gets a pod's samples (agent/export/route.h), a window becomes
 * several.
 *
 * A signal before the first sample ends the start instead, which has to wait for the loading of the
 * programs alone. Ending: stop sampling, drain, wait for the tables that samples lack, name the
 * last window, flush the exporters, close every handle. `phase` says where in that we are; only
 * forward.
 */
#include "agent/agent.h"

#include <signal.h>
#include <time.h>
#include <uv.h>

#include "agent/cluster.h"
#include "agent/elf/image.h"
#include "agent/export/exporter.h"
#include "agent/export/route.h"
#include "agent/footprint.h"
#include "agent/http/debug_pprof.h"
#include "agent/http/health.h"
#include "agent/live/live.h"
#include "agent/process/pid_namespace.h"
#include "agent/process/procfs.h"
#include "agent/window/intake.h"
#include "agent/window/naming.h"
#include "agent/window/split.h"
#include "lib/log.h"
#include "lib/metrics.h"

enum {
	DRAIN_MS = 100,
	TABLES_WAIT_MS = 2000, /* at the end, for samples that lack a table */
	FLUSH_MS = 10000,      /* at the end, for the exporters */
	WARM_MS = 2000,	       /* at the start, for the tables of runtimes */
};

enum phase { STARTING, RUNNING, SETTLING, NAMING_LAST, FLUSHING, CLOSING };

struct agent {
	const struct config *config;
	uv_loop_t loop;
	enum phase phase;
	struct sampler *sampler;
	struct intake *intake;
	struct naming *naming;
	struct cluster *cluster; /* NULL: no operator */
	struct window windows[2];
	unsigned int current; /* of windows; the other is being named or empty */
	bool naming_busy;
	enum memory_pressure pressure;
	uv_work_t naming_work;
	/* What the worker made; NULL: it could not. */
	struct split split;
	struct batch *batches[SPLIT_PARTS_MAX], *whole;
	bool whole_wanted; /* by pprof or the page: a window that is split, in one piece too */
	int naming_result;
	uint64_t duration_ns;
	uint64_t window_start_ns; /* CLOCK_MONOTONIC */
	uint32_t hz[KILN_MAX_POLICIES];
	struct exporter **exporters;
	size_t n_exporters, flushed; /* of n_exporters + 1: the router */
	struct router *router;
	struct health *health;
	struct debug_pprof *pprof;
	struct live *live;
	bool reported;	  /* a window went out */
	bool has_signals; /* sigint and sigterm are initialised */
	bool has_handles; /* timers and the ring's poll are */
	uint64_t settle_until_ms;
	struct error failure; /* of an exporter; the run goes on, its exit code tells */
	uv_timer_t drain_timer, window_timer, end_timer;
	uv_poll_t ring_poll;
	uv_signal_t sigint, sigterm;
};

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

static void advance(struct agent *a);
static void stop(struct agent *a);

/* ---- windows --------------------------------------------------------------------------------- */

static void name_window(uv_work_t *work)
{
	struct agent *a = container_of(work, struct agent, naming_work);
	const uint32_t *hz = a->cluster ? cluster_hz(a->cluster) : a->hz;
	const struct window *w = &a->windows[1 - a->current];
	int r;

	a->naming_result = 0;
	window_split(w, &a->split);
	for (size_t i = 0; i < a->split.n; i++) {
		r = naming_build(a->naming, w, split_whose(&a->split, i), hz, a->duration_ns,
				 &a->batches[i]);
		a->naming_result = r < 0 ? r : a->naming_result;
	}
	if (!a->split.whole && a->whole_wanted &&
	    naming_build(a->naming, w, 0, hz, a->duration_ns, &a->whole) < 0)
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
	/* The first window is the one that met every file. */
	if (!a->reported)
		footprint_trim();
	a->reported = true;
}

/* The memory_limiter: near its limit the agent forgets what it can find again, at it takes nothing
 * new. */
static void limit_memory(struct agent *a)
{
	const struct processors_config *p = &a->config->processors;
	uint64_t resident = p->memory_limit_bytes ? footprint_resident() : 0;
	enum memory_pressure pressure = PRESSURE_NONE;

	if (!p->memory_limit_bytes)
		return;
	if (resident > p->memory_limit_bytes)
		pressure = PRESSURE_HARD;
	else if (resident >
		 p->memory_limit_bytes - MIN(p->memory_spike_bytes, p->memory_limit_bytes))
		pressure = PRESSURE_SOFT;
	if (pressure != a->pressure)
		log_warn("agent", "memory_limiter: %llu MiB resident of %llu: %s",
			 (unsigned long long)(resident >> 20),
			 (unsigned long long)(p->memory_limit_bytes >> 20),
			 pressure == PRESSURE_HARD   ? "new stacks are dropped"
			 : pressure == PRESSURE_SOFT ? "caches are kept small"
						     : "all is well again");
	a->pressure = pressure;
	metric_set(M_MEMORY_PRESSURE, pressure);
	intake_set_pressure(a->intake, pressure);
	if (pressure)
		footprint_trim();
}

static void window_named(uv_work_t *work, int status)
{
	struct agent *a = container_of(work, struct agent, naming_work);
	struct window *w = &a->windows[1 - a->current];

	a->naming_busy = false;
	if (!status)
		deliver(a);
	if (status || a->naming_result) {
		metric_add(M_WINDOWS_FAILED, 1);
		log_error("agent", "a window of %zu stacks could not be named: %s", w->n,
			  strerror(-a->naming_result));
	}
	limit_memory(a);
	intake_sweep(a->intake, w);
	window_reset(w, 0, 0);
	footprint_decay();
	advance(a);
}

/* Exchanges the windows and has the full one named. */
static void close_window(struct agent *a)
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
	a->whole_wanted = a->live || (a->pprof && debug_pprof_pending(a->pprof));
	a->naming_busy = true;
	if (uv_queue_work(&a->loop, &a->naming_work, name_window, window_named) < 0) {
		a->naming_busy = false;
		metric_add(M_WINDOWS_FAILED, 1);
	}
}

static void on_window_timer(uv_timer_t *timer)
{
	struct agent *a = timer->data;

	intake_drain(a->intake, &a->windows[a->current]);
	if (a->naming_busy) {
		metric_add(M_WINDOWS_LATE, 1);
		return;
	}
	close_window(a);
}

static bool nobody_listens(const struct agent *a)
{
	for (size_t i = 0; i < a->n_exporters; i++)
		if (!a->exporters[i]->gone)
			return false;
	return a->n_exporters > 0 && !router_has_live(a->router);
}

static void on_drain_timer(uv_timer_t *timer)
{
	struct agent *a = timer->data;

	intake_drain(a->intake, &a->windows[a->current]);
	if (a->phase != RUNNING)
		advance(a);
	else if (nobody_listens(a))
		stop(a);
}

static void on_ring(uv_poll_t *poll, int status, int events)
{
	struct agent *a = poll->data;

	intake_drain(a->intake, &a->windows[a->current]);
}

/* ---- the end --------------------------------------------------------------------------------- */

static void close_handle(uv_handle_t *handle, void *arg)
{
	if (!uv_is_closing(handle))
		uv_close(handle, NULL);
}

static void on_flushed(void *arg)
{
	struct agent *a = arg;

	a->flushed++;
	advance(a);
}

static void flush_exporters(struct agent *a)
{
	size_t n = a->n_exporters;

	a->phase = FLUSHING;
	for (size_t i = 0; i < n; i++)
		a->exporters[i]->ops->flush(a->exporters[i], FLUSH_MS, on_flushed, a);
	router_flush(a->router, FLUSH_MS, on_flushed, a);
}

static void close_everything(struct agent *a)
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

/* Takes the next step towards the end, if the one before is done. */
static void advance(struct agent *a)
{
	if (a->phase == SETTLING && !a->naming_busy &&
	    (!intake_busy(a->intake) || uv_now(&a->loop) >= a->settle_until_ms)) {
		intake_give_up(a->intake, &a->windows[a->current]);
		a->phase = NAMING_LAST;
		close_window(a);
	}
	if (a->phase == NAMING_LAST && !a->naming_busy)
		flush_exporters(a);
	if (a->phase == FLUSHING && a->flushed > a->n_exporters)
		close_everything(a);
}

static void stop(struct agent *a)
{
	if (a->phase != RUNNING)
		return;
	a->phase = SETTLING;
	sampler_stop(a->sampler);
	intake_drain(a->intake, &a->windows[a->current]);
	uv_timer_stop(&a->window_timer);
	a->settle_until_ms = uv_now(&a->loop) + TABLES_WAIT_MS;
	advance(a);
}

static void on_end_timer(uv_timer_t *timer)
{
	stop(timer->data);
}

static void on_signal(uv_signal_t *handle, int signum)
{
	struct agent *a = handle->data;

	if (a->phase == STARTING) {
		a->phase = CLOSING; /* start() looks at it */
		return;
	}
	if (a->phase != RUNNING && signum == SIGINT) {
		/* Asked twice: do not wait for anybody. */
		a->flushed = a->n_exporters + 1;
		log_warn("agent", "second interrupt: leaving without flushing");
		_exit(130);
	}
	stop(a);
}

/* ---- self-observation ------------------------------------------------------------------------ */

static bool is_ready(void *arg, char *reason, size_t size)
{
	const struct agent *a = arg;

	if (a->phase == STARTING)
		snprintf(reason, size, "the agent is starting");
	else if (a->phase != RUNNING)
		snprintf(reason, size, "the agent is ending");
	else if (!a->reported)
		snprintf(reason, size, "the first window is not over yet");
	else
		return true;
	return false;
}

static void refresh_metrics(void *arg)
{
	struct agent *a = arg;
	struct sampler_stats s;
	struct intake_stats in;

	sampler_read_stats(a->sampler, &s);
	intake_read_stats(a->intake, &in);
	metric_set(M_SAMPLES_UNSELECTED, (int64_t)s.counts[KILN_STAT_SKIPPED]);
	metric_set(M_SAMPLES_THINNED, (int64_t)s.counts[KILN_STAT_THINNED]);
	metric_set(M_RING_FULL, (int64_t)s.counts[KILN_STAT_RING_FULL]);
	metric_set(M_DROPPED_RING_FULL, (int64_t)s.counts[KILN_STAT_RING_FULL]);
	metric_set(M_FRAME_CACHE_HITS, (int64_t)s.counts[KILN_STAT_CACHE_HIT]);
	metric_set(M_FRAME_CACHE_MISSES, (int64_t)s.counts[KILN_STAT_CACHE_MISS]);
	metric_set(M_PROCESSES_FULL, (int64_t)s.counts[KILN_STAT_PROCESS_FULL]);
	metric_set(M_BPF_RUNS, (int64_t)s.runs);
	metric_set(M_BPF_RUN_NS, (int64_t)s.run_ns);
	metric_set(M_BPF_MAP_BYTES, (int64_t)s.map_bytes);
	metric_set(M_IMAGES_LOADED, in.tables);
	metric_set(M_UNWIND_TABLE_BYTES, (int64_t)in.table_bytes);
	metric_set(M_PROCESSES, (int64_t)in.processes);
	metric_set(M_STACKS_INTERNED, (int64_t)in.stacks);
	metric_set(M_RUNTIME_NAME_BYTES, (int64_t)in.name_bytes);
	metric_set(M_QUEUE_SAMPLES, (int64_t)in.waiting);
}

/* ---- the beginning --------------------------------------------------------------------------- */

static struct sampler_options sampler_options(const struct config *c)
{
	struct sampler_options options = {
	    .hz = c->receiver.samples_per_second,
	    .max_depth = c->receiver.max_stack_depth,
	    .unwind_bytes = (size_t)c->receiver.unwind_table_mib << 20,
	    .pids = c->receiver.pids,
	    .n_pids = c->receiver.n_pids,
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
		/* What it asks for cannot be had: a wrong setting, whichever call found out. */
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
	struct health_callbacks callbacks = {is_ready, refresh_metrics, a};
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

/* Before anything that takes time: whoever asks us to end gets exit code 0 from then on. */
static int start_signals(struct agent *a, struct error *err)
{
	int r = 0;

	r |= uv_signal_init(&a->loop, &a->sigint);
	r |= uv_signal_init(&a->loop, &a->sigterm);
	a->has_signals = !r;
	a->sigint.data = a->sigterm.data = a;
	r |= uv_signal_start(&a->sigint, on_signal, SIGINT);
	r |= uv_signal_start(&a->sigterm, on_signal, SIGTERM);
	return r ? error_set(err, -EIO, "cannot set up the signal handlers") : 0;
}

/* Has a signal come while there was no loop to hear it? */
static bool asked_to_end(struct agent *a)
{
	(void)uv_run(&a->loop, UV_RUN_NOWAIT);
	return a->phase != STARTING;
}

static int start_handles(struct agent *a, struct error *err)
{
	const struct config *c = a->config;
	uint64_t interval = c->receiver.reporter_interval_ms;
	/* Whoever opened the page is waiting for it to show something. */
	uint64_t first = c->live.enabled ? MIN(interval, (uint64_t)LIVE_FIRST_WINDOW_MS) : interval;
	int r = 0;

	r |= uv_timer_init(&a->loop, &a->drain_timer);
	r |= uv_timer_init(&a->loop, &a->window_timer);
	r |= uv_timer_init(&a->loop, &a->end_timer);
	r |= uv_poll_init(&a->loop, &a->ring_poll, sampler_ring_fd(a->sampler));
	a->has_handles = !r;
	a->drain_timer.data = a->window_timer.data = a->end_timer.data = a;
	a->ring_poll.data = a;
	r |= uv_timer_start(&a->drain_timer, on_drain_timer, DRAIN_MS, DRAIN_MS);
	r |= uv_timer_start(&a->window_timer, on_window_timer, first, interval);
	if (c->duration_ms)
		r |= uv_timer_start(&a->end_timer, on_end_timer, c->duration_ms, 0);
	r |= uv_poll_start(&a->ring_poll, UV_READABLE, on_ring);
	return r ? error_set(err, -EIO, "cannot set up the event loop") : 0;
}

/* Tables of runtimes that run already: their frames cannot be found after the fact. */
static void warm_up(struct agent *a)
{
	uint64_t until = clock_ns(CLOCK_MONOTONIC) + WARM_MS * 1000000ULL;

	/* Where policies select, most of it would be for nothing. */
	if (a->cluster)
		return;
	intake_warm(a->intake);
	while (intake_busy(a->intake) && clock_ns(CLOCK_MONOTONIC) < until && !asked_to_end(a))
		usleep(1000);
}

/* Up to RUNNING; or, after a signal, 0 with another phase and nothing begun. */
static int start(struct agent *a, struct error *err)
{
	const struct config *c = a->config;
	struct sampler_options options = sampler_options(c);
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
	if (pid_namespace_is_nested("/proc"))
		log_warn("agent", "%s", pid_namespace_advice());
	r = create_exporters(a, err);
	if (r < 0)
		return r;
	/* Before the sampler: loading the programs takes the most memory of the whole start. */
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
	if (c->processors.node_stream.enabled) {
		r = cluster_new(c, options.cgroup_mode, a->sampler, a->router, &a->loop,
				&a->cluster, err);
		if (r < 0)
			return r;
		intake_set_containers(a->intake, cluster_container, a->cluster);
		cluster_use_runtimes(a->cluster, intake_runtimes(a->intake));
	}
	for (size_t i = 0; i < ARRAY_SIZE(a->hz); i++)
		a->hz[i] = c->receiver.samples_per_second;
	window_init(&a->windows[0], c->receiver.timestamps);
	window_init(&a->windows[1], c->receiver.timestamps);
	a->windows[0].default_route = a->windows[1].default_route = router_default(a->router);
	window_reset(&a->windows[0], 1, clock_ns(CLOCK_REALTIME));
	warm_up(a);
	footprint_trim();
	if (asked_to_end(a))
		return 0;
	a->phase = RUNNING;
	r = sampler_start(a->sampler, err);
	if (r < 0)
		return r;
	/* Timers count from the loop's last look at the clock, which was before all of this. */
	uv_update_time(&a->loop);
	a->window_start_ns = clock_ns(CLOCK_MONOTONIC);
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
	cluster_free(a->cluster);
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
	/* A peer that closes its connection is an error of that write, not of the process. */
	signal(SIGPIPE, SIG_IGN);
	if (uv_loop_init(&a->loop) < 0)
		return error_set(err, -EIO, "cannot set up the event loop");
	r = start(a, err);
	if (r < 0 || a->phase != RUNNING)
		close_everything(a);
	uv_run(&a->loop, UV_RUN_DEFAULT);
	finish(a);
	if (uv_loop_close(&a->loop) < 0)
		log_debug("agent", "some handles were left open");
	if (!r && a->failure.code < 0)
		r = error_set(err, a->failure.code, "%s", a->failure.message);
	return r;
}

int agent_check(const struct config *config, struct error *err)
{
	struct sampler_options options = sampler_options(config);
	_cleanup_(sampler_freep) struct sampler *s = NULL;
	int r = host_check_privileges(err);

	if (r < 0)
		return r;
	r = sampler_new(&options, &s, err);
	if (r < 0)
		return r;
	return sampler_start(s, err);
}
