/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Costs are read from the kernel's clocks: the process's CPU clock, the loop thread's, and the run
 * time of the BPF programs that the kernel measures. That measurement costs two clock reads for
 * each run, about 40 ns where a sample takes 5,000 ns: less than the error of any estimate. While
 * off-CPU profiling is on, a part of the run time is estimated instead (agent/sampler/run_time.h).
 * The workers' share is the difference between process and loop thread, so it needs no list of
 * threads.
 */
#include "agent/cpu_budget.h"

#include <time.h>

#include "lib/clock.h"
#include "lib/log.h"
#include "lib/metrics.h"
#include "lib/pace.h"

#define NS_PER_SECOND 1000000000ULL
#define MILLIONTHS    1000000ULL

enum {
	MS_PER_SECOND = 1000,
	TICKS_A_SECOND = MS_PER_SECOND / GOVERNOR_TICK_MS,
	LOG_EVERY_S = 30,
};

struct cpu_budget {
	struct cpu_budget_options options;
	struct governor governor;
	uv_timer_t timer;
	bool has_timer;
	uint32_t cpu;
	uint64_t generation; /* of the policies that the governor has */
	uint64_t windows_ns, window_begun_ns;
	uint32_t ticks;
	int64_t logged_s;
	bool was_cut, was_exhausted, was_too_dear;
	struct metric_series series[GOVERNOR_POLICIES_MAX];
};

static struct metric_family rates_family = {
    .kind = METRIC_GAUGE,
    .name = "kiln_policy_hertz",
    .help = "Rate that the CPU budget leaves a policy that asks for more; 0: it is left out.",
};

static void measure(struct cpu_budget *b, struct governor_cost *ret)
{
	uint64_t loop = clock_ns(CLOCK_THREAD_CPUTIME_ID), all = clock_ns(CLOCK_PROCESS_CPUTIME_ID);

	ret->windows = b->windows_ns;
	ret->sampling = loop - b->windows_ns + sampler_run_ns(b->options.sampler);
	ret->workers = all > loop ? all - loop : 0;
	ret->reserve = pace_reserved();
}

/* ---- policies -------------------------------------------------------------------------------- */

struct listing {
	struct governor_policy policies[GOVERNOR_POLICIES_MAX];
	size_t n;
};

static void list_policy(const struct policy_rate *rate, void *arg)
{
	struct listing *l = arg;

	if (l->n < ARRAY_SIZE(l->policies))
		l->policies[l->n++] = (struct governor_policy){.id = rate->id,
							       .index = rate->index,
							       .priority = rate->priority,
							       .asked_hz = rate->hz,
							       .born = rate->born};
}

static void list_policies(struct cpu_budget *b)
{
	struct listing l = {};

	if (b->options.policies) {
		b->generation = policies_generation(b->options.policies);
		policies_each(b->options.policies, list_policy, &l);
	} else {
		l.policies[l.n++] = (struct governor_policy){.asked_hz = b->options.hz};
	}
	governor_set_policies(&b->governor, l.policies, l.n, time(NULL));
}

static void set_own_rate(struct cpu_budget *b, uint32_t hz)
{
	int r = sampler_limit_policy(b->options.sampler, 0, hz);

	if (!r)
		r = sampler_set_rate(b->options.sampler, hz);
	if (r < 0)
		log_error("budget", "the rate of %u Hz could not be set: %s", hz, strerror(-r));
	metric_set(M_POLICY_RATE, hz);
}

static void apply_policies(struct cpu_budget *b)
{
	const struct governor *state = &b->governor;
	uint32_t n_cut = 0, n_out = 0;

	for (size_t i = 0; i < state->n; i++) {
		const struct governor_policy *p = &state->policies[i];
		struct metric_series *series = &b->series[i];

		if (b->options.policies)
			policies_limit(b->options.policies, p->index, p->hz);
		else
			set_own_rate(b, p->hz);
		n_cut += p->hz < p->asked_hz;
		n_out += !p->hz;
		atomic_store(&series->value, p->hz);
		if (p->hz < p->asked_hz)
			metric_series_label(series, "policy=\"%016llx\"",
					    (unsigned long long)p->id);
		else
			series->labels[0] = 0;
	}
	for (size_t i = state->n; i < ARRAY_SIZE(b->series); i++)
		b->series[i].labels[0] = 0;
	if (b->options.policies)
		policies_limits_end(b->options.policies);
	metric_set(M_BUDGET_POLICIES_CUT, n_cut);
	metric_set(M_BUDGET_POLICIES_LEFT_OUT, n_out);
}

/* ---- log and metrics ------------------------------------------------------------------------- */

static void log_turn(struct cpu_budget *b, int64_t now_s)
{
	const struct governor *state = &b->governor;
	double percent = 100.0 / ((double)state->budget * MILLIONTHS / MAX(b->cpu, 1U));
	uint32_t lowest = UINT32_MAX, asked = 0, n_cut = 0;

	for (size_t i = 0; i < state->n; i++) {
		const struct governor_policy *p = &state->policies[i];

		n_cut += p->hz < p->asked_hz;
		if (p->hz < p->asked_hz && p->hz < lowest) {
			lowest = p->hz;
			asked = p->asked_hz;
		}
	}
	if (state->exhausted && !b->was_exhausted)
		log_warn("budget",
			 "the least that the agent costs here is more than its CPU budget of "
			 "%.4g %%",
			 b->cpu / 10000.0);
	b->was_exhausted = state->exhausted;
	if (state->too_dear && !b->was_too_dear)
		log_warn("budget", "a runtime's walker is not loaded: that takes more CPU time "
				   "than the CPU budget has in 10 s");
	b->was_too_dear = state->too_dear;
	if (n_cut && (!b->was_cut || now_s - b->logged_s >= LOG_EVERY_S)) {
		log_warn("budget",
			 "CPU: %.2f %% of all CPUs, the budget is %.4g %%: %u of %zu policies "
			 "sample less, at the lowest %u instead of %u Hz",
			 (double)governor_mean(state) * percent, b->cpu / 10000.0, n_cut, state->n,
			 lowest, asked);
		b->logged_s = now_s;
	}
	if (!n_cut && b->was_cut)
		log_info("budget", "CPU: all policies sample as they ask again");
	b->was_cut = n_cut;
}

