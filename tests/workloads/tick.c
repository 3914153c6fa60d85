/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One of many processes that work a little: a millisecond of CPU, ten calls deep through libc's
 * qsort, every PERIOD milliseconds. usage: tick SECONDS PERIOD
 */
#include "wl.h"

static int depth;

NOINLINE void tick_leaf(void)
{
	WL_SPIN(500000);
}

NOINLINE int tick_cmp(const void *a, const void *b)
{
	int two[2] = {2, 1};

	if (depth-- > 0)
		qsort(two, 2, sizeof(two[0]), tick_cmp);
	else
		tick_leaf();
	AFTER_CALL();
	return *(const int *)a - *(const int *)b;
}

int main(int argc, char **argv)
{
	useconds_t period = (useconds_t)wl_arg(argc, argv, 2, 1000) * 1000;

	wl_deadline(argc, argv);
	wl_describe("tick", "{\"frames\":[\"*\"]}");
	usleep(period / 1000 * (useconds_t)(getpid() % 1000)); /* not all at once */
	for (;;) {
		int two[2] = {2, 1};

		depth = 2;
		qsort(two, 2, sizeof(two[0]), tick_cmp);
		usleep(period);
	}
}
