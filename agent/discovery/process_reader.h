/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct process_reading: a job of the pool that reads what /proc tells of one process, and opens
 * the files that it maps.
 */
#pragma once

#include <stdatomic.h>

#include "agent/discovery/pool.h"
#include "agent/process/image_store.h"
#include "agent/process/procfs.h"

/* For processes younger than this, mappings are read by maps_query() if the kernel has it. */
#define PROCESS_YOUNG_NS 1000000000ULL

struct process_reading {
	struct discovery_job job; /* `late`, `done`, `drop` and `key` are the caller's to set */
	/* The request: */
	int proc_dirfd;
	struct image_store *images;
	uint32_t tgid;
	/* A thread of the process, asked when the first thread has ended; 0: none is known. */
	uint32_t tid;
	uint64_t start_ns;     /* boot time; 0: any process that has the pid */
	bool without_mappings; /* only `info` */
	/*
	 * The process is gone, or executes another program: nothing of it is read. The caller has
	 * set `maps` from the kernel's notes (agent/sampler/map_notes.h) or left it empty. Empty:
	 * the process was a fork with the mappings of its parent `maps_pid`, which began at
	 * `parent_start_ns`, and those are read. Files are looked for below the root directory of
	 * `maps_pid`.
	 */
	bool gone;
	uint64_t parent_start_ns; /* boot time */
	/*
	 * Who the process is. `info` is read before a file of the process is opened. Once
	 * `described` is set, the loop may read the next three fields, even while the job still
	 * runs. -ESRCH: the process is gone, or the pid is another's.
	 */
	atomic_bool described;
	int info_result;
	bool is_other; /* the pid is another's */
	struct process_info info;
	/*
	 * The result of reading the mappings, once the job has run. -ESRCH as above; -EHOSTDOWN: a
	 * file is on a device where another reading hangs; -ENOMEM; or why the maps cannot be read.
	 */
	int result;
	/* When the job began, before the mappings were read: CLOCK_MONOTONIC. */
	uint64_t read_ns;
	uint64_t mapped_ns, described_ns; /* after mappings were read, and after INFO was */
	struct maps maps;
	bool queried;			 /* by maps_query(), so `maps.has_context` is not known */
	uint32_t maps_pid;		 /* whose mappings they are: `tgid`, `tid`, or the parent */
	struct stored_image **images_of; /* of each mapping, or NULL; references */
};

/* READING: zero, except for the fields of the request. Sets job.run. */
void process_reading_init(struct process_reading *reading);
/* Gives back the references that the caller has not taken; taken ones are set to NULL. Loop. */
void process_reading_done(struct process_reading *reading, uint64_t now_ms);
