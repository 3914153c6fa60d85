/* SPDX-License-Identifier: Apache-2.0 */
/* The program for the chroot: see trap.c. usage: trapped SECONDS */
#include "wl.h"

void trap_run(void);

NOINLINE void call_trap(void)
{
	trap_run();
	AFTER_CALL();
}

int main(int argc, char **argv)
{
	wl_deadline(argc, argv);
	wl_describe("chroot",
		    "{\"frames\":[\"right_leaf\",\"trap_run\",\"call_trap\"," WL_ROOT "]}");
	call_trap();
	AFTER_CALL();
	return 0;
}
