/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two clocks cannot be read at the same instant, and the thread may be interrupted in between:
 * if a reading takes more than SOON_NS, the clocks are read again, and the fastest of TRIES
 * readings is used.
 */
#include "agent/window/wall_clock.h"

enum { TRIES = 4, SOON_NS = 5000 };

void wall_clock_read(struct wall_clock *c)
{
	uint64_t best = UINT64_MAX;

	for (int i = 0; i < TRIES && best > SOON_NS; i++) {
		uint64_t before = c->now_ns(CLOCK_MONOTONIC), unix_ns = c->now_ns(CLOCK_REALTIME),
			 took = c->now_ns(CLOCK_MONOTONIC) - before;

		if (took >= best)
			continue;
		best = took;
		c->distance_ns = (int64_t)(unix_ns - before - took / 2);
	}
}
