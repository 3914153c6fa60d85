/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct discovery_pool: the threads that touch other processes' files and memory. Such a call may
 * hang in the kernel for ever (a network or FUSE filesystem that does not answer), and no signal
 * ends it. So each job has a deadline: a job that is late keeps its thread, another thread replaces
 * that one, and the loop is told (`late`). A late job that ends after all is delivered like any
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
	DISCOVERY_THREADS_LATE_MAX = 16, /* held by late jobs and replaced; further ones are not */
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
	unsigned int threads, late_max; /* 0, here and below: the defaults above */
	size_t queue_max;
	uint64_t deadline_ms;
};

struct discovery_pool;
int discovery_pool_new(const struct discovery_options *options,
		       struct discovery_pool **ret) _must_check_;
/*
 * Begins and delivers no more jobs. Closes the handles on the loop, which has to run once more.
 * Waits for jobs that are not late. Returns the number of threads that still hang in late jobs: the
 * data that those use may not be freed. The last of those threads frees the pool itself.
 */
unsigned int discovery_pool_free(struct discovery_pool *pool);

/*
 * 0, or a reason why the job stays the caller's: -EBUSY: one with this key is queued or runs,
 * -EAGAIN: the queue is full, -EHOSTDOWN: late jobs hold all threads, -ENOMEM.
 */
int discovery_submit(struct discovery_pool *pool, struct discovery_job *job) _must_check_;
/*
 * To be called by a job's `run` before it touches a file on DEVICE (not 0). -EHOSTDOWN: a late job
 * hangs on that device, so this job should not touch the file: one hanging thread for each
 * filesystem is enough.
 */
int discovery_touch(struct discovery_job *job, uint64_t device) _must_check_;

struct discovery_stats {
	size_t queued, running, late;
};
void discovery_read_stats(struct discovery_pool *pool, struct discovery_stats *ret);
