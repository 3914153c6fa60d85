/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the BPF programs cost, from the kernel's own statistics of them. To make those it reads a
 * clock twice a run, which is nothing beside a timer's samples, and more than the program itself at
 * hundreds of thousands of switches a second. So while the switches are looked at, the statistics
 * are on for a part of the time, and the rest is taken to be like the last part.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
	RUN_TIME_ON_MS = 250,	/* of each ... */
	RUN_TIME_ALL_MS = 8000, /* ... so many, while it is sparing */
};

/* Both grow only. */
struct run_count {
	uint64_t ns, runs;
};

struct run_time {
	bool on;		 /* the kernel counts */
	uint64_t at;		 /* monotonic ns: until then `total` holds */
	uint64_t turned;	 /* when it was turned on or off */
	struct run_count total;	 /* estimate */
	struct run_count kernel; /* what the kernel had counted then */
	struct run_count began;	 /* ... and when it was turned on */
	struct run_count part;	 /* of the last part that was counted ... */
	uint64_t part_ns;	 /* ... and its length */
};

/* COUNTED: what the kernel has counted until NOW. */
void run_time_look(struct run_time *r, uint64_t now, const struct run_count *counted);

/* Should the kernel count from NOW on, when it may be SPARING? No look is needed. */
bool run_time_wants(const struct run_time *r, uint64_t now, bool sparing);

/* It does from NOW on, or does not any more. After a look at the same moment. */
void run_time_turn(struct run_time *r, uint64_t now, bool on);
