/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits the CPU time of the process's worker threads, all together. Work that can wait calls
 * pace_point() every now and then, holding no lock that the loop's thread takes: when the workers
 * have used up their share, the call sleeps until there is some again.
 */
#pragma once

#include <stdatomic.h>

#include "lib/base.h"

enum {
	PACE_EVERY = 1024,   /* calls of pace_point() between two reads of the clock */
	PACE_BURST_MS = 250, /* how much unused time can be saved up */
	PACE_SLEEP_MS = 50,  /* longest sleep before the limit is read again */
};

extern atomic_uint_fast64_t pace_limit;
extern _Thread_local unsigned int pace_calls;

/* NS_PER_S: CPU time in ns that all workers together may use in a second; 0: no limit. */
void pace_set_limit(uint64_t ns_per_s);
/* Exempts the calling thread (the loop's thread) from the limit: it never waits. */
void pace_exempt_thread(void);
/* Charges the CPU time that the thread used since its last call, and sleeps while the workers have
 * used more than allowed. */
void pace_wait(void);
/*
 * To be called before work of about NS of CPU time that cannot be divided. While there is a limit,
 * it waits until pace_grant() is called, by whoever sets the limit and has saved up that much.
 * After this call the calling thread is exempt.
 */
void pace_reserve(uint64_t ns);
/* The ns that a thread in pace_reserve() waits for; 0: none waits. */
uint64_t pace_reserved(void);
void pace_grant(void);
/* Total ns that threads have slept in pace_wait(). */
uint64_t pace_waited_ns(void);

static inline void pace_point(void)
{
	if (atomic_load_explicit(&pace_limit, memory_order_relaxed) &&
	    ++pace_calls % PACE_EVERY == 0)
		pace_wait();
}
