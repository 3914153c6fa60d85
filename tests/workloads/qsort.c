/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DEPTH calls of rec(); every EVERY-th goes through libc's qsort() back into the program. Built as
 * PIE, not PIE, static, static PIE, stripped, with .debug_frame only and with .gnu_debugdata.
 * usage: qsort SECONDS [DEPTH [EVERY]]
 */
#include "wl.h"

static int every;

NOINLINE void spin(void)
{
	WL_SPIN_FOREVER();
}

NOINLINE void rec(int n);

static int to_go;

NOINLINE int cmp(const void *a, const void *b)
{
	if (to_go) {
		int n = to_go;

		to_go = 0;
		rec(n);
	}
	AFTER_CALL();
	return *(const int *)a - *(const int *)b;
}

NOINLINE void rec(int n)
{
	if (n <= 1) {
		spin();
	} else if ((n - 1) % every == 0) {
		int two[2] = {2, 1};

		to_go = n - 1;
		qsort(two, 2, sizeof(two[0]), cmp);
	} else {
		rec(n - 1);
	}
	AFTER_CALL();
}

int main(int argc, char **argv)
{
	int depth = wl_arg(argc, argv, 2, 110);

	every = wl_arg(argc, argv, 3, 11);
	wl_deadline(argc, argv);
	/* rec(1) spins; going up, rec(n) with (n - 1) % every == 0 called qsort. */
	printf("{\"pid\":%d,\"name\":\"qsort\",\"chains\":[{\"frames\":[\"spin\",\"rec\"",
	       (int)getpid());
	for (int n = 2; n <= depth; n++) {
		if ((n - 1) % every == 0)
			printf(",\"cmp\",\"libc:msort_with_tmp.part.0\",\"libc:qsort_r\"");
		printf(",\"rec\"");
	}
	printf("," WL_ROOT "]}]}\n");
	fflush(stdout);
	rec(depth);
	AFTER_CALL();
	return 0;
}
