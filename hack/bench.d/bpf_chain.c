// SPDX-License-Identifier: Apache-2.0
/*
 * What kiln-bench-bpf looks at: a chain of FRAMES user frames, each a function of its own with its
 * own frame size, in random order, then spinning at the end of it. With "thrash" the leaf writes
 * all over 64 MiB instead, so that every sample finds the CPU's caches full of something else.
 *
 *   kiln-bench-chain SECONDS FRAMES [spin|thrash [SEED]]
 *
 * Prints one line {"pid":N} once the chain stands. Built without frame pointers.
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	FUNCTIONS = 256,
	BELOW = 5, /* _start, two of libc, main, and the leaf */
	THRASH_WORDS = 8 << 20,
};

static volatile uint64_t sink;
static uint64_t seed = 1;
static int thrash;

static uint64_t next_random(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

__attribute__((noinline, noclone)) static void leaf(void)
{
	uint64_t *room = thrash ? malloc(THRASH_WORDS * sizeof(*room)) : NULL;

	printf("{\"pid\":%d}\n", (int)getpid());
	fflush(stdout);
	if (room) {
		memset(room, 1, THRASH_WORDS * sizeof(*room));
		for (;;)
			room[next_random() % THRASH_WORDS] += 1;
	}
	for (;;)
		sink++;
}

typedef void step(int left);
static step *const steps[FUNCTIONS];

static inline __attribute__((always_inline)) void go_on(int left)
{
	if (left > 0)
		steps[next_random() % FUNCTIONS](left - 1);
	else
		leaf();
}

/* Frames of 24 to about 200 bytes; nothing is inlined or turned into a jump. */
#define STEP(n)                                                                                    \
	__attribute__((noinline, noclone)) static void step_##n(int left)                          \
	{                                                                                          \
		char room[16 + (0x##n * 7) % 160];                                                 \
                                                                                                   \
		__asm__ volatile("" ::"r"(room) : "memory");                                       \
		go_on(left);                                                                       \
		__asm__ volatile("" ::"r"(room) : "memory");                                       \
	}
#define ROW(each, h)                                                                               \
	each(h##0) each(h##1) each(h##2) each(h##3) each(h##4) each(h##5) each(h##6) each(h##7)    \
	    each(h##8) each(h##9) each(h##a) each(h##b) each(h##c) each(h##d) each(h##e)           \
		each(h##f)
/* It would move these lines on at every run. */
/* clang-format off */
#define ALL(each) \
	ROW(each, 0) \
	ROW(each, 1) \
	ROW(each, 2) \
	ROW(each, 3) \
	ROW(each, 4) \
	ROW(each, 5) \
	ROW(each, 6) \
	ROW(each, 7) \
	ROW(each, 8) \
	ROW(each, 9) \
	ROW(each, a) \
	ROW(each, b) \
	ROW(each, c) \
	ROW(each, d) \
	ROW(each, e) \
	ROW(each, f)
/* clang-format on */
ALL(STEP)
#define NAME(n) step_##n,
static step *const steps[FUNCTIONS] = {ALL(NAME)};

static void times_up(int sig)
{
	(void)sig;
	_exit(0);
}

int main(int argc, char **argv)
{
	int frames = argc > 2 ? atoi(argv[2]) : 30;

	thrash = argc > 3 && strcmp(argv[3], "thrash") == 0;
	if (argc > 4)
		seed = strtoull(argv[4], NULL, 10) | 1;
	for (int i = 0; i < 16; i++)
		next_random();
	signal(SIGALRM, times_up);
	alarm(argc > 1 && atoi(argv[1]) > 0 ? (unsigned)atoi(argv[1]) : 60);
	go_on(frames - BELOW > 0 ? frames - BELOW : 0);
	__asm__ volatile("" ::: "memory");
	return 0;
}
