/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct cpu_budget: measures what the agent costs, has the governor (governor.h) decide, and puts
 * that into effect: rates in the kernel, detail, the pace of the workers. Loop thread.
 */
#pragma once

#include <uv.h>

#include "agent/governor.h"
#include "agent/policy/policy.h"
#include "agent/sampler/sampler.h"

struct cpu_budget_options {
	uv_loop_t *loop;
	struct sampler *sampler;
	struct policies *policies; /* NULL: there is only the sampler's own policy */
	uint32_t hz;		   /* of the sampler's own policy */
	uint32_t cpu;		   /* millionths of all CPUs; 0: no limit */
	void (*each_second)(void *arg);
	void *arg;
};

struct cpu_budget;
/* Nothing is measured before cpu_budget_start(). */
int cpu_budget_new(const struct cpu_budget_options *options, struct cpu_budget **ret) _must_check_;
/* Closes the handle on the loop, which has to run once more before cpu_budget_free(). */
void cpu_budget_stop(struct cpu_budget *b);
struct cpu_budget *cpu_budget_free(struct cpu_budget *b);

/* Begins to measure and to limit, when sampling begins. -EIO: no timer. */
int cpu_budget_start(struct cpu_budget *b) _must_check_;
/* Changes the budget to CPU, in millionths of all CPUs; 0: no limit. */
void cpu_budget_set_cpu(struct cpu_budget *b, uint32_t cpu);
uint32_t cpu_budget_cpu(const struct cpu_budget *b);
/* Call these before and after the loop's work at the end of a window: its CPU time comes in bursts
 * and is accounted separately. */
void cpu_budget_window_begins(struct cpu_budget *b);
void cpu_budget_window_ends(struct cpu_budget *b);

/* The governor's last decision. */
const struct governor *cpu_budget_state(const struct cpu_budget *b);
