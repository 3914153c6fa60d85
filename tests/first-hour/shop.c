/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A user's program: knead() takes two thirds of its CPU, bake() the rest. It knows what each took:
 * at the end it prints {"knead": seconds, "bake": seconds}. usage: shop SECONDS
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static volatile unsigned long sink;

static double seconds(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Long turns: samples a twentieth of a second apart then count each as it was. */
__attribute__((noinline)) static void knead(double until)
{
	while (seconds(CLOCK_THREAD_CPUTIME_ID) < until)
		for (int i = 0; i < 1000000; i++)
			sink += (unsigned long)i;
	sink++; /* no tail call: the frame stays */
}

__attribute__((noinline)) static void bake(double until)
{
	while (seconds(CLOCK_THREAD_CPUTIME_ID) < until)
		for (int i = 0; i < 1000000; i++)
			sink ^= (unsigned long)i;
	sink++;
}

int main(int argc, char **argv)
{
	double end = seconds(CLOCK_MONOTONIC) + (argc > 1 ? atof(argv[1]) : 10), kneading = 0,
	       baking = 0;

	while (seconds(CLOCK_MONOTONIC) < end) {
		double begun = seconds(CLOCK_THREAD_CPUTIME_ID), between;

		knead(begun + 1.0);
		between = seconds(CLOCK_THREAD_CPUTIME_ID);
		bake(between + 0.5);
		kneading += between - begun;
		baking += seconds(CLOCK_THREAD_CPUTIME_ID) - between;
	}
	printf("{\"knead\": %.3f, \"bake\": %.3f}\n", kneading, baking);
	return 0;
}
