/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One pid, two programs in turn: each spins for half a second of CPU time, longer than it takes
 * until its samples are read, and then execs the other. Both are built from this file, not PIE, so
 * that the same addresses mean other functions after each exec. usage: exec SECONDS DIRECTORY
 */
#include <time.h>

#include "wl.h"

enum { PHASE_MS = 500 };

static inline long cpu_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

#define PASTE2(a, b) a##b
#define PASTE(a, b)  PASTE2(a, b)

#ifdef PADDED
NOINLINE void PASTE(NAME, _unused)(void)
{
	WL_SPIN_FOREVER();
}
#endif

NOINLINE void PASTE(NAME, _leaf)(void)
{
#ifdef PADDED
	char room[500];

	__asm__ volatile("" ::"r"(room) : "memory");
#endif
	WL_SPIN(20000000);
}

NOINLINE void PASTE(NAME, _middle)(void)
{
#ifndef PADDED
	char room[900];

	__asm__ volatile("" ::"r"(room) : "memory", "rbx");
#endif
	for (long end = cpu_ms() + PHASE_MS; cpu_ms() < end;) {
		PASTE(NAME, _leaf)();
		AFTER_CALL();
	}
}

#define CHAIN(n)                                                                                   \
	"{\"exe\":\"wl-exec-" n "\",\"min_share\":0.2,\"frames\":[\"" n "_leaf\",\"" n             \
	"_middle\"," WL_ROOT "]}"

int main(int argc, char **argv)
{
	char other[4096];

	if (argc < 3)
		return 2;
	if (argc == 3) {
		wl_deadline(argc, argv);
		/* Starting a program is a few hundred microseconds in ld.so, libc and the kernel.
		 */
		wl_describe("exec",
			    CHAIN("left") "," CHAIN(
				"right") ",{\"frames\":[\"*lib:libc.so.6,ld-linux-x86-64.so.2\",\"*"
					 "/main|_start|__libc.*/\"],"
					 "\"max_share\":0.05}");
	} else {
		struct sigaction sa = {.sa_handler = wl_times_up};

		sigaction(SIGALRM, &sa, NULL); /* the alarm itself lives on over exec */
	}
	PASTE(NAME, _middle)();
	snprintf(other, sizeof(other), "%s/wl-exec-" OTHER, argv[2]);
	execl(other, other, argv[1], argv[2], "again", (char *)NULL);
	return 1;
}
