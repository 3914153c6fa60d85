/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One of storm.c's short-lived programs: about three milliseconds of work in functions that carry
 * the program's own NAME, at other addresses in each build.
 */
#include "wl.h"

#define PASTE2(a, b) a##b
#define PASTE(a, b)  PASTE2(a, b)

#if PADDING
NOINLINE void PASTE(NAME, _unused)(void)
{
	__asm__ volatile(".fill " PADDING_TEXT ", 1, 0x90");
}
#endif

NOINLINE void PASTE(NAME, _leaf)(uint64_t n)
{
	char room[64 + PADDING];

	__asm__ volatile("" ::"r"(room) : "memory");
	WL_SPIN(n);
}

NOINLINE void PASTE(NAME, _work)(uint64_t n)
{
	PASTE(NAME, _leaf)(n);
	AFTER_CALL();
}

int main(void)
{
	PASTE(NAME, _work)(2000000);
	return 0;
}
