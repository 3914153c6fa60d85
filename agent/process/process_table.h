/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processes that were sampled: who they are, as /proc said at their first sample. A process
 * is told by pid, start time and exec id, so a reused pid or a new program is another entry. Owned
 * by the loop thread; the naming worker reads entries that its samples refer to.
 */
#pragma once

#include "agent/process/procfs.h"
#include "lib/uthash.h"

enum { PROCESS_TABLE_MAX = 65536 };

struct process_key {
	uint64_t start_time, exec_id;
	uint64_t cgroup; /* one that moves is another to its container; 0 where nobody asks */
	uint32_t tgid;
	uint32_t stand_in; /* 1: an entry for samples of a process that nothing is known of yet */
};

struct process {
	struct process_key key;
	struct process_info info;
	uint32_t last_window; /* when it was sampled last */
	bool ignored;	      /* by the process filter */
	bool kernel_thread;
	bool known;    /* /proc still told of it when it was read */
	bool unplaced; /* nobody knows whose cgroup it was in: a pod's, maybe */
	bool ended;    /* its pid was free, or another's, by the last sweep */
	/* Of the window that was closed last: its number, who this is in it, what is known of it */
	uint32_t identified_window, identity;
	uint8_t knowledge; /* enum policies_knowledge */
	bool forbidden;	   /* its policy says so */
	bool untold;	   /* the operator has told no policy for it */
	uint64_t route;	   /* of its pod's policy */
	/* The naming worker's: indices in the batch that build NAMED_BUILD makes. */
	uint32_t named_build, named_process, named_resource;
	const struct stack *last_stack; /* of it, the last that was named; NULL: none */
	uint32_t last_named;		/* that one's index */
	bool last_by_process;		/* names of that depend on the process */
	UT_hash_handle hh;
};

struct process_table;
int process_table_new(struct process_table **ret) _must_check_;
struct process_table *process_table_free(struct process_table *t);
DEFINE_CLEANUP(struct process_table *, process_table_free)

/* The entry of a sample that was taken in WINDOW; NULL: there is none. */
struct process *process_table_find(struct process_table *t, const struct process_key *key,
				   uint32_t window);
/*
 * Adds the entry of KEY, which is not there yet. INFO: what process_info_read() gave, copied; NULL
 * when it failed with INFO_ERROR: then COMM and EXECUTABLE (the path of the main image, or "")
 * stand in for it.
 */
int process_table_add(struct process_table *t, const struct process_key *key,
		      const struct process_info *info, int info_error, const char *comm,
		      const char *executable, uint32_t window, struct process **ret) _must_check_;
/*
 * After window NAMED was named and all records of that time were read. Forgets processes that were
 * not sampled since BEFORE_WINDOW; of those that have ended already what was not since NAMED. That
 * a process has ended is seen at one sweep and counts at the next, when its last records have been
 * read too. ALIVE: sorted pids that are known to be in use, so that /proc is not asked for them.
 */
void process_table_sweep(struct process_table *t, int proc_dirfd, uint32_t before_window,
			 uint32_t named, const uint32_t *alive, size_t n_alive);
size_t process_table_count(const struct process_table *t);
/* Processes that the filter did not refuse. */
size_t process_table_profiled(const struct process_table *t);
