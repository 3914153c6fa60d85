/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every C workload shares. A workload prints one line of JSON that says which call chains it
 * is written to have, then spins in them until its time is over (SIGALRM ends it from wherever it
 * is, so a chain is built once and never torn down). The language of the chains is described in
 * tests/integration/lib/kiln/chains.py.
 *
 * usage of every workload: NAME SECONDS [arguments of its own]
 */
#pragma once

#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* One frame each in every sample: no inlining, cloning, folding or guessing what is unused. */
#define NOINLINE __attribute__((noinline, noclone, noipa))

#ifdef WL_MUSL
/* Debian builds musl without unwind information: what lies above main is not reachable by CFI. */
#define WL_ROOT                                                                                    \
	"\"main\",\"?/libc_start_main_stage2|(libc|ld-musl-.*)[.]so.*[+]0x[0-9a-f]+/\",\"*/"       \
	"__libc_start_main|_start_c|_start/\""
#else
#define WL_ROOT                                                                                    \
	"\"main\",\"libc:__libc_start_call_main\",\"libc:__libc_start_main_impl=__libc_start_"     \
	"main\",\"_start\""
#endif
#define WL_THREAD_ROOT "\"libc:start_thread\",\"libc:clone3|__clone\""

/* Makes a call no tail call, and keeps its order. */
#define AFTER_CALL() __asm__ volatile("" ::: "memory")

static volatile uint64_t wl_sink;

static inline void wl_times_up(int sig)
{
	(void)sig;
	_exit(0);
}

/* The time, over after SECONDS (argv[1], 1 when there is none). */
static inline void wl_deadline(int argc, char **argv)
{
	struct sigaction sa;
	int seconds = argc > 1 ? atoi(argv[1]) : 1;

	memset(&sa, 0, sizeof(sa));
	sa.sa_handler = wl_times_up;
	sigaction(SIGALRM, &sa, NULL);
	alarm(seconds > 0 ? (unsigned)seconds : 1);
}

/* CHAINS_FORMAT gives the elements of the JSON array "chains". */
__attribute__((format(printf, 2, 3))) static inline void wl_describe(const char *name,
								     const char *chains_format, ...)
{
	va_list args;

	printf("{\"pid\":%d,\"name\":\"%s\",\"chains\":[", (int)getpid(), name);
	va_start(args, chains_format);
	vprintf(chains_format, args);
	va_end(args);
	printf("]}\n");
	fflush(stdout);
}

static inline int wl_arg(int argc, char **argv, int i, int otherwise)
{
	return argc > i ? atoi(argv[i]) : otherwise;
}

/* A piece of work: about N nanoseconds on a machine of today. Not a function, so not a frame. */
#define WL_SPIN(n)                                                                                 \
	do {                                                                                       \
		for (uint64_t wl_i = 0; wl_i < (uint64_t)(n); wl_i++)                              \
			wl_sink += wl_i;                                                           \
	} while (0)
#define WL_SPIN_FOREVER()                                                                          \
	do {                                                                                       \
		for (;;)                                                                           \
			wl_sink++;                                                                 \
	} while (0)
