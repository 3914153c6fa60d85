/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct governor: decides from the agent's CPU cost how often each policy samples, how much detail
 * samples have and how much CPU time the worker threads may take, so that the cost stays within the
 * budget. Arithmetic only: costs and clocks are passed in, cpu_budget.c applies the results.
 *
 * What is given up, in this order, and given back in the opposite one:
 *   1. rates, of the policies with the lowest priority first, down to GOVERNOR_HZ_MIN;
 *   2. detail of all samples: enum governor_detail;
 *   3. policies, the newest first; the oldest one stays.
 */
#pragma once

#include "bpf/types.h"
#include "lib/base.h"

enum {
	GOVERNOR_TICK_MS = 250,
	GOVERNOR_WINDOW_TICKS = 40, /* 10 s: the budget must hold over these */
	GOVERNOR_MEAN_TICKS = 8,    /* 2 s */
	GOVERNOR_POLICIES_MAX = KILN_MAX_POLICIES,
	GOVERNOR_HZ_MIN = 1,
};

enum governor_detail {
	GOVERNOR_DETAIL_ALL,
	GOVERNOR_DETAIL_NO_COPIES, /* no copies of stacks for user space to finish the walk */
	GOVERNOR_DETAIL_SHORT,	   /* also, at most KILN_SHORT_DEPTH user frames */
	GOVERNOR_DETAIL_COUNT
};

struct governor_policy {
	/* Input: */
	uint64_t id;
	uint32_t index, priority; /* priority: the lowest is cut first */
	uint32_t asked_hz;	  /* 1.. */
	uint64_t born;		  /* order of arrival; a larger value is newer */
	/* Result: */
	uint32_t hz; /* 0: not sampled at all */
	/* UNIX time since when hz is below asked_hz; 0: it is not. */
	int64_t since_s;
	/* Internal: octaves that policies of lower priority give up first; number of newer
	 * policies. */
	double below;
	uint32_t newer;
};

/* Totals since the start, in ns of CPU time. */
struct governor_cost {
	uint64_t sampling; /* follows the rates at once: BPF programs, the loop's thread */
	uint64_t windows;  /* the loop's work at the end of windows: comes in bursts */
	uint64_t workers;  /* all other threads */
	uint64_t reserve;  /* needed by indivisible work that waits to begin; 0: none waits */
};

struct governor {
	uint64_t budget; /* ns of CPU time per second; 0: no limit */
	struct governor_policy policies[GOVERNOR_POLICIES_MAX];
	size_t n;
	/* How much is given up: octaves of rates, then steps of detail, then policies. */
	double level;
	enum governor_detail detail;
	uint64_t workers_ns; /* CPU time per second for all worker threads together; 0: no limit */
	bool granted;	     /* the work that waits (`reserve`) may begin */
	bool too_dear; /* the work that waits never begins: the budget has no room for it in 10 s */
	bool exhausted; /* nothing is left to give up, and the cost is too high */
	/* Internal: */
	bool braking, slow_workers;
	double rates_level; /* the level from which on every rate is the lowest */
	struct governor_cost last;
	uint64_t last_ns, raised_ns, hold_until_ns, calm_since_ns;
	uint64_t backoff_ns;
	uint64_t spent[GOVERNOR_WINDOW_TICKS];	  /* ns, all costs */
	uint64_t sampling[GOVERNOR_WINDOW_TICKS]; /* ns, of these the sampling */
	uint64_t workers[GOVERNOR_WINDOW_TICKS], windows[GOVERNOR_WINDOW_TICKS];
	uint64_t lengths[GOVERNOR_WINDOW_TICKS]; /* ns, length of each tick */
	size_t ticks, since_change;
};

/* BUDGET: ns of CPU time per second. Until the first tick the rates are those asked for. */
void governor_init(struct governor *g, uint64_t budget);
void governor_set_budget(struct governor *g, uint64_t budget);
/* Replaces the policies, GOVERNOR_POLICIES_MAX at most. A policy whose id was known before keeps
 * its since_s. */
void governor_set_policies(struct governor *g, const struct governor_policy *policies, size_t n,
			   int64_t now_s);
/* Call every GOVERNOR_TICK_MS. NOW_NS: monotonic; NOW_S: UNIX time. True: a rate or the detail has
 * changed. */
bool governor_tick(struct governor *g, uint64_t now_ns, int64_t now_s,
		   const struct governor_cost *cost);
/* The agent's mean cost over the last 10 s, in ns of CPU time per second. */
uint64_t governor_mean(const struct governor *g);
