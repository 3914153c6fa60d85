/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the pods of this test run: one thread that is always in busy_leaf <- busy_inner <-
 * busy_outer <- main. With an argument it ends after so many seconds of processor time.
 */
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

static volatile uint64_t sink;

static __attribute__((noinline)) void busy_leaf(void)
{
	for (uint64_t i = 0; i < 1000000; i++)
		sink += i * i;
}

static __attribute__((noinline)) void busy_inner(void)
{
	busy_leaf();
	sink++; /* so that the call above is no jump */
}

static __attribute__((noinline)) void busy_outer(clock_t end)
{
	while (!end || clock() < end)
		busy_inner();
	sink++;
}

int main(int argc, char **argv)
{
	busy_outer(argc > 1 ? atoi(argv[1]) * CLOCKS_PER_SEC : 0);
	sink++;
	return 0;
}
