// SPDX-License-Identifier: Apache-2.0
/*
 * usage: kiln-bench-interrupts SECONDS
 *
 * Reads the clock all the time, on one CPU, and prints the share of that time that was taken away
 * from it: gaps between two readings that are too long for the reading itself. On a machine without
 * other load these are interrupts.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { GAP = 1000 }; /* ns; a reading takes some tens */

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

int main(int argc, char **argv)
{
	double seconds = argc == 2 ? strtod(argv[1], NULL) : 0;
	uint64_t begin = now_ns(), end = begin + (uint64_t)(seconds * 1e9), last = begin, lost = 0;

	if (seconds <= 0) {
		fprintf(stderr, "usage: kiln-bench-interrupts SECONDS\n");
		return 1;
	}
	while (last < end) {
		uint64_t now = now_ns();

		if (now - last >= GAP)
			lost += now - last;
		last = now;
	}
	printf("%.6f\n", (double)lost / (double)(last - begin));
	return 0;
}
