/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct govern: measures what the agent costs, has the governor (governor.h) decide, and puts
 * that into effect: rates in the kernel, detail, the pace of the workers. Loop thread.
 */
#pragma once

#include <uv.h>

#include "agent/governor.h"
#include "agent/policy/policy.h"
#include "agent/sampler/sampler.h"

struct govern_options {
	uv_loop_t *loop;
	struct sampler *sampler;
	struct policies *policies; /* NULL: the sampler's own policy is all there is */
	uint32_t hz;		   /* of the sampler's own policy */
	uint32_t cpu;		   /* millionths of all CPUs; 0: no limit */
	void (*each_second)(void *arg);
	void *arg;
};

struct govern;
/* Nothing is measured before govern_start(). */
int govern_new(const struct govern_options *options, struct govern **ret) _must_check_;
/* Closes the handle on the loop, which has to run once more before govern_free(). */
void govern_stop(struct govern *g);
struct govern *govern_free(struct govern *g);

/* Sampling begins. */
int govern_start(struct govern *g) _must_check_;
/* Another budget, from now on: millionths of all CPUs; 0: no limit. */
void govern_set_cpu(struct govern *g, uint32_t cpu);
uint32_t govern_cpu(const struct govern *g);
/* Around what the loop does at the end of a window: its CPU time comes in bursts. */
void govern_window_begins(struct govern *g);
void govern_window_ends(struct govern *g);

/* What was decided last. */
const struct governor *govern_state(const struct govern *g);
