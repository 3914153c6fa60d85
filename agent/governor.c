/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The `level` says how much is given up. Its first part belongs to the policies with the lowest
 * priority: 1.0 is one octave (half the rate). The next part belongs to those of the next priority,
 * and so on. Above rates_level, each 1.0 is a step of detail, then a policy. A cost above HIGH
 * raises the level by the number of octaves by which the cost is too high; a cost below LOW lowers
 * the level a little. Between the two nothing changes. When a level that was lowered has to be
 * raised again soon, the time until the next attempt doubles, so that a load that does not fit is
 * not tried again and again.
 *
 * The costs differ in how they follow the rates. Sampling follows at once. The work at the end of a
 * window comes in bursts, so its mean over 10 s counts. Workers are limited, not predicted
 * (lib/pace.h): they get what the other costs leave, but at least a quarter.
 */
#include "agent/governor.h"

#include <math.h>

#define NS_PER_SECOND 1000000000ULL
/* In shares of the budget: */
#define HIGH	      0.8  /* cost above which more is given up */
#define AIM	      0.7  /* ... as much as brings the cost down to this */
#define LOW	      0.55 /* cost below which something is given back */
#define WORKERS_MIN   0.25 /* workers may always use this much, */
#define WORKERS_BRAKE 0.05 /* ... or this much while slow_workers is set */
#define ALARM	      2.0  /* a single tick that costs this much is acted on at once */
/* Cost of the last 10 s above which workers get WORKERS_BRAKE (SLOW_WORKERS), and above which all
 * rates become the lowest (BRAKE): */
#define SLOW_WORKERS  0.85
#define BRAKE	      1.0
#define RELEASE	      0.1  /* ... until the cost is lower by this */
#define FULL	      1.05 /* limit for the last 10 s including work that cannot be divided */
#define RESERVE_MAX   0.8

enum { RAISE_TICKS = 3 };
#define HOLD_NS	      (1 * NS_PER_SECOND)
#define HOLD_NS_MAX   (64 * NS_PER_SECOND)
/* A level raised again so soon after it was lowered: lowering it was wrong. */
#define RETRY_NS      (10 * NS_PER_SECOND)
#define CALM_NS	      (60 * NS_PER_SECOND) /* without raising the level: the backoff starts over */
#define STEP_UP_MAX   4.0
#define STEP_UP_MIN   0.1
#define STEP_DOWN_MAX 1.0
#define STEP_DOWN_MIN 0.1

void governor_init(struct governor *g, uint64_t budget)
{
	*g = (struct governor){.budget = budget, .backoff_ns = HOLD_NS};
}

/* ---- what a level means ---------------------------------------------------------------------- */

static double octaves(uint32_t hz)
{
	return hz > GOVERNOR_HZ_MIN ? log2((double)hz / GOVERNOR_HZ_MIN) : 0;
}

static double level_max(const struct governor *g)
{
	return g->rates_level + (GOVERNOR_DETAIL_COUNT - 1) + (g->n ? (double)g->n - 1 : 0);
}

static uint32_t rate_at(uint32_t asked, double given_up)
{
	double hz = (double)asked * exp2(-given_up);

	return MIN(asked, (uint32_t)MAX(lround(hz), (long)GOVERNOR_HZ_MIN));
}

/* Computes rates and detail from the level. True: something has changed. */
static bool apply_level(struct governor *g, int64_t now_s)
{
	double left = MAX(g->level - g->rates_level, 0);
	uint32_t detail = (uint32_t)MIN(ceil(left - 1e-9), GOVERNOR_DETAIL_COUNT - 1),
		 left_out = (uint32_t)MAX(ceil(left - (GOVERNOR_DETAIL_COUNT - 1) - 1e-9), 0), hz;
	bool changed = detail != g->detail;

	g->detail = (enum governor_detail)detail;
	for (size_t i = 0; i < g->n; i++) {
		struct governor_policy *p = &g->policies[i];

		hz = rate_at(p->asked_hz, MAX(g->level - p->below, 0));
		if (p->newer < left_out && p->newer + 1 < g->n)
			hz = 0;
		changed |= hz != p->hz;
		p->hz = hz;
		if (hz == p->asked_hz)
			p->since_s = 0;
		else if (!p->since_s)
			p->since_s = now_s;
	}
	return changed;
}

/* ---- the parts of the cost ------------------------------------------------------------------- */

