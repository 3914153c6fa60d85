/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Which hits of a probe become samples, and what each stands for. One struct kiln_draw for each
 * probe and CPU; its owner lets no two hits at it at once.
 *
 * Hits are taken in blocks of n. One hit of each block, any with the same probability, becomes the
 * sample and stands for n: so the sum of the samples is the number of hits but for the block that
 * is open, and each hit is worth one on average, whichever stack it has and however regularly
 * stacks take turns. n is chosen when a block begins, by the rate of the hits so far, so that about
 * one block a period ends; which of its hits is drawn has no part in it. (A draw for each hit, with
 * 1/probability as the value, is right on average too, but its sums are not the number of hits. To
 * give the next hit after a period all hits since the last is exact, but what follows a pause would
 * be worth more than what follows a hit.)
 *
 * A probe that is hit less often than once a period has n = 1 and all of its hits taken. Time saved
 * up while there were few hits, up to DRAW_BURST_NS, pays for a burst.
 *
 * Where hits get fewer at once, n is too large: a block is closed after DRAW_LATE periods. Then the
 * sample was worth too much, or there was none; on average it is right here too, and the sum is off
 * by the hits of some periods.
 */
#pragma once

#include "types.h"

#define DRAW_BURST_NS 250000000ULL
enum {
	DRAW_LATE = 32,
	DRAW_MEMORY = 16, /* periods, about, over which the rate of hits is averaged */
};

/* Does a hit at NOW (monotonic ns) begin a block? Then draw_begin() comes before draw_hit().
 * PERIOD: ns between two samples. */
static inline __attribute__((always_inline)) int draw_is_over(const struct kiln_draw *d,
							      uint64_t now, uint64_t period)
{
	return d->at >= d->size || now - d->start >= DRAW_LATE * period;
}

/* The size of the next block; the last one had HITS hits in ELAPSED ns. */
static inline uint64_t draw_size(const struct kiln_draw *d, uint64_t hits, uint64_t elapsed,
				 uint64_t burst, uint64_t period)
{
	uint64_t size = d->hits * period / (d->time + 1), now;

	if (d->credit >= (int64_t)(burst / 2))
		return 1;
	if (d->credit < 0) {
		/* It is too fast for the average, or just became so. */
		now = hits * period / (elapsed + 1);
		size = (size > now ? size : now) * 5 / 4 + 1;
	}
	if (size > 1U << 30)
		return 1U << 30;
	return size ? size : 1;
}

/* RANDOM: 32 random bits. */
static inline void draw_begin(struct kiln_draw *d, uint64_t now, uint64_t period, uint32_t random)
{
	uint64_t burst = period > DRAW_BURST_NS ? period : DRAW_BURST_NS, hits = d->at,
		 elapsed = now - d->start, taken = d->size && d->at >= d->pick;

	if (elapsed > DRAW_LATE * period + burst)
		elapsed = DRAW_LATE * period + burst;
	d->hits += hits;
	d->time += elapsed < DRAW_MEMORY * period ? elapsed : DRAW_MEMORY * period;
	if (d->time > DRAW_MEMORY * period) {
		d->hits /= 2;
		d->time /= 2;
	}
	d->credit += (int64_t)elapsed - (taken ? (int64_t)period : 0);
	if (d->credit > (int64_t)burst)
		d->credit = (int64_t)burst;
	if (d->credit < -(int64_t)burst)
		d->credit = -(int64_t)burst;
	d->size = draw_size(d, hits, elapsed, burst, period);
	d->pick = d->size == 1 ? 1 : 1 + random % d->size;
	d->at = 0;
	d->start = now;
}

/* Counts a hit. The hits that it stands for as a sample; 0: it becomes none. */
static inline __attribute__((always_inline)) uint64_t draw_hit(struct kiln_draw *d)
{
	d->at++;
	return d->at == d->pick ? d->size : 0;
}
