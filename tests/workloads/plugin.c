/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plugin for dlopen.c, built twice with another NAME and another layout: a stale mapping or table
 * of the one gives wrong names or no caller for the other.
 */
#include "wl.h"

#define PASTE2(a, b) a##b
#define PASTE(a, b)  PASTE2(a, b)

#ifdef PADDED
NOINLINE void PASTE(NAME, _unused)(void)
{
	WL_SPIN_FOREVER();
}
#endif

NOINLINE void PASTE(NAME, _leaf)(uint64_t n)
{
#ifdef PADDED
	char room[1000];

	__asm__ volatile("" ::"r"(room) : "memory", "rbx", "r12");
#endif
	WL_SPIN(n);
}

NOINLINE void PASTE(NAME, _middle)(uint64_t n)
{
#ifndef PADDED
	char room[3000];

	__asm__ volatile("" ::"r"(room) : "memory", "r13");
#endif
	PASTE(NAME, _leaf)(n);
	AFTER_CALL();
}

__attribute__((visibility("default"))) void plugin_run(uint64_t n);
NOINLINE void plugin_run(uint64_t n)
{
	PASTE(NAME, _middle)(n);
	AFTER_CALL();
}
