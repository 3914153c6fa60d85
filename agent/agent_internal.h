/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct agent: what agent.c (the start), rotation.c (windows), shutdown.c (the end) and
 * agent_metrics.c share. Loop thread only, except the members that the naming worker uses while
 * naming_busy is set.
 */
#pragma once

#include "agent/agent.h"

#include <time.h>
#include <uv.h>

#include "agent/cluster.h"
#include "agent/export/exporter.h"
#include "agent/export/route.h"
#include "agent/footprint.h"
#include "agent/cpu_budget.h"
#include "agent/http/debug_pprof.h"
#include "agent/http/health.h"
#include "agent/live/live.h"
#include "agent/probes/probes.h"
#include "agent/window/intake.h"
#include "agent/window/naming.h"
#include "agent/window/split.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/metrics.h"
#include "lib/work.h"

enum {
	/*
	 * Between two drains of the ring. A wakeup costs as much CPU time as 30 known samples: with
	 * 250 ms, at 97 Hz on two CPUs, that was a third of the loop's time. The kernel wakes the
	 * loop earlier for a new process, for a runtime's function that this CPU has not seen
	 * recently, if the process is young (hurry_names()) or the function is short-lived
	 * (walk_hurry()), and when the ring is half full.
	 */
	DRAIN_MS = 500,
	/* When the ring wakes the loop twice within this time, it is not polled for this time: on
	 * many CPUs there would be a storm of wakeups. */
	RING_REST_MS = 2,
	/* While names of runtimes' functions are left to read: a drain reads only so many. */
	DRAIN_NAMES_MS = 200,
	/* While functions come that are new, after the name of one could not be read: its process
	 * has ended, or the function is gone from memory. Others may be as short-lived. */
	DRAIN_LOST_MS = 20,
	NEW_FOR_MS = 1000, /* how long after the last new function */
	/* How long DRAIN_LOST_MS is used after such a loss: 500 ms; if losses soon follow one
	 * another, twice as long as after the loss before, up to 10 s. Not always 10 s: a single
	 * loss then doubled the loop's CPU time beside a Kotlin compiler. */
	LOST_FOR_MS = 500,
	LOST_FOR_MAX_MS = 10000,
	DRAIN_MORE_MS = 1, /* when the ring is not empty; must not be 0: see set_drain_timer() */
};
enum phase { STARTING, RUNNING, SETTLING, NAMING_LAST, FLUSHING, CLOSING };

struct agent {
	const struct config *config;
	uv_loop_t loop;
	enum phase phase;
	struct sampler *sampler;
	struct probes *probes;
	uint64_t probes_tried_ms; /* when attaching the probes was tried last */
	struct intake *intake;
	struct naming *naming;
	struct cluster *cluster; /* NULL: no operator */
	struct window windows[2];
	/* Index of the window that takes samples; the other is being named, or empty. */
	unsigned int current;
	bool naming_busy;
	enum memory_pressure pressure;
	uint64_t memory_budget; /* bytes; budget.h */
	struct cpu_budget *cpu_budget;
	struct work naming_work;
	/* The worker's results; NULL: that batch could not be made. */
	struct split split;
	struct batch *batches[SPLIT_PARTS_MAX], *whole;
	/* Pprof or the live page wants the window as one batch even if it is split by route. */
	bool whole_wanted;
	int naming_result;
	uint64_t duration_ns;
	uint64_t window_start_ns; /* CLOCK_MONOTONIC */
	struct exporter **exporters;
	/* Flushed: exporters that have finished, and the router: n_exporters + 1 when done. */
	size_t n_exporters, flushed;
	struct router *router;
	struct health *health;
	struct debug_pprof *pprof;
	struct live *live;
	bool cpus_failed; /* adding CPUs that came online failed at the end of the last window */
	bool cpus_beyond; /* there was a warning about CPUs that the maps have no room for */
	bool reported;	  /* the first window has been delivered */
	bool has_signals; /* sigint and sigterm are initialised */
	bool has_handles; /* timers and the ring's poll are initialised */
	uint64_t settle_until_ms;
	struct error failure; /* of an exporter; the run goes on, and the exit code reports it */
	uv_timer_t drain_timer, window_timer, end_timer;
	uint64_t names_ms;    /* uv_now() when a new runtime frame was met last */
	uint64_t lost_ms;     /* uv_now() when a runtime frame's name could not be read last */
	uint64_t lost_for_ms; /* how long the loop is in a hurry for that; 0: none was lost yet */
	uv_poll_t ring_poll;
	uint64_t ring_ms; /* uv_now() of the ring's last wakeup */
	bool ring_rests;  /* the ring is not polled until the next drain */
	uv_signal_t sigint, sigterm;
};

/* agent.c */
struct sampler_options agent_sampler_options(const struct config *c);

/* probes.c */
/* Attaches the configuration's probes. A probe that cannot be attached is a failure only without an
 * operator. */
int agent_start_probes(struct agent *a, struct error *err) _must_check_;
/* 0: all probes are attached. Else the error of the first one that is not: -EPERM, -ENOTSUP or
 * -ENOMEM where the kernel lacks something, -EINVAL where the probe itself is wrong. */
int agent_probes_failure(const struct probes *p, struct error *err) _must_check_;
/* Before W is named: copies the probes' names into W, and retries probes that are not attached. */
void agent_name_probes(struct agent *a, struct window *w);

/* rotation.c */
/* Exchanges the windows and has a worker name the full one. */
void agent_close_window(struct agent *a);
/* Every second: limits memory use near and beyond the budget. */
void agent_limit_memory(void *agent);
void agent_on_window_timer(uv_timer_t *timer);
void agent_on_drain_timer(uv_timer_t *timer);
void agent_on_ring(uv_poll_t *poll, int status, int events);

/* shutdown.c */
/* Begins the shutdown; further calls do nothing. */
void agent_stop(struct agent *a);
/* Takes the next step of the shutdown if the last one is done. */
void agent_advance(struct agent *a);
/* The last step of the shutdown; also after a start that failed half-way. */
void agent_close(struct agent *a);
void agent_on_end_timer(uv_timer_t *timer);
void agent_on_signal(uv_signal_t *handle, int signum);

/* agent_metrics.c: for the health extension. */
bool agent_is_ready(void *arg, char *reason, size_t size);
void agent_refresh_metrics(void *arg);
