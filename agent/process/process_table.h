/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processes that were sampled: who they are, as /proc said at their first sample. A process is
 * identified by pid, start time and exec id, so a reused pid or a new program gets another entry.
 * Owned by the loop thread; the naming worker reads entries that its samples refer to.
 */
#pragma once

#include "agent/process/procfs.h"
#include "lib/uthash.h"

enum { PROCESS_TABLE_MAX = 65536 };

struct process_key {
	uint64_t start_time, exec_id;
	/* A process that moves to another cgroup gets another entry. 0 when records carry no
	 * cgroup. */
	uint64_t cgroup;
	uint32_t tgid;
	uint32_t stand_in; /* 1: an entry for samples of a process that nothing is known of yet */
};

struct process {
	struct process_key key;
	struct process_info info;
	uint32_t last_window; /* when it was sampled last */
	bool ignored;	      /* by the process filter */
	bool kernel_thread;
	bool known;    /* /proc still had it when it was read */
	bool unplaced; /* its cgroup is not known; it may be one of a pod */
	bool ended;    /* its pid was free, or another's, by the last sweep */
	/* The window in which it was identified last, and the result: the index of its identity
	 * there (0: none), and how much is known. */
	uint32_t identified_window, identity;
	uint8_t knowledge; /* enum policies_knowledge */
	bool forbidden;	   /* its policy disables profiling */
	bool untold;	   /* the operator has sent no policy for it */
	uint64_t route;	   /* of its pod's policy */
	/* The naming worker's: indices in the batch that build NAMED_BUILD makes. */
	uint32_t named_build, named_process, named_resource;
	const struct stack *last_stack; /* the last stack of it that was named; NULL: none */
	uint32_t last_named;		/* index of `last_stack` in the batch */
	bool last_by_process;		/* names in it depend on the process */
	UT_hash_handle hh;
};

/* Who is charged for what P takes in the tables: its cgroup, or P if cgroups are not recorded. */
static inline uint64_t process_owner(const struct process *p)
{
	return p->key.cgroup ? p->key.cgroup : 1ULL << 63 | p->key.tgid;
}

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
 * To be called after window NAMED was named and all records of that time were read. Frees the
 * entries that were not sampled since BEFORE_WINDOW; if their process has ended, those that were
 * not sampled since NAMED. The end of a process is noticed at one sweep and counts at the next,
 * when its last records have been read too. ALIVE: sorted pids that are known to be in use, so that
 * /proc is not asked for them.
 */
void process_table_sweep(struct process_table *t, int proc_dirfd, uint32_t before_window,
			 uint32_t named, const uint32_t *alive, size_t n_alive);
size_t process_table_count(const struct process_table *t);
/* Processes that the filter did not refuse. */
size_t process_table_profiled(const struct process_table *t);
