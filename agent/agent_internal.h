/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct agent: what agent.c (the start), rotation.c (windows), shutdown.c (the end) and
 * agent_metrics.c share. Loop thread only, but for what a window's worker has while it is busy.
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
#include "lib/log.h"
#include "lib/metrics.h"
#include "lib/work.h"

enum {
	/* Between two drains of the ring. A wakeup costs as much CPU time as 30 known samples: with
	 * 250 ms, at 97 Hz on two CPUs, that was a third of the loop's time. The kernel wakes the
	 * loop earlier for a new process, for a runtime's function that this CPU has not seen of
	 * late in a young process (hurry_names()) or that is short-lived (walk_hurry()), and when
	 * the ring is half full. */
	DRAIN_MS = 500,
	RING_REST_MS = 2, /* after the second wakeup within that time: on many CPUs it is a storm */
	/* While functions of runtimes come that are new: they may soon be gone from memory. With
	 * 100 ms the loop costs a fifth more in the first minute of 80 processes. */
	DRAIN_NAMES_MS = 200,
	NAMES_FOR_MS = 1000, /* after the last one */
	/* After a process ended before all its function names were read: there may be more
	 * short-lived ones, and each loses the names that it met since the last drain. */
	DRAIN_LOST_MS = 20,
	LOST_FOR_MS = 10000, /* after the last one */
	DRAIN_MORE_MS = 1,   /* when the ring is not empty; never 0: see set_drain_timer() */
};
enum phase { STARTING, RUNNING, SETTLING, NAMING_LAST, FLUSHING, CLOSING };

struct agent {
	const struct config *config;
	uv_loop_t loop;
	enum phase phase;
	struct sampler *sampler;
	struct probes *probes;
	uint64_t probes_tried_ms; /* to attach those that are not */
	struct intake *intake;
	struct naming *naming;
	struct cluster *cluster; /* NULL: no operator */
	struct window windows[2];
	unsigned int current; /* of windows; the other is being named or empty */
	bool naming_busy;
	enum memory_pressure pressure;
	uint64_t memory_budget; /* bytes; budget.h */
	struct cpu_budget *cpu_budget;
	struct work naming_work;
	/* What the worker made; NULL: it could not. */
	struct split split;
	struct batch *batches[SPLIT_PARTS_MAX], *whole;
	bool whole_wanted; /* by pprof or the page: a window that is split, in one piece too */
	int naming_result;
	uint64_t duration_ns;
	uint64_t window_start_ns; /* CLOCK_MONOTONIC */
	struct exporter **exporters;
	size_t n_exporters, flushed; /* of n_exporters + 1: the router */
	struct router *router;
	struct health *health;
	struct debug_pprof *pprof;
	struct live *live;
	bool cpus_failed; /* to follow them, when the last window ended */
	bool reported;	  /* a window went out */
	bool has_signals; /* sigint and sigterm are initialised */
	bool has_handles; /* timers and the ring's poll are */
	uint64_t settle_until_ms;
	struct error failure; /* of an exporter; the run goes on, its exit code tells */
	uv_timer_t drain_timer, window_timer, end_timer;
	uint64_t names_ms; /* of the last new frame of a runtime */
	uint64_t lost_ms;  /* of the last one whose name was gone */
	uv_poll_t ring_poll;
	uint64_t ring_ms; /* of the last wakeup by it */
	bool ring_rests;  /* until the next drain */
	uv_signal_t sigint, sigterm;
};

static inline uint64_t agent_clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

/* agent.c */
struct sampler_options agent_sampler_options(const struct config *c);

/* probes.c */
/* Those of the configuration. Without an operator it is a failure when one cannot be attached. */
int agent_start_probes(struct agent *a, struct error *err) _must_check_;
/* 0: all probes are attached. Else the error of the first one that is not: -EPERM, -ENOTSUP or
 * -ENOMEM where the kernel lacks something, -EINVAL where the probe itself is wrong. */
int agent_probes_failure(const struct probes *p, struct error *err) _must_check_;
/* W is about to be named. */
void agent_name_probes(struct agent *a, struct window *w);

/* rotation.c */
/* Exchanges the windows and has the full one named. */
void agent_close_window(struct agent *a);
/* Every second: near the memory budget caches shrink. */
void agent_limit_memory(void *agent);
void agent_on_window_timer(uv_timer_t *timer);
void agent_on_drain_timer(uv_timer_t *timer);
void agent_on_ring(uv_poll_t *poll, int status, int events);

/* shutdown.c */
/* Begins to end, once. */
void agent_stop(struct agent *a);
/* Takes the next step towards the end, if the one before is done. */
void agent_advance(struct agent *a);
/* The last step; also of a half-made one. */
void agent_close(struct agent *a);
void agent_on_end_timer(uv_timer_t *timer);
void agent_on_signal(uv_signal_t *handle, int signum);

/* agent_metrics.c: for the health extension. */
bool agent_is_ready(void *arg, char *reason, size_t size);
void agent_refresh_metrics(void *arg);
