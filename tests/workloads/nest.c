/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls inside the program only: for libraries whose own functions cannot be unwound through (musl
 * as Debian builds it). Both levels alternate so that a lost or doubled frame shows. usage: nest
 * SECONDS [DEPTH]
 */
#include "wl.h"

#ifdef __aarch64__
#define CALLEE_SAVED "x19", "x20", "x21", "x22"
#else
#define CALLEE_SAVED "rbx", "r12", "r13", "r14"
#endif

NOINLINE void nest_leaf(void)
{
	WL_SPIN_FOREVER();
}

NOINLINE void nest_even(int n);
NOINLINE void nest_odd(int n)
{
	char room[40 + 8];

	__asm__ volatile("" ::"r"(room) : "memory");
	if (n == 1)
		nest_leaf();
	else
		nest_even(n - 1);
	AFTER_CALL();
}

NOINLINE void nest_even(int n)
{
	char room[200];

	__asm__ volatile("" ::"r"(room) : "memory", CALLEE_SAVED);
	nest_odd(n - 1);
	AFTER_CALL();
}

int main(int argc, char **argv)
{
	int depth = wl_arg(argc, argv, 2, 30) / 2 * 2 + 1;

	wl_deadline(argc, argv);
	wl_describe("nest",
		    "{\"frames\":[\"nest_leaf\",\"nest_odd\",{\"n\":%d,\"of\":[\"nest_even\","
		    "\"nest_odd\"]}," WL_ROOT "]}",
		    depth / 2);
	nest_odd(depth);
	AFTER_CALL();
	return 0;
}
