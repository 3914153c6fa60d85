/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams of hits at many rates and rhythms: the samples' values add up to the number of hits, the
 * number of samples keeps to the rate, and each kind of hit gets its share.
 */
#include "lib/base.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "bpf/draw.h"

#define SECOND 1000000000ULL
enum { KINDS_MAX = 4 };

struct outcome {
	uint64_t hits, samples, sum;
	int64_t open, lost; /* hits that no sample stands for; negative: too many in samples */
	uint64_t hits_of[KINDS_MAX], sum_of[KINDS_MAX];
	double squares; /* sum of squared values */
};

static uint64_t state_of_random = 88172645463325252ULL;

static uint32_t random32(void)
{
	state_of_random ^= state_of_random << 13;
	state_of_random ^= state_of_random >> 7;
	state_of_random ^= state_of_random << 17;
	return (uint32_t)(state_of_random >> 32);
}

static void hit(struct kiln_draw *d, uint64_t now, uint32_t rate, unsigned int kind,
		struct outcome *o)
{
	uint64_t period = SECOND / rate, value, given;

	o->hits++;
	o->hits_of[kind]++;
	if (draw_is_over(d, now, period)) {
		/* Nothing is lost unless the block was closed before it was full. */
		given = d->size && d->at >= d->pick ? d->size : 0;
		o->lost += (int64_t)(d->at - given);
		draw_begin(d, now, period, random32());
	}
	value = draw_hit(d);
	if (value) {
		o->samples++;
		o->sum += value;
		o->sum_of[kind] += value;
		o->squares += (double)value * (double)value;
	}
	/* The sample of a block stands for all its hits, so before it none of them is counted. */
	o->open = (int64_t)(d->at >= d->pick ? d->at - d->size : d->at);
	assert_true((int64_t)o->sum + o->open + o->lost == (int64_t)o->hits);
}

/* Each kind's share must be right within five standard errors; the open block adds one. */
static void check_shares(const struct outcome *o, unsigned int kinds)
{
	for (unsigned int k = 0; k < kinds; k++) {
		double p = (double)o->hits_of[k] / (double)o->hits, want = p * (double)o->sum,
		       error = sqrt(p * (1 - p) * o->squares) + 1;

		if (fabs((double)o->sum_of[k] - want) > 5 * error)
			fail_msg("kind %u: %" PRIu64 " of %" PRIu64 ", want %.0f +- %.0f", k,
				 o->sum_of[k], o->sum, want, error);
	}
}

static void test_few_hits_are_all_taken(void **state)
{
	struct kiln_draw d = {0};
	struct outcome o = {0};
	uint64_t now = 5 * SECOND;

	(void)state;
	for (int i = 0; i < 3000; i++, now += SECOND / 90)
		hit(&d, now, 100, 0, &o);
	assert_int_equal(o.samples, 3000);
	assert_int_equal(o.sum, 3000);
}

static void test_a_burst_after_silence_is_taken_whole(void **state)
{
	struct kiln_draw d = {0};
	struct outcome o = {0};

	(void)state;
	for (int second = 1; second <= 20; second++)
		for (int i = 0; i < 12; i++)
			hit(&d, second * SECOND + i * 1000ULL, 100, 0, &o);
	assert_int_equal(o.samples, 240);
}

/* Steady rates of hits, from the rate of samples up to ten million a second. */
static void test_samples_keep_to_the_rate(void **state)
{
	static const uint32_t rates[] = {1, 10, 100, 1000};

	(void)state;
	for (size_t r = 0; r < ARRAY_SIZE(rates); r++)
		for (uint64_t factor = 2; factor * rates[r] <= 10000000; factor *= 7) {
			struct kiln_draw d = {0};
			struct outcome o = {0};
			uint64_t step = SECOND / (factor * rates[r]), now = SECOND,
				 seconds = MIN(4000 / rates[r] + 4, 3000000 * step / SECOND + 4);

			for (; now < SECOND + seconds * SECOND; now += step)
				hit(&d, now, rates[r], (unsigned int)(o.hits % 3), &o);
			check_shares(&o, 3);
			assert_int_equal(o.lost, 0);
			/* The limit allows for samples saved up before, and for the overdraft. */
			if (o.samples > seconds * rates[r] * 11 / 10 + rates[r] / 2 + 3)
				fail_msg("%" PRIu64 " samples in %" PRIu64
					 " s at %u, factor %" PRIu64,
					 o.samples, seconds, rates[r], factor);
			if (o.samples * 2 < seconds * rates[r])
				fail_msg("only %" PRIu64 " samples in %" PRIu64
					 " s at %u, factor %" PRIu64,
					 o.samples, seconds, rates[r], factor);
		}
}

