/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct discovery_pool: the threads that touch other processes' files and memory. Such a call may
 * hang in the kernel for ever (a network or FUSE filesystem that does not answer), and no signal
 * ends it. So each job has a deadline: a job that is late keeps its thread, another thread takes
 * the place of that one, and the loop is told. A late job that ends after all is delivered like any
 * other.
 *
 * Everything but discovery_touch() is for the loop's thread.
 */
#pragma once

#include <uv.h>

#include "lib/base.h"
#include "lib/uthash.h"

enum {
	DISCOVERY_THREADS = 3,
	DISCOVERY_THREADS_LATE_MAX = 16, /* that late jobs hold; more are not replaced */
	DISCOVERY_QUEUE_MAX = 4096,	 /* jobs that wait for a thread */
	DISCOVERY_DEADLINE_MS = 2000,
};

/* What a job is about: a process (start time, pid), a file (inode, device). {0, 0}: nothing. */
struct discovery_key {
	uint64_t a, b;
};

enum discovery_state {
	DISCOVERY_IDLE, /* not submitted, or delivered */
	DISCOVERY_QUEUED,
	DISCOVERY_RUNNING,
	DISCOVERY_LATE, /* runs, beyond its deadline */
	DISCOVERY_RAN,	/* is about to be delivered */
};

/*
 * Part of the caller's own struct. From discovery_submit() to `done` or `drop` it belongs to the
 * pool: the loop may read nothing of it but `state`.
 */
struct discovery_job {
	struct discovery_key key;
	/* A thread of the pool: uses what is in the job, and what lives as long as the process. */
	void (*run)(struct discovery_job *job);
	/* Loop, once, when the deadline has passed and the job still runs. May be NULL. */
	void (*late)(struct discovery_job *job);
	/* Loop: the job has run and is the caller's again. */
	void (*done)(struct discovery_job *job);
	/* Instead of `done` when the pool is gone or stopped: frees the job. Any thread. */
	void (*drop)(struct discovery_job *job);
	/* The pool's. */
	enum discovery_state state;
	uint64_t started_ms, device;
	struct discovery_pool *pool;
	struct discovery_job *prev, *next;
	UT_hash_handle hh;
};

struct discovery_options {
	uv_loop_t *loop;
	unsigned int threads, late_max; /* 0: as above, and so below */
	size_t queue_max;
	uint64_t deadline_ms;
};

struct discovery_pool;
int discovery_pool_new(const struct discovery_options *options,
		       struct discovery_pool **ret) _must_check_;
/*
 * No more is begun, nothing more is delivered; closes the handles on the loop, which has to run
 * once more. Waits for jobs that are not late. Returns the number of threads that still hang in
 * late jobs: what those use may not be freed. The pool itself goes with the last of them.
 */
unsigned int discovery_pool_free(struct discovery_pool *pool);

/*
 * 0, or a reason why the job stays the caller's: -EBUSY: one with this key is queued or runs,
 * -EAGAIN: the queue is full, -EHOSTDOWN: late jobs hold all threads, -ENOMEM.
 */
int discovery_submit(struct discovery_pool *pool, struct discovery_job *job) _must_check_;
/*
 * For a job's `run`: it is about to touch a file of this device (not 0). -EHOSTDOWN: a late job
 * hangs there, so this one should do without: one thread for each filesystem that hangs is enough.
 */
int discovery_touch(struct discovery_job *job, uint64_t device) _must_check_;

struct discovery_stats {
	size_t queued, running, late;
};
void discovery_read_stats(struct discovery_pool *pool, struct discovery_stats *ret);
