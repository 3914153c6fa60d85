// SPDX-License-Identifier: Apache-2.0
/*
 * The program that kiln-bench-bpf measures: a chain of FRAMES user frames, made of functions with
 * frames of different sizes in random order, whose leaf spins. With "thrash" the leaf writes to
 * memory instead: to every cache line of one random page after the other, in a buffer of several
 * times the size of the last-level cache. That runs at the speed of memory, so that in the 10 ms
 * between two samples at 99 Hz other data replaces the contents of the caches and the TLB more than
 * once.
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
	PAGE = 4096,
	LINE = 64,
	THRASH_MIN = 64 << 20,
	THRASH_MAX = 256 << 20,
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

static void fill_caches(volatile char *room, size_t pages)
{
	for (;;) {
		volatile char *page = room + next_random() % pages * PAGE;

		for (size_t i = 0; i < PAGE; i += LINE)
			page[i]++;
	}
}

/* Four times the size of the last-level cache in bytes, within THRASH_MIN and THRASH_MAX. */
static size_t thrash_bytes(void)
{
	long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
	size_t want = cache > 0 ? (size_t)cache * 4 : 0;

	return want < THRASH_MIN ? THRASH_MIN : want > THRASH_MAX ? THRASH_MAX : want;
}

__attribute__((noinline, noclone)) static void leaf(void)
{
	size_t bytes = thrash ? thrash_bytes() : 0;
	char *room = bytes ? malloc(bytes) : NULL;

	if (bytes && !room)
		exit(1);
	if (room)
		memset(room, 1, bytes);
	printf("{\"pid\":%d}\n", (int)getpid());
	fflush(stdout);
	if (room)
		fill_caches(room, bytes / PAGE);
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
/* clang-format moves these lines further to the right at every run. */
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
