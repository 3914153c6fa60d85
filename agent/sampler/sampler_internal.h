/* SPDX-License-Identifier: Apache-2.0 */
/* What sampler.c (the programs and their maps), policies.c and processes.c share. */
#pragma once

#include "agent/sampler/run_time.h"
#include "agent/sampler/sampler.h"
#include "agent/sampler/slab.h"
#include "profiler.skel.h"

struct sampler {
	struct profiler *skel;
	struct ring_buffer *ring;
	struct kernel_memory memory;
	struct slab_budget slabs;
	struct kiln_cpu *cpus; /* shared with the kernel, n_cpus */
	struct timers *timers; /* NULL: not started, or stopped */
	struct walkers *walkers, *followers[SAMPLER_FOLLOWERS_MAX];
	struct off_cpu *off_cpu; /* NULL: never wanted */
	bool wants_off_cpu;	 /* from the start */
	const char *online;
	int n_cpus; /* the maps have room for them; CPUs with higher numbers are not sampled */
	uint32_t hz, target_tid;
	uint32_t own_hz, own_off_cpu; /* of policy 0, as the options ask for them */
	int stats_fd; /* while it is open the kernel counts the programs' run time */
	struct run_time run_time;
	bool can_spare; /* this agent has enabled the counting, and can disable it */
	uint64_t processes;
	uint32_t looks; /* number of calls of sampler_read_named() */
	void (*consume)(const struct kiln_sample *record, void *arg);
	void *consume_arg;
	void (*take_text)(const struct kiln_text *text, void *arg);
	void *text_arg;
	void (*take_wait_end)(const struct kiln_wait_end *end, void *arg);
	void *wait_end_arg;
	void (*take_labels)(const struct kiln_labels *labels, size_t size, void *arg);
	void *labels_arg;
	uint64_t drain_until_ns;	   /* CLOCK_MONOTONIC */
	uint64_t maps_bytes, maps_read_ns; /* 0: never */
	uint64_t walks, limited_ns;	   /* at the last sampler_limit_off_cpu(); 0: never */
};

/* The entry of the process TGID in `processes`; callbacks of struct kernel_memory, ARG: the
 * sampler. Negative: there is no entry. */
int sampler_set_process(void *arg, uint32_t tgid, const struct kiln_process *p);
int sampler_get_process(void *arg, uint32_t tgid, struct kiln_process *ret);
