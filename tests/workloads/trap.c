/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library that exists twice under one path: in the chroot (NAME=right) and outside (NAME=wrong).
 * An agent that opens the path in its own namespace names functions that never ran.
 */
#include "wl.h"

#define PASTE2(a, b) a##b
#define PASTE(a, b)  PASTE2(a, b)

NOINLINE void PASTE(NAME, _leaf)(void)
{
	WL_SPIN_FOREVER();
}

__attribute__((visibility("default"))) void trap_run(void);
NOINLINE void trap_run(void)
{
	PASTE(NAME, _leaf)();
	AFTER_CALL();
}