static void publish(struct cpu_budget *b)
{
	const struct governor *state = &b->governor;

	metric_set(M_BUDGET_CPU, (int64_t)state->budget);
	metric_set(M_BUDGET_CPU_USED, (int64_t)governor_mean(state));
	metric_set(M_BUDGET_DETAIL, (int64_t)state->detail);
	metric_set(M_BUDGET_EXHAUSTED, state->exhausted);
	metric_set(M_BUDGET_WAITED_NS, (int64_t)pace_waited_ns());
}

/* ---- the tick -------------------------------------------------------------------------------- */

static uint64_t budget_of(uint32_t cpu)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	return (uint64_t)MAX(cpus, 1) * NS_PER_SECOND / MILLIONTHS * cpu;
}

static void on_tick(uv_timer_t *timer);

/* Starts the timer for the next tick, which is once a second when there is no budget. Ticks come at
 * multiples of their interval, as drains of the ring do, so that one wakeup of the loop serves
 * both: the wakeup costs more than the tick. */
static int wait_for_tick(struct cpu_budget *b)
{
	uint64_t every = b->cpu ? GOVERNOR_TICK_MS : MS_PER_SECOND;

	return uv_timer_start(&b->timer, on_tick, every - uv_now(b->options.loop) % every, 0);
}

static void on_tick(uv_timer_t *timer)
{
	struct cpu_budget *b = timer->data;
	struct governor_cost cost;
	int64_t now_s = time(NULL);
	bool changed = false;

	(void)wait_for_tick(b);
	b->ticks += b->cpu ? 1 : TICKS_A_SECOND;
	if (b->options.policies && b->generation != policies_generation(b->options.policies)) {
		list_policies(b);
		changed = true;
	}
	if (b->cpu) {
		measure(b, &cost);
		changed |= governor_tick(&b->governor, clock_ns(CLOCK_MONOTONIC), now_s, &cost);
		pace_set_limit(b->governor.workers_ns);
		if (b->governor.granted)
			pace_grant();
	}
	if (changed) {
		metric_add(M_BUDGET_CHANGES, 1);
		sampler_set_detail(b->options.sampler, b->governor.detail);
		apply_policies(b);
	}
	log_turn(b, now_s);
	if (b->ticks % TICKS_A_SECOND)
		return;
	publish(b);
	if (b->options.each_second)
		b->options.each_second(b->options.arg);
}

void cpu_budget_set_cpu(struct cpu_budget *b, uint32_t cpu)
{
	if (cpu == b->cpu)
		return;
	b->cpu = cpu;
	b->ticks = 0;
	if (b->has_timer)
		(void)wait_for_tick(b);
	governor_set_budget(&b->governor, budget_of(cpu));
	pace_set_limit(b->governor.workers_ns);
	sampler_set_detail(b->options.sampler, b->governor.detail);
	apply_policies(b);
	publish(b);
}

uint32_t cpu_budget_cpu(const struct cpu_budget *b)
{
	return b->cpu;
}

void cpu_budget_window_begins(struct cpu_budget *b)
{
	b->window_begun_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

void cpu_budget_window_ends(struct cpu_budget *b)
{
	b->windows_ns += clock_ns(CLOCK_THREAD_CPUTIME_ID) - b->window_begun_ns;
}

const struct governor *cpu_budget_state(const struct cpu_budget *b)
{
	return &b->governor;
}

/* ---- life ------------------------------------------------------------------------------------ */

int cpu_budget_new(const struct cpu_budget_options *options, struct cpu_budget **ret)
{
	struct cpu_budget *b = calloc(1, sizeof(*b));

	if (!b)
		return -ENOMEM;
	b->options = *options;
	b->cpu = options->cpu;
	governor_init(&b->governor, budget_of(b->cpu));
	rates_family.series = b->series;
	rates_family.n = ARRAY_SIZE(b->series);
	metrics_add_family(&rates_family);
	list_policies(b);
	if (!options->policies)
		metric_set(M_POLICY_RATE, options->hz);
	publish(b);
	*ret = b;
	return 0;
}

int cpu_budget_start(struct cpu_budget *b)
{
	int r = uv_timer_init(b->options.loop, &b->timer);

	if (r < 0)
		return -EIO;
	b->has_timer = true;
	pace_exempt_thread();
	b->timer.data = b;
	return wait_for_tick(b) < 0 ? -EIO : 0;
}

void cpu_budget_stop(struct cpu_budget *b)
{
	if (!b)
		return;
	pace_set_limit(0);
	if (b->has_timer)
		uv_close((uv_handle_t *)&b->timer, NULL);
	b->has_timer = false;
}

struct cpu_budget *cpu_budget_free(struct cpu_budget *b)
{
	if (!b)
		return NULL;
	rates_family.series = NULL;
	rates_family.n = 0;
	free(b);
	return NULL;
}
