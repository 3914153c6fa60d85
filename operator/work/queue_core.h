/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct work_core: the queue of queue.h without a loop: the caller passes in the time (nanoseconds
 * of any clock that does not go back) and takes the keys out. See queue_core.c.
 */
#pragma once

#include "operator/work/queue.h"

#define WORK_NEVER UINT64_MAX

struct work_core;
struct work_core_options {
	unsigned int workers;
	size_t max_keys;
	double (*random)(void); /* [0, 1); NULL: no jitter */
};

int work_core_new(const struct work_core_options *options, struct work_core **ret) _must_check_;
struct work_core *work_core_free(struct work_core *c);
DEFINE_CLEANUP(struct work_core *, work_core_free)

/* -ENAMETOOLONG, -ENOBUFS (max_keys), -ENOMEM: counted as dropped. */
int work_core_add(struct work_core *c, const char *key, bool low, uint64_t now_ns);
int work_core_add_after(struct work_core *c, const char *key, uint64_t delay_ns, uint64_t now_ns);
/* The next key to work on; NULL: none may start now. Valid until work_core_done(). */
const char *work_core_take(struct work_core *c, uint64_t now_ns);
/* -ENOENT: KEY is not at work. */
int work_core_done(struct work_core *c, const char *key, int result, uint64_t now_ns);
void work_core_pause(struct work_core *c, bool paused);
/*
 * When to call work_core_take() next: at once if not after NOW_NS; WORK_NEVER: after another call.
 */
uint64_t work_core_next_ns(const struct work_core *c, uint64_t now_ns);
void work_core_read_stats(const struct work_core *c, uint64_t now_ns, struct work_queue_stats *ret);
