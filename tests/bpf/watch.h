/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests look at: the records of one process, counted and compared with what it said. */
#pragma once

#include "tests/bpf/child.h"
#include "tests/bpf/profiled.h"

struct watch {
	uint32_t tgid;
	bool learn;		   /* give the kernel its mappings, and tables to all of them */
	const struct child *child; /* compare complete stacks with its chain; or NULL */

	uint64_t records;
	uint64_t unknown; /* without a mapset */
	uint64_t with_dump;
	uint64_t complete; /* to the root */
	uint64_t wrong;	   /* complete, and not what the process is written to do */
	uint64_t strayed;  /* ... after one that was right */
	uint64_t by_end[KILN_END_COUNT];
	struct kiln_sample first, last; /* headers */
	struct mapset *mapset;		/* what was learned */
	void (*each)(struct watch *w, const struct kiln_sample *record);
	void *arg;
};

/* Takes what is in the ring now. */
void watch_drain(struct profiled *p, struct watch *watches, size_t n);
/* Forgets what was counted. */
void watch_reset(struct watch *w);
/*
 * Drains every few milliseconds until *COUNTER of one of the watches is at least WANT. False after
 * 30 s, so that a test fails instead of hanging.
 */
bool watch_until(struct profiled *p, struct watch *watches, size_t n, const uint64_t *counter,
		 uint64_t want);
bool watch_stack_is_right(const struct kiln_sample *record, const struct child_report *said);
