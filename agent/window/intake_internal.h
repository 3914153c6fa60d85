/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct intake: the state that intake.c (beginning and end), records.c (samples of known
 * processes), completion.c (all other samples) and forgetting.c share. Loop thread only.
 */
#pragma once

#include "agent/window/intake.h"

#include <regex.h>

#include "agent/sampler/finisher.h"
#include "agent/sampler/sideband.h"
#include "agent/window/code_reader.h"
#include "agent/window/discovery.h"
#include "agent/window/runtime_frames.h"
#include "agent/window/sleepers.h"
#include "agent/window/table_compiler.h"
#include "agent/window/waiting.h"
#include "agent/window/waits.h"
#include "agent/window/wall_clock.h"
#include "lib/clock.h"

struct intake {
	const struct config *config;
	struct sampler *sampler;
	int proc_dirfd;
	struct image_store *images;
	struct unwind_store *unwind;
	struct mapset_store *mapsets;
	struct runtimes *runtimes;
	struct runtime_frames *runtime_frames;
	struct sideband *sideband;
	struct map_notes *notes;
	struct process_table *processes;
	struct stack_table *stacks;
	struct window *window; /* where samples go now */
	struct discovery *discovery;
	struct waiting_room waiting;
	struct waits *waits;
	struct sleepers *sleepers;
	uint64_t drained_ns; /* all records that the kernel wrote before this time were taken */
	struct code_reader *code;
	struct table_compiler *tables;
	unsigned int hung_threads; /* threads that `discovery` left behind */
	enum memory_pressure pressure;
	bool warming;	/* the first drain has not begun yet */
	bool giving_up; /* samples do not wait any more */
	bool filter;
	regex_t process_filter;
	uint64_t unselected; /* samples refused by process_filter here, not in the kernel */
	struct wall_clock wall_clock;
	struct finish_result finish;
	const struct container_identity *(*container_of_cgroup)(uint64_t cgroup, void *arg);
	void *container_arg;
	struct label_sets *labels;
	const struct sample_rules *rules; /* by policy; NULL: the configuration's own */
	struct sample_rules own_rules;
	struct label_allow *own_labels;
};

/* records.c */
/* One record of the ring. */
void intake_consume(const struct kiln_sample *record, void *arg);
/* Counts a sample. MAPSET: the mapset of the USER frames (N_USER words); NULL: none is known. */
void intake_count(struct intake *in, const struct kiln_sample *record, struct process *process,
		  struct mapset *mapset, enum kiln_end end, const uint64_t *user, uint32_t n_user);

/* The kernel told the end of a wait. */
void intake_end_wait(const struct kiln_wait_end *end, void *arg);

/* True when the process filter refuses PROCESS: the sample is ignored, and the kernel is told to
 * take no more. */
bool intake_is_unselected(struct intake *in, const struct kiln_sample *record,
			  const struct process *process);

/* completion.c */
/* Handles a sample whose process or mappings are not known. PROCESS and MAPSET (by which it was
 * walked) are what is known; NULL: nothing. */
void intake_discover(struct intake *in, const struct kiln_sample *record, struct process *process,
		     struct mapset *mapset);
/* Completes the walk of a sample with a dump; or the sample waits for what the walk lacks. */
void intake_complete(struct intake *in, const struct kiln_sample *record, struct process *process,
		     struct mapset *mapset);
/* Called with the answers of discovery, and when a table was made: completes the samples that wait
 * for it. */
void intake_on_answer(const struct discovery_answer *answer, void *arg);
void intake_on_table(const struct stored_image *image, uint32_t slot, void *arg);
