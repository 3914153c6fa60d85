/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct discovery: obtains everything that is not known of a process. It is asked for a program (a
 * process between two execs), has the pool read it (agent/discovery/), makes the mapset, and
 * answers. A program is in one of these stages:
 *
 *   NEW         nothing was asked yet
 *   READING     a thread reads it; samples wait for the answer
 *   KNOWN       its mapset is in the kernel, or it never had one of its own (fork)
 *   UNRESOLVED  it cannot be read: the kernel sends short records; tried again with the next sample
 *               after an interval that doubles each time
 *
 * A program that is not in the table is known, and no change of it is pending. Owned by the loop
 * thread.
 */
#pragma once

#include "agent/discovery/process_reader.h"
#include "agent/runtime/runtimes.h"
#include "agent/sampler/map_notes.h"
#include "agent/sampler/mapset.h"
#include "agent/sampler/sideband.h"

enum process_stage { PROCESS_NEW, PROCESS_READING, PROCESS_KNOWN, PROCESS_UNRESOLVED };

/* In the order of the metrics' rows. */
enum unresolved_reason {
	UNRESOLVED_GONE,
	UNRESOLVED_FILES_HANG, /* past the deadline, or a reading of the same filesystem hangs */
	UNRESOLVED_UNREADABLE,
	UNRESOLVED_NO_ROOM, /* for its mappings in the kernel, or none left for its cgroup */
	UNRESOLVED_REFUSED, /* the pool has no thread, or its queue is full */
};

/* The answer for the program EXEC_ID of the process TGID. */
struct discovery_answer {
	uint64_t exec_id;
	uint32_t tgid;
	struct mapset *mapset;		 /* NULL: not asked for, or unresolved */
	const struct process_info *info; /* NULL: info_error tells why */
	int info_error;
};

struct discovery_callbacks {
	/* Called before an answer: the owner must pass on pending changes from the kernel first. */
	void (*before)(void *arg);
	void (*answer)(const struct discovery_answer *answer, void *arg);
	void *arg;
};

struct discovery_of {
	uv_loop_t *loop;
	const struct kernel_memory *memory;
	int proc_dirfd;
	struct image_store *images;
	struct mapset_store *mapsets;
	struct runtimes *runtimes;
	const struct map_notes *notes; /* mappings of programs that have ended; NULL: none */
	struct discovery_callbacks callbacks;
};

struct discovery;
int discovery_new(const struct discovery_of *of, struct discovery **ret) _must_check_;
/* Closes the handles on the loop. Returns how many threads hang: they may still use images and
 * proc_dirfd. */
unsigned int discovery_stop(struct discovery *d);
/* After discovery_stop(). */
struct discovery *discovery_free(struct discovery *d);

/* Whether MAPSET, by which RECORD was walked, was right at that time. False: use discovery_mapset()
 * or discovery_ask(). */
bool discovery_holds(struct discovery *d, const struct kiln_sample *record,
		     const struct mapset *mapset);
/* The mapset that was right for RECORD, as far as known now; NULL: none is known, or it is being
 * checked. */
struct mapset *discovery_mapset(struct discovery *d, const struct kiln_sample *record);
/*
 * Has the program of RECORD read. WITHOUT_MAPPINGS: only its description, if its mapset is known
 * already. 0: an answer will come. -EAGAIN: none will come, the program is unresolved; -ENOMEM.
 */
int discovery_ask(struct discovery *d, const struct kiln_sample *record,
		  bool without_mappings) _must_check_;
/*
 * The walk of RECORD met an address outside of all mappings of MAPSET. True: they are read again,
 * and an answer will come. The kernel announces new code, so this seldom helps: the interval
 * between these readings grows.
 */
bool discovery_ask_more(struct discovery *d, const struct kiln_sample *record,
			const struct mapset *mapset);
/* Has the mapset of M's process made again, because the process has memory that M does not show. */
void discovery_renew(struct discovery *d, const struct mapset *m);
/* Makes the mapset of a process that was not sampled yet; it is removed again if no sample
 * comes. */
void discovery_warm(struct discovery *d, uint32_t tgid);

/* Handles a new mapping (sideband.h). False: the process was not sampled yet. */
bool discovery_mapped(struct discovery *d, const struct sideband_mapping *mapping);
/*
 * Notes were lost: any process may have new mappings since SINCE_NS (CLOCK_MONOTONIC). Each process
 * is checked when it is sampled next (agent/sampler/recheck.h); its samples wait for that.
 */
void discovery_lost(struct discovery *d, uint64_t since_ns);
/* The process TGID has executed a program at TIME (CLOCK_MONOTONIC, ns). */
void discovery_executed(struct discovery *d, uint32_t tgid, uint64_t time);

/* Forgets programs for which nothing is pending. */
void discovery_sweep(struct discovery *d);
/* Whether readings are under way that are not late: their answers come soon. */
bool discovery_busy(const struct discovery *d);