/* The mean of VALUES over the last TICKS ticks, ns a second. */
static double mean_of(const struct governor *g, const uint64_t *values, size_t ticks)
{
	uint64_t sum = 0, time = 0;

	for (size_t i = 0; i < MIN(ticks, g->ticks); i++) {
		size_t at = (g->ticks - 1 - i) % GOVERNOR_WINDOW_TICKS;

		sum += values[at];
		time += g->lengths[at];
	}
	return time ? (double)sum * NS_PER_SECOND / (double)time : 0;
}

uint64_t governor_mean(const struct governor *g)
{
	return (uint64_t)mean_of(g, g->spent, GOVERNOR_WINDOW_TICKS);
}

static uint64_t since(uint64_t now, uint64_t before)
{
	return now > before ? now - before : 0;
}

static void record(struct governor *g, uint64_t now_ns, const struct governor_cost *cost)
{
	size_t at = g->ticks % GOVERNOR_WINDOW_TICKS;

	g->sampling[at] = since(cost->sampling, g->last.sampling);
	g->windows[at] = since(cost->windows, g->last.windows);
	g->workers[at] = since(cost->workers, g->last.workers);
	g->spent[at] = g->sampling[at] + g->windows[at] + g->workers[at];
	/* The cost of the agent's start is capped, so that it does not count against the following
	 * ticks. */
	if (g->ticks < GOVERNOR_MEAN_TICKS)
		g->spent[at] = MIN(g->spent[at], g->budget * GOVERNOR_TICK_MS / 1000);
	g->lengths[at] = MAX(since(now_ns, g->last_ns), 1ULL);
	g->last = *cost;
	g->last_ns = now_ns;
	g->ticks++;
	g->since_change++;
}

/* ---- what to give up or take back -------------------------------------------------------------
 */

static bool set_level(struct governor *g, double level, int64_t now_s)
{
	g->level = MIN(MAX(level, 0), level_max(g));
	g->since_change = 0;
	return apply_level(g, now_s);
}

static bool give_up(struct governor *g, double step, uint64_t now_ns, int64_t now_s)
{
	if (g->raised_ns && since(now_ns, g->raised_ns) < RETRY_NS)
		g->backoff_ns = MIN(g->backoff_ns * 2, HOLD_NS_MAX);
	g->raised_ns = 0;
	g->calm_since_ns = now_ns;
	g->hold_until_ns = now_ns + g->backoff_ns;
	g->exhausted = g->level >= level_max(g) - 1e-9;
	return set_level(g, g->level + step, now_s);
}

static bool give_back(struct governor *g, double step, uint64_t now_ns, int64_t now_s)
{
	g->exhausted = false;
	g->raised_ns = now_ns;
	return set_level(g, g->level - step, now_s);
}

/* Sets `braking` when the last 10 s have used up the budget; it ends as expensive ticks leave the
 * window. */
static void look_at_brake(struct governor *g)
{
	double all = (double)g->budget * GOVERNOR_WINDOW_TICKS * GOVERNOR_TICK_MS / 1000;
	uint64_t sum = 0;

	for (size_t i = 0; i < GOVERNOR_WINDOW_TICKS; i++)
		sum += g->spent[i];
	g->braking = (double)sum > all * (BRAKE - (g->braking ? RELEASE : 0));
	g->slow_workers = (double)sum > all * (SLOW_WORKERS - (g->slow_workers ? RELEASE : 0));
	/* Room for work that cannot be divided is made by spending as little as possible on the
	 * rest. */
	g->granted = g->last.reserve && (double)(sum + g->last.reserve) <= all * FULL;
	g->too_dear = (double)g->last.reserve > all * RESERVE_MAX;
	if (g->last.reserve && !g->granted && !g->too_dear)
		g->braking = g->slow_workers = true;
}

