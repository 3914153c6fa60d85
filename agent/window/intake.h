/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Intake: from the ring buffer's records to the counts of the current window. Knows which process a
 * sample belongs to, has new ones read (discovery.h) and unwind tables compiled when samples need
 * them, and completes the samples that had to wait for that. Owned by the loop thread.
 */
#pragma once

#include <uv.h>

#include "agent/config/config.h"
#include "agent/runtime/runtimes.h"
#include "agent/sampler/sampler.h"
#include "agent/window/window.h"

struct intake;

/* CONFIG and SAMPLER outlive it. */
int intake_new(const struct config *config, struct sampler *sampler, uv_loop_t *loop,
	       struct intake **ret, struct error *err) _must_check_;
/* From now on WHO says which container a cgroup is (NULL: none), before /proc is believed. */
void intake_set_containers(struct intake *in,
			   const struct container_identity *(*who)(uint64_t cgroup, void *arg),
			   void *arg);
/* From now on RULES say what samples of each policy may tell (KILN_MAX_POLICIES, by index; they are
 * read with each sample, and outlive IN's last); before, the configuration does. */
void intake_set_rules(struct intake *in, const struct sample_rules *rules);
/* What the configuration lets samples tell; lives as long as IN. */
struct sample_rules intake_own_rules(const struct intake *in);
/* Closes its handles on the loop; before intake_free(), and before the loop's last run. */
void intake_stop(struct intake *in);
/* Only once no job runs (intake_busy()) and no window refers to its stacks and processes. */
struct intake *intake_free(struct intake *in);
DEFINE_CLEANUP(struct intake *, intake_free)

/*
 * From now on samples go to W, also those that waited for a table: to be called before the window
 * that had them until now is given to somebody else.
 */
void intake_use_window(struct intake *in, struct window *w);
/* Reads what is in the ring; samples go to W. True: its time is over and there may be more. */
bool intake_drain(struct intake *in, struct window *w);
/* The last drain met frames of runtimes that were not known, or has some left to name. */
bool intake_met_names(const struct intake *in);
/* Or some whose names could not be read. */
bool intake_lost_names(const struct intake *in);
/* Follows CPUs that went and came: see sideband_refresh(). */
int intake_refresh_cpus(struct intake *in, struct error *err) _must_check_;
/* Samples that wait for something, and jobs that make it: true while there are any. */
bool intake_busy(const struct intake *in);
/* Takes what still waits as it is. For the end of a run. */
void intake_give_up(struct intake *in, struct window *w);
/*
 * Before anything is sampled: has the tables of runtimes made that run already (intake_busy() while
 * that is under way), because their frames cannot be found after the fact.
 */
void intake_warm(struct intake *in);
/* Names of runtimes' frames, for the naming; lives as long as IN. */
struct runtimes *intake_runtimes(const struct intake *in);
/* What the memory budget and the memory_limiter ask for: first what can be found again goes, then
 * new stacks are counted without frames. */
enum memory_pressure {
	PRESSURE_NONE,
	PRESSURE_SOFT, /* keep only what the last window used */
	PRESSURE_HARD, /* and take no stack that is not known: its samples are dropped and counted
			*/
};
void intake_set_pressure(struct intake *in, enum memory_pressure pressure);
/*
 * Between windows, while no worker reads stacks: W was named and is done with. Forgets what has
 * ended, and what was not seen for a while.
 */
void intake_sweep(struct intake *in, const struct window *w);

struct intake_stats {
	size_t processes, stacks, stack_bytes, mapsets, images, waiting;
	uint32_t tables;
	size_t table_bytes;
	size_t waits;	     /* of threads that have not ended */
	size_t name_bytes;   /* of runtimes' frames */
	size_t label_bytes;  /* of sets of labels */
	uint64_t unselected; /* samples that the process filter refused here */
};
void intake_read_stats(const struct intake *in, struct intake_stats *ret);
