/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the pods of this test run: one thread that is always in busy_leaf <- busy_inner <-
 * busy_outer <- main. With an argument it ends after so many seconds.
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

static __attribute__((noinline)) void busy_outer(time_t end)
{
	while (!end || time(NULL) < end)
		busy_inner();
	sink++;
}

int main(int argc, char **argv)
{
	busy_outer(argc > 1 ? time(NULL) + atoi(argv[1]) : 0);
	sink++;
	return 0;
}
