/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Decides which hits of a probe become samples, and how many hits each sample stands for. There is
 * one struct kiln_draw for each probe and CPU; the caller makes sure that only one hit at a time
 * uses it.
 *
 * Hits are grouped into blocks of n. One hit of each block, drawn with equal probability, becomes
 * the sample and stands for n hits. So the sum of the samples is the number of hits except for the
 * block that is open, and each hit counts one on average, whichever stack it has and however
 * regularly stacks take turns. n is chosen when a block begins, from the rate of the hits so far,
 * so that about one block ends in each period; the hit that is drawn does not influence n. (A draw
 * for each hit, with 1/probability as the value, is right on average too, but its sums are not the
 * number of hits. To let the first hit after each period stand for all hits since the last sample
 * is exact, but a hit after a pause would be worth more than a hit that follows another one.)
 *
 * For a probe that is hit less often than once a period, n is 1 and all hits are taken. Time that
 * was saved up while there were few hits, up to DRAW_BURST_NS, pays for a burst.
 *
 * When the rate of hits drops suddenly, n is too large. So a block is closed after DRAW_LATE
 * periods. Its sample then stood for too many hits, or there was no sample; on average this is
 * right too, and the sum is off by the hits of some periods.
 */
#pragma once

#include "types.h"

#define DRAW_BURST_NS 250000000ULL
enum {
	DRAW_LATE = 32,
	DRAW_MEMORY = 16, /* the rate of hits is averaged over about so many periods */
};

/* Does a hit at NOW (monotonic ns) begin a new block? If so, call draw_begin() before draw_hit().
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
		/* Too many samples: hits come faster than the average, or have just become fast. */
		now = hits * period / (elapsed + 1);
		size = (size > now ? size : now) * 5 / 4 + 1;
	}
	if (size > 1U << 30)
		return 1U << 30;
	return size ? size : 1;
}

/* Closes the open block and begins the next one. RANDOM: 32 random bits. */
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

/* Counts a hit. Returns how many hits it stands for if it becomes a sample, else 0. */
static inline __attribute__((always_inline)) uint64_t draw_hit(struct kiln_draw *d)
{
	d->at++;
	return d->at == d->pick ? d->size : 0;
}
