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

struct process_reading {
	struct discovery_job job; /* `late`, `done`, `drop` and `key` are the caller's to set */
	/* What is asked: */
	int proc_dirfd;
	struct image_store *images;
	uint32_t tgid;
	uint32_t tid;	   /* a thread of it, which may outlive its first one; 0: none is known */
	uint64_t start_ns; /* boot time; 0: whoever has the pid */
	bool without_mappings; /* only who it is */
	/*
	 * It is gone, or executes another program: nothing of its own is read. The caller has set
	 * `maps` from what the kernel noted (agent/sampler/map_notes.h), or left it empty: then it
	 * is a fork that maps what `maps_pid` does, its parent, which began at `parent_start_ns`.
	 * Files are looked for below the root directory of `maps_pid`.
	 */
	bool gone;
	uint64_t parent_start_ns; /* boot time */
	/*
	 * Who it is, found before a file of the process is opened: from `described` on the loop's,
	 * even while the job still runs. -ESRCH: gone, or the pid is another's.
	 */
	atomic_bool described;
	int info_result;
	bool is_other; /* the pid is another's */
	struct process_info info;
	/*
	 * Its mappings, once the job has run. -ESRCH as above, -EHOSTDOWN: a file lies where
	 * another reading hangs, -ENOMEM, or what reading the maps failed with.
	 */
	int result;
	uint64_t read_ns; /* CLOCK_MONOTONIC, before they were read; else when the job began */
	uint64_t mapped_ns, described_ns; /* after mappings were read, and after INFO was */
	struct maps maps;
	uint32_t maps_pid;		 /* of whom /proc told the mappings: TGID, or TID */
	struct stored_image **images_of; /* of each mapping, or NULL; references */
};

/* READING is zeroed but for what is asked. Sets job.run. */
void process_reading_init(struct process_reading *reading);
/* Gives the references back that nobody took (set to NULL). Loop. */
void process_reading_done(struct process_reading *reading, uint64_t now_ms);
