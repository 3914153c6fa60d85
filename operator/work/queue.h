/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct work_queue: keys to reconcile, the semantics of client-go's workqueue (util/workqueue,
 * v0.34) on one loop: a key stands in it once, is worked on by one worker at a time, and is worked
 * on again when it was added meanwhile. Failures wait 5 ms * 2^n up to 1000 s for each key, and
 * all retries share a bucket of 10 a second with a burst of 100. Keys of low priority
 * (work_queue_add_low()) are taken only when no other key is ready.
 *
 * Work is asynchronous: the worker starts it and calls work_queue_done() when it ends.
 */
#pragma once

#include "lib/base.h" /* before uv.h: sys/param.h defines MIN and MAX too */

#include <uv.h>

enum { WORK_KEY_MAX = 320 }; /* "namespace/name" of the longest names */

struct work_queue;
struct work_queue_options {
	const char *name;     /* for metrics: the label `name` */
	unsigned int workers; /* keys at work at the same time */
	size_t max_keys;
	/* Starts work on KEY (valid until done). Called from the loop only. */
	void (*work)(void *arg, const char *key);
	void *arg;
	double (*random)(void); /* tests; NULL: no jitter is drawn */
};

/* Upper bounds are 10 ns * 10^i, as controller-runtime has them; the last count has none. */
enum { WORK_BUCKETS = 12, WORK_BUCKET_FIRST_NS = 10 };
struct work_histogram {
	uint64_t counts[WORK_BUCKETS + 1]; /* of each bucket, not cumulative */
	double sum_s;
};

/* As controller-runtime exports them: workqueue_*. Durations in seconds. */
struct work_queue_stats {
	size_t depth, at_work, waiting; /* waiting: for their delay, not part of depth */
	uint64_t adds, retries, dropped;
	double unfinished_s, longest_running_s;
	struct work_histogram queue_duration, work_duration;
};

int work_queue_new(uv_loop_t *loop, const struct work_queue_options *options,
		   struct work_queue **ret) _must_check_;
struct work_queue *work_queue_free(struct work_queue *queue);
DEFINE_CLEANUP(struct work_queue *, work_queue_free)
/*
 * -ENAMETOOLONG, -ENOBUFS (max_keys), -ENOMEM: counted as dropped. work() is not called from
 * inside.
 */
int work_queue_add(struct work_queue *queue, const char *key);
int work_queue_add_low(struct work_queue *queue, const char *key);
int work_queue_add_after(struct work_queue *queue, const char *key, uint64_t delay_ms);
/*
 * RESULT 0: success, the key's failures are reset; negative: the key is retried after its backoff.
 */
void work_queue_done(struct work_queue *queue, const char *key, int result);
/* Nothing starts while paused (we are not the leader); keys are kept. */
void work_queue_pause(struct work_queue *queue, bool paused);
void work_queue_read_stats(struct work_queue *queue, struct work_queue_stats *ret);
const char *work_queue_name(const struct work_queue *queue);
