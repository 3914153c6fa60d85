/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program with a fixed period: it wakes PER_SECOND times a second, on a grid of CLOCK_MONOTONIC,
 * computes for the first half of each period and sleeps for the rest. 60 % of the computing is in
 * rhythm_first(), 40 % in rhythm_second(). At exit it prints the CPU time of each function as JSON.
 * usage: rhythm SECONDS PER_SECOND
 */
#include "wl.h"

static int64_t ns_of(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

NOINLINE void rhythm_first(int64_t until)
{
	while (ns_of(CLOCK_MONOTONIC) < until)
		WL_SPIN(1000);
}

NOINLINE void rhythm_second(int64_t until)
{
	while (ns_of(CLOCK_MONOTONIC) < until)
		WL_SPIN(1000);
}

int main(int argc, char **argv)
{
	int64_t seconds = wl_arg(argc, argv, 1, 1), turn = 1000000000 / wl_arg(argc, argv, 2, 100);
	int64_t begin = ns_of(CLOCK_MONOTONIC), first = 0, second = 0;

	wl_describe("rhythm", "{\"frames\":[\"*\"]}");
	for (int64_t i = 0; i < seconds * 1000000000 / turn; i++) {
		int64_t at = begin + i * turn, used[3];
		struct timespec due = {at / 1000000000, at % 1000000000};

		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
		used[0] = ns_of(CLOCK_THREAD_CPUTIME_ID);
		rhythm_first(at + turn * 3 / 10);
		used[1] = ns_of(CLOCK_THREAD_CPUTIME_ID);
		rhythm_second(at + turn / 2);
		used[2] = ns_of(CLOCK_THREAD_CPUTIME_ID);
		first += used[1] - used[0];
		second += used[2] - used[1];
	}
	printf("{\"first\":%lld,\"second\":%lld}\n", (long long)first, (long long)second);
	return 0;
}
