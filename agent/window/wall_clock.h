/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct wall_clock: converts the kernel's CLOCK_MONOTONIC to UNIX time. The distance between the
 * two changes when somebody sets the clock and while the machine is suspended, so it is measured
 * again at each drain. One thread.
 */
#pragma once

#include <time.h>

#include "lib/base.h"

struct wall_clock {
	uint64_t (*now_ns)(clockid_t clock); /* clock_gettime(), or a test's */
	int64_t distance_ns;		     /* UNIX time minus monotonic time */
};

void wall_clock_read(struct wall_clock *c);
static inline uint64_t wall_clock_unix_ns(const struct wall_clock *c, uint64_t monotonic_ns)
{
	return monotonic_ns + (uint64_t)c->distance_ns;
}
