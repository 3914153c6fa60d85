/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program with a fixed period: it wakes PER_SECOND times a second, on a grid of CLOCK_MONOTONIC,
 * computes for the first half of each period and sleeps for the rest. 60 % of the computing is in
 * rhythm_first(), 40 % in rhythm_second(). At exit it prints, as JSON, for each function the CPU
 * time that it used and how long it lasted by the clock: {"first":{"used":ns,"lasted":ns},...}.
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

static void read_clocks(int64_t *cpu, int64_t *clock)
{
	*cpu = ns_of(CLOCK_THREAD_CPUTIME_ID);
	*clock = ns_of(CLOCK_MONOTONIC);
}

int main(int argc, char **argv)
{
	int64_t seconds = wl_arg(argc, argv, 1, 1), turn = 1000000000 / wl_arg(argc, argv, 2, 100);
	int64_t begin = ns_of(CLOCK_MONOTONIC), used[2] = {}, lasted[2] = {};

	wl_describe("rhythm", "{\"frames\":[\"*\"]}");
	for (int64_t i = 0; i < seconds * 1000000000 / turn; i++) {
		int64_t at = begin + i * turn, cpu[3], clock[3];
		struct timespec due = {at / 1000000000, at % 1000000000};

		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
		read_clocks(&cpu[0], &clock[0]);
		rhythm_first(at + turn * 3 / 10);
		read_clocks(&cpu[1], &clock[1]);
		rhythm_second(at + turn / 2);
		read_clocks(&cpu[2], &clock[2]);
		for (int k = 0; k < 2; k++) {
			used[k] += cpu[k + 1] - cpu[k];
			lasted[k] += clock[k + 1] - clock[k];
		}
	}
	printf("{\"first\":{\"used\":%lld,\"lasted\":%lld},"
	       "\"second\":{\"used\":%lld,\"lasted\":%lld}}\n",
	       (long long)used[0], (long long)lasted[0], (long long)used[1], (long long)lasted[1]);
	return 0;
}
