/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct governor: decides by what the agent costs how often each policy samples, how much detail
 * its samples have and how much CPU time the worker threads may take, so that the cost stays
 * within the budget. Arithmetic only: costs and clocks are passed in, cpu_budget.c applies the
 * results.
 *
 * What is given up, in this order, and comes back in the opposite one:
 *   1. rates, of the policies with the lowest priority first, down to GOVERNOR_HZ_MIN;
 *   2. detail of all samples: enum governor_detail;
 *   3. policies, the newest first; the oldest one stays.
 */
#pragma once

#include "bpf/types.h"
#include "lib/base.h"

enum {
	GOVERNOR_TICK_MS = 250,
	GOVERNOR_WINDOW_TICKS = 40, /* 10 s: over these the budget is kept */
	GOVERNOR_MEAN_TICKS = 8,    /* 2 s */
	GOVERNOR_POLICIES_MAX = KILN_MAX_POLICIES,
	GOVERNOR_HZ_MIN = 1,
};

enum governor_detail {
	GOVERNOR_DETAIL_ALL,
	GOVERNOR_DETAIL_NO_COPIES, /* no copies of stacks, which user space would complete */
	GOVERNOR_DETAIL_SHORT,	   /* and KILN_SHORT_DEPTH user frames at most */
	GOVERNOR_DETAIL_COUNT
};

struct governor_policy {
	/* Given: */
	uint64_t id;
	uint32_t index, priority; /* priority: the lowest is cut first */
	uint32_t asked_hz;	  /* 1.. */
	uint64_t born;		  /* order of arrival; larger: newer */
	/* Found: */
	uint32_t hz;	 /* 0: left out */
	int64_t since_s; /* UNIX time since when it has had less than it asks for; 0: it has all */
	/* Inside: octaves that lower priorities give up first, and how many policies are newer. */
	double below;
	uint32_t newer;
};

/* All of it so far, ns of CPU time. */
struct governor_cost {
	uint64_t sampling; /* what follows the rates at once: BPF programs, the loop's thread */
	uint64_t windows;  /* the loop's work at the end of windows: comes in bursts */
	uint64_t workers;  /* all other threads */
	uint64_t reserve;  /* for work that cannot be divided, which has not begun; 0: none waits */
};

struct governor {
	uint64_t budget; /* ns of CPU time a second; 0: there is none */
	struct governor_policy policies[GOVERNOR_POLICIES_MAX];
	size_t n;
	double level; /* how much is given up: octaves of rates, then steps */
	enum governor_detail detail;
	uint64_t workers_ns; /* a second, for all worker threads together; 0: no limit */
	bool granted;	     /* the work that waits may begin */
	bool too_dear;	     /* it never may: there is no room for it in 10 s */
	bool exhausted;	     /* nothing is left to give up, and the cost is too high */
	/* Inside: */
	bool braking, slow_workers;
	double rates_level; /* from here on every rate is the lowest */
	struct governor_cost last;
	uint64_t last_ns, raised_ns, hold_until_ns, calm_since_ns;
	uint64_t backoff_ns;
	uint64_t spent[GOVERNOR_WINDOW_TICKS];	  /* ns, all costs */
	uint64_t sampling[GOVERNOR_WINDOW_TICKS]; /* ns, of these the sampling */
	uint64_t workers[GOVERNOR_WINDOW_TICKS], windows[GOVERNOR_WINDOW_TICKS];
	uint64_t lengths[GOVERNOR_WINDOW_TICKS]; /* ns, of the ticks */
	size_t ticks, since_change;
};

/* BUDGET: ns of CPU time a second. The rates are those that are asked for until the first tick. */
void governor_init(struct governor *g, uint64_t budget);
void governor_set_budget(struct governor *g, uint64_t budget);
/* From now on these; of one that is known by its id, since_s stays. At most GOVERNOR_POLICIES_MAX.
 */
void governor_set_policies(struct governor *g, const struct governor_policy *policies, size_t n,
			   int64_t now_s);
/* Every GOVERNOR_TICK_MS. NOW_NS: monotonic; NOW_S: UNIX time. True: something found is another. */
bool governor_tick(struct governor *g, uint64_t now_ns, int64_t now_s,
		   const struct governor_cost *cost);
/* What the agent has cost over the last 10 s, ns a second. */
uint64_t governor_mean(const struct governor *g);
