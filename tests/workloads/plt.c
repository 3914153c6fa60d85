/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls through the PLT in the innermost loop; built lazily bound, with and without
 * -fcf-protection, and bound at start, so .plt, .plt.sec and .plt.got are all met. usage: plt
 * SECONDS
 */
#include "wl.h"

unsigned long tiny_one(unsigned long n);
unsigned long tiny_two(unsigned long n);

NOINLINE void plt_loop(void)
{
	unsigned long n = 0;

	for (;;)
		n = tiny_two(tiny_one(n));
}

NOINLINE void plt_outer(void)
{
	plt_loop();
	AFTER_CALL();
}

int main(int argc, char **argv)
{
	wl_deadline(argc, argv);
	wl_describe(
	    "plt",
	    "{\"frames\":[\"?/tiny_one|tiny_two/\",\"plt_loop\",\"plt_outer\"," WL_ROOT "]},"
	    "{\"frames\":[\"plt\",\"plt_loop\",\"plt_outer\"," WL_ROOT "],\"min_share\":0.02}");
	plt_outer();
	AFTER_CALL();
	return 0;
}
