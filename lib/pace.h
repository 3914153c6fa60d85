/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much CPU time the worker threads of the process may take together. Work that can wait calls
 * pace_point() every now and then, holding no lock that the loop's thread takes: when the workers
 * have used up what they may take, the call sleeps until there is some again.
 */
#pragma once

#include <stdatomic.h>

#include "lib/base.h"

enum {
	PACE_EVERY = 1024,   /* calls of pace_point() between two looks at the clock */
	PACE_BURST_MS = 250, /* what was not used is kept for so long */
	PACE_SLEEP_MS = 50,  /* at most, before the limit is read again */
};

extern atomic_uint_fast64_t pace_limit;
extern _Thread_local unsigned int pace_calls;

/* NS_PER_S of CPU time a second for all workers together; 0: no limit. */
void pace_set_limit(uint64_t ns_per_s);
/* The calling thread, the loop's, never waits. */
void pace_exempt_thread(void);
/* Counts what the thread used since its last call, and waits while more is used than allowed. */
void pace_wait(void);
/*
 * Before work of about NS of CPU time that cannot be divided: waits, while there is a limit, until
 * whoever sets it has saved up as much (pace_grant()). The caller is exempt from then on.
 */
void pace_reserve(uint64_t ns);
/* What is waited for; 0: nothing. */
uint64_t pace_reserved(void);
void pace_grant(void);
/* The ns that threads have slept in pace_wait(), ever. */
uint64_t pace_waited_ns(void);

static inline void pace_point(void)
{
	if (atomic_load_explicit(&pace_limit, memory_order_relaxed) &&
	    ++pace_calls % PACE_EVERY == 0)
		pace_wait();
}
