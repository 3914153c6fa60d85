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
/* WHO returns the container of a cgroup (NULL: not known); it takes precedence over /proc. */
void intake_set_containers(struct intake *in,
			   const struct container_identity *(*who)(uint64_t cgroup, void *arg),
			   void *arg);
/* RULES say what samples of each policy may export (KILN_MAX_POLICIES entries, by index). They are
 * read with each sample and must outlive IN's last one. Before this call the configuration's rules
 * apply. */
void intake_set_rules(struct intake *in, const struct sample_rules *rules);
/* What the configuration allows samples to export; valid as long as IN. */
struct sample_rules intake_own_rules(const struct intake *in);
/* Closes its handles on the loop; before intake_free(), and before the loop's last run. */
void intake_stop(struct intake *in);
/* Only once no job runs (intake_busy()) and no window refers to its stacks and processes. */
struct intake *intake_free(struct intake *in);
DEFINE_CLEANUP(struct intake *, intake_free)

/*
 * From now on samples are counted in W, also those that waited for a table. To be called before the
 * former window is handed over.
 */
void intake_use_window(struct intake *in, struct window *w);
/* Reads the ring; samples are counted in W. True: the time limit was reached and there may be
 * more. */
bool intake_drain(struct intake *in, struct window *w);
/* Whether the last drain met unknown frames of runtimes, or has some left to name. */
bool intake_met_names(const struct intake *in);
/* Whether it has left names of such frames to read. */
bool intake_left_names(const struct intake *in);
/* Whether the last drain met frames of runtimes whose names could not be read. */
bool intake_lost_names(const struct intake *in);
/* Follows CPUs that went offline and came online: see sideband_refresh(). */
int intake_refresh_cpus(struct intake *in, struct error *err) _must_check_;
/* Whether samples wait for something, or jobs are under way. */
bool intake_busy(const struct intake *in);
/* Counts the samples that still wait with the frames that they have. For the end of a run. */
void intake_give_up(struct intake *in, struct window *w);
/*
 * Before anything is sampled: has the tables of running runtimes made (intake_busy() while that is
 * under way), because a sample that is taken without them cannot get its runtime frames later.
 */
void intake_warm(struct intake *in);
/* Names of runtimes' frames, for the naming; lives as long as IN. */
struct runtimes *intake_runtimes(const struct intake *in);
/* What the memory budget and the memory_limiter ask for: first, entries that can be read again are
 * freed; then new stacks are counted without frames. */
enum memory_pressure {
	PRESSURE_NONE,
	PRESSURE_SOFT, /* keep only what the last window used */
	PRESSURE_HARD, /* and count samples of new stacks without their frames */
};
void intake_set_pressure(struct intake *in, enum memory_pressure pressure);
/*
 * Between windows, while no worker reads stacks: W has been named. Removes entries that have ended,
 * and entries that were not sampled for a while.
 */
void intake_sweep(struct intake *in, const struct window *w);

struct intake_stats {
	size_t processes, stacks, stack_bytes, mapsets, images, waiting;
	uint32_t tables;
	size_t table_bytes;
	size_t waits;	     /* of threads that have not ended */
	size_t name_bytes;   /* of runtimes' frames */
	size_t label_bytes;  /* of sets of labels */
	uint64_t unselected; /* samples that the process filter refused in user space */
};
void intake_read_stats(const struct intake *in, struct intake_stats *ret);
