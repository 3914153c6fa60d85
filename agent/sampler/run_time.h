/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CPU time of the BPF programs, from the kernel's statistics (BPF_STATS_RUN_TIME). While these are
 * enabled the kernel reads a clock before and after each run. That is little for timer samples, but
 * much for the program at sched_switch, which may run hundreds of thousands of times a second. So
 * while off-CPU profiling is on, the statistics are enabled for RUN_TIME_ON_MS of every
 * RUN_TIME_ALL_MS only, and the rest of the time is estimated from the last measured part.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
	RUN_TIME_ON_MS = 250,	/* in sparing mode: how long the statistics are enabled ... */
	RUN_TIME_ALL_MS = 8000, /* ... in each period of this length */
};

/* Both only grow. */
struct run_count {
	uint64_t ns, runs;
};

struct run_time {
	bool on;		 /* the kernel counts */
	uint64_t at;		 /* monotonic ns: until then `total` holds */
	uint64_t turned;	 /* when it was turned on or off */
	struct run_count total;	 /* estimate */
	struct run_count kernel; /* the kernel's counters at `at` */
	struct run_count began;	 /* the kernel's counters when they were enabled last */
	struct run_count part;	 /* counted while the statistics were enabled last ... */
	uint64_t part_ns;	 /* ... and for how long that was */
};

/* Updates `total`. COUNTED: the kernel's counters, read at NOW. */
void run_time_look(struct run_time *r, uint64_t now, const struct run_count *counted);

/* Whether the statistics should be enabled at NOW. SPARING: for RUN_TIME_ON_MS of every
 * RUN_TIME_ALL_MS only; else always. */
bool run_time_wants(const struct run_time *r, uint64_t now, bool sparing);

/* The statistics were enabled or disabled at NOW, right after run_time_look(). */
void run_time_turn(struct run_time *r, uint64_t now, bool on);