static bool decide(struct governor *g, uint64_t now_ns, int64_t now_s)
{
	double budget = (double)g->budget, windows, sampling, cost, tick;

	look_at_brake(g);
	windows = mean_of(g, g->windows, GOVERNOR_WINDOW_TICKS);
	/* Only ticks since the last change of rates: earlier ones had other rates. */
	sampling = mean_of(g, g->sampling,
			   g->raised_ns ? (size_t)GOVERNOR_MEAN_TICKS
					: MIN(MAX(g->since_change, 1), GOVERNOR_MEAN_TICKS));
	tick = mean_of(g, g->sampling, 1);
	g->workers_ns = (uint64_t)(g->slow_workers ? budget * WORKERS_BRAKE
						   : MAX(budget * WORKERS_MIN,
							 budget * AIM - windows - sampling));
	cost = windows + sampling +
	       MIN(mean_of(g, g->workers, GOVERNOR_MEAN_TICKS), budget * WORKERS_MIN);
	if (g->braking && g->level < g->rates_level)
		return give_up(g, g->rates_level - g->level, now_ns, now_s);
	if (cost > budget * HIGH && (g->since_change >= 2 || tick > budget * ALARM))
		return give_up(g, MIN(MAX(log2(cost / (budget * AIM)), STEP_UP_MIN), STEP_UP_MAX),
			       now_ns, now_s);
	if (since(now_ns, g->calm_since_ns) > CALM_NS)
		g->backoff_ns = HOLD_NS;
	if (g->braking || !g->level || cost >= budget * LOW || now_ns < g->hold_until_ns ||
	    g->since_change < RAISE_TICKS)
		return false;
	return give_back(
	    g, MIN(MAX(log2(budget * AIM / MAX(cost, 1.0)) / 2, STEP_DOWN_MIN), STEP_DOWN_MAX),
	    now_ns, now_s);
}

bool governor_tick(struct governor *g, uint64_t now_ns, int64_t now_s,
		   const struct governor_cost *cost)
{
	if (!g->last_ns) {
		g->last = *cost;
		g->last_ns = g->calm_since_ns = now_ns;
		return false;
	}
	record(g, now_ns, cost);
	return g->budget ? decide(g, now_ns, now_s) : false;
}

/* ---- what is governed ------------------------------------------------------------------------ */

/* Computes `below` and `newer` of each policy: see apply_level(). */
static void order_policies(struct governor *g)
{
	double octaves_of[GOVERNOR_POLICIES_MAX];
	bool first;

	g->rates_level = 0;
	for (size_t i = 0; i < g->n; i++) {
		struct governor_policy *p = &g->policies[i];

		/* Policies of one priority give up together; the first of them has the octaves of
		 * all. */
		octaves_of[i] = octaves(p->asked_hz);
		first = true;
		for (size_t k = 0; k < i && first; k++)
			if (g->policies[k].priority == p->priority) {
				octaves_of[k] = MAX(octaves_of[k], octaves_of[i]);
				octaves_of[i] = 0;
				first = false;
			}
	}
	for (size_t i = 0; i < g->n; i++) {
		struct governor_policy *p = &g->policies[i];

		g->rates_level += octaves_of[i];
		p->below = 0;
		p->newer = 0;
		for (size_t k = 0; k < g->n; k++) {
			const struct governor_policy *other = &g->policies[k];

			if (other->priority < p->priority)
				p->below += octaves_of[k];
			p->newer += other->born > p->born || (other->born == p->born && k > i);
		}
	}
}

void governor_set_policies(struct governor *g, const struct governor_policy *policies, size_t n,
			   int64_t now_s)
{
	static const size_t size = sizeof(struct governor_policy);
	struct governor_policy old[GOVERNOR_POLICIES_MAX];
	size_t n_old = g->n;

	memcpy(old, g->policies, n_old * size);
	g->n = MIN(n, (size_t)GOVERNOR_POLICIES_MAX);
	memcpy(g->policies, policies, g->n * size);
	for (size_t i = 0; i < g->n; i++) {
		g->policies[i].since_s = 0;
		g->policies[i].hz = g->policies[i].asked_hz;
		for (size_t k = 0; k < n_old; k++)
			if (old[k].id == policies[i].id)
				g->policies[i].since_s = old[k].since_s;
	}
	order_policies(g);
	g->level = MIN(g->level, level_max(g));
	(void)apply_level(g, now_s);
}

void governor_set_budget(struct governor *g, uint64_t budget)
{
	uint64_t before = g->budget;

	g->budget = budget;
	g->backoff_ns = HOLD_NS;
	g->hold_until_ns = 0;
	g->braking = g->slow_workers = g->exhausted = g->granted = g->too_dear = false;
	if (!budget) {
		g->level = 0;
		g->workers_ns = 0;
	} else if (before && budget > before) {
		/* A higher budget allows proportionally higher rates. */
		g->level = MAX(g->level - log2((double)budget / (double)before), 0);
	}
	(void)apply_level(g, 0);
}