/* Hits in fast groups: the first of a group must not stand for more than the others. */
static void test_the_rhythm_of_hits_does_not_matter(void **state)
{
	static const unsigned int sizes[] = {4, 20, 100, 1000, 30000};

	(void)state;
	for (size_t s = 0; s < ARRAY_SIZE(sizes); s++) {
		struct kiln_draw d = {0};
		struct outcome o = {0};

		for (uint64_t group = 1; group <= 3000; group++)
			for (unsigned int i = 0; i < sizes[s]; i++)
				hit(&d, SECOND + group * SECOND / 50 + i * 300, 100,
				    i * KINDS_MAX / sizes[s], &o);
		check_shares(&o, KINDS_MAX);
		assert_true(o.samples <= 60 * 110 + 50);
	}
}

static void test_a_rate_that_changes_keeps_the_sum(void **state)
{
	struct kiln_draw d = {0};
	struct outcome o = {0};
	uint64_t now = SECOND;

	(void)state;
	for (int phase = 0; phase < 60; phase++) {
		/* 1 M, 50 and 10,000 hits a second in turn, a second each. */
		uint64_t step = phase % 3 == 0	 ? 1000
				: phase % 3 == 1 ? SECOND / 50
						 : 100000,
			 end = now + SECOND;

		for (; now < end; now += step)
			hit(&d, now, 100, (unsigned int)(o.hits & 1), &o);
	}
	check_shares(&o, 2);
	assert_true(o.samples <= 60 * 110 + 60 * 30);
	/*
	 * Twenty times the rate falls from 1 M to 50 hits a second: each fall may cost the hits of
	 * two sampling periods, 10,000 each.
	 */
	assert_true(llabs(o.lost) < 20 * 2 * 10000);
}

static void test_after_a_fast_time_the_next_hit_is_taken_soon(void **state)
{
	struct kiln_draw d = {0};
	struct outcome o = {0};
	uint64_t now = SECOND, before;

	(void)state;
	for (int i = 0; i < 2000000; i++, now += 1000)
		hit(&d, now, 100, 0, &o);
	now += DRAW_LATE * SECOND / 100;
	before = o.samples;
	hit(&d, now, 100, 0, &o);
	assert_int_equal(o.samples, before + 1);
	assert_int_equal(o.open, 0);
}

static void test_values_of_any_size_do_not_overflow(void **state)
{
	struct kiln_draw d = {.size = 1ULL << 30, .at = 1ULL << 30, .hits = 1ULL << 32};

	(void)state;
	assert_true(draw_is_over(&d, 1, SECOND));
	draw_begin(&d, 1, SECOND, UINT32_MAX);
	assert_true(d.size >= 1 && d.size <= 1ULL << 30);
	assert_true(d.pick >= 1 && d.pick <= d.size);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_few_hits_are_all_taken),
	    cmocka_unit_test(test_a_burst_after_silence_is_taken_whole),
	    cmocka_unit_test(test_samples_keep_to_the_rate),
	    cmocka_unit_test(test_the_rhythm_of_hits_does_not_matter),
	    cmocka_unit_test(test_a_rate_that_changes_keeps_the_sum),
	    cmocka_unit_test(test_after_a_fast_time_the_next_hit_is_taken_soon),
	    cmocka_unit_test(test_values_of_any_size_do_not_overflow),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
