/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A token bucket of CPU time that fills with real time. A thread is charged afterwards, by its own
 * CPU clock, so that everything it did is charged, however long it was between two calls. The
 * bucket may be overdrawn; threads wait while it is.
 */
#include "lib/pace.h"

#include <pthread.h>
#include <time.h>

#include "lib/clock.h"

#define NS_PER_SECOND 1000000000ULL

atomic_uint_fast64_t pace_limit;
_Thread_local unsigned int pace_calls;
static _Thread_local uint64_t paid_ns;	   /* the thread's CPU clock when it was charged last */
static _Thread_local uint64_t paid_period; /* limit_period when paid_ns was set */
static _Thread_local bool is_exempt;

static struct {
	pthread_mutex_t mutex;
	int64_t credit_ns;
	uint64_t filled_ns; /* CLOCK_MONOTONIC */
} bucket = {.mutex = PTHREAD_MUTEX_INITIALIZER};
static atomic_uint_fast64_t waited_ns;
static atomic_uint_fast64_t
    limit_period; /* counts how often a limit was set where there was none */

void pace_set_limit(uint64_t ns_per_s)
{
	pthread_mutex_lock(&bucket.mutex);
	if (!atomic_load(&pace_limit)) {
		bucket.credit_ns = 0;
		bucket.filled_ns = clock_ns(CLOCK_MONOTONIC);
		atomic_fetch_add(&limit_period, 1);
	}
	atomic_store(&pace_limit, ns_per_s);
	pthread_mutex_unlock(&bucket.mutex);
}

void pace_exempt_thread(void)
{
	is_exempt = true;
}

/* Fills the bucket, charges USED_NS, and returns the credit that is left. */
static int64_t pay(uint64_t limit, uint64_t used_ns)
{
	uint64_t now = clock_ns(CLOCK_MONOTONIC), passed;
	int64_t most = (int64_t)(limit * PACE_BURST_MS / 1000), credit;

	pthread_mutex_lock(&bucket.mutex);
	passed = MIN(now - bucket.filled_ns, 10 * NS_PER_SECOND);
	bucket.filled_ns = now;
	bucket.credit_ns += (int64_t)((double)passed * (double)limit / NS_PER_SECOND);
	bucket.credit_ns = MIN(bucket.credit_ns, most) - (int64_t)used_ns;
	credit = bucket.credit_ns;
	pthread_mutex_unlock(&bucket.mutex);
	return credit;
}

void pace_wait(void)
{
	uint64_t limit = atomic_load(&pace_limit), period = atomic_load(&limit_period), cpu, slept;
	struct timespec sleep = {0};
	int64_t credit;

	if (!limit || is_exempt)
		return;
	cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	/* CPU time from before the limit was set is free: the thread's first call only starts the
	 * count. */
	credit = pay(limit, paid_period == period ? cpu - paid_ns : 0);
	paid_period = period;
	paid_ns = cpu;
	while (credit < 0 && limit) {
		slept = (uint64_t)MIN((double)-credit / (double)limit * NS_PER_SECOND,
				      PACE_SLEEP_MS * 1e6);
		sleep.tv_nsec = (long)MAX(slept, 1000000);
		(void)nanosleep(&sleep, NULL);
		atomic_fetch_add(&waited_ns, (uint64_t)sleep.tv_nsec);
		limit = atomic_load(&pace_limit);
		if (limit)
			credit = pay(limit, 0);
	}
}

/* One reservation at a time: other threads wait for this mutex. */
static pthread_mutex_t reserving = PTHREAD_MUTEX_INITIALIZER;
static atomic_uint_fast64_t reserved_ns;

void pace_reserve(uint64_t ns)
{
	const struct timespec sleep = {.tv_nsec = PACE_SLEEP_MS * 1000000};

	is_exempt = true;
	pthread_mutex_lock(&reserving);
	atomic_store(&reserved_ns, ns);
	while (atomic_load(&pace_limit) && atomic_load(&reserved_ns))
		(void)nanosleep(&sleep, NULL);
	atomic_store(&reserved_ns, 0);
	pthread_mutex_unlock(&reserving);
}

uint64_t pace_reserved(void)
{
	return atomic_load(&reserved_ns);
}

void pace_grant(void)
{
	atomic_store(&reserved_ns, 0);
}

uint64_t pace_waited_ns(void)
{
	return atomic_load(&waited_ns);
}
