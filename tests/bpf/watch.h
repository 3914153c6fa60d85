/* SPDX-License-Identifier: Apache-2.0 */
/* The records of one process, counted and compared with the process's own report. */
#pragma once

#include "tests/bpf/child.h"
#include "tests/bpf/profiled.h"

struct watch {
	uint32_t tgid;
	bool learn;		   /* load its mappings and the tables of all its images */
	const struct child *child; /* compare complete stacks with this child's chain; or NULL */

	uint64_t records;
	uint64_t unknown; /* records without a mapset */
	uint64_t with_dump;
	uint64_t complete; /* stacks that were walked to the root */
	uint64_t wrong;	   /* complete stacks that differ from the child's chain */
	uint64_t strayed;  /* ... of which came after a right one */
	uint64_t by_end[KILN_END_COUNT];
	struct kiln_sample first, last; /* their headers */
	struct mapset *mapset;		/* made from its mappings */
	void (*each)(struct watch *w, const struct kiln_sample *record);
	void *arg;
};

/* Reads all records that are in the ring now. */
void watch_drain(struct profiled *p, struct watch *watches, size_t n);
/* Sets all counters to 0. */
void watch_reset(struct watch *w);
/*
 * Drains every few milliseconds until *COUNTER of one of the watches is at least WANT. False after
 * 30 s, so that a test fails instead of hanging.
 */
bool watch_until(struct profiled *p, struct watch *watches, size_t n, const uint64_t *counter,
		 uint64_t want);
bool watch_stack_is_right(const struct kiln_sample *record, const struct child_report *said);
