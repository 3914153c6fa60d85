/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 4096 distinct stacks and an oracle. A stack is a path of six choices of four: fLEVEL_CHOICE calls
 * fLEVEL+1_CHOICE..., the last spins. Every pass visits each path once, in an order of its own, for
 * a time that differs by path; the CPU time of each visit is measured and its sum by path is
 * printed at the end. A stack that is none of the paths, or a share that is not the measured one,
 * is the profiler's error. usage: many PASSES [UNIT]
 */
#include "wl.h"

enum { LEVELS = 6, PATHS = 4096 };

typedef void function(unsigned path);

#define DECLARE(l) function f##l##_0, f##l##_1, f##l##_2, f##l##_3;
DECLARE(0)
DECLARE(1)
DECLARE(2)
DECLARE(3)
DECLARE(4)
DECLARE(5)

#define ROW(l)                                                                                     \
	{                                                                                          \
		f##l##_0, f##l##_1, f##l##_2, f##l##_3                                             \
	}
static function *const table[LEVELS][4] = {ROW(0), ROW(1), ROW(2), ROW(3), ROW(4), ROW(5)};
static uint64_t unit = 100000;

/* Frames of different size and saved registers, so that the rules differ too. */
#define CALLER(l, n, c, bytes, saved)                                                              \
	NOINLINE void f##l##_##c(unsigned path)                                                    \
	{                                                                                          \
		char room[bytes];                                                                  \
                                                                                                   \
		__asm__ volatile("" ::"r"(room) : "memory" saved);                                 \
		table[n][path >> (2 * n) & 3](path);                                               \
		AFTER_CALL();                                                                      \
	}
#define SAVES ,
#define CALLERS(l, n)                                                                              \
	CALLER(l, n, 0, 8 + 16 * l, )                                                              \
	CALLER(l, n, 1, 40 + 16 * l, SAVES "rbx")                                                  \
	CALLER(l, n, 2, 200, SAVES "r12" SAVES "r13")                                              \
	CALLER(l, n, 3, 1000 + 8 * l, SAVES "rbx" SAVES "r14" SAVES "r15")
CALLERS(0, 1)
CALLERS(1, 2)
CALLERS(2, 3)
CALLERS(3, 4)
CALLERS(4, 5)

/* 1, 2, 4 or 8 units, by all six choices. */
static uint64_t weight(unsigned path)
{
	return 1ULL << ((path * 2654435761U >> 20) & 3);
}

#define LEAF(c)                                                                                    \
	NOINLINE void f5_##c(unsigned path)                                                        \
	{                                                                                          \
		uint64_t n = weight(path) * unit;                                                  \
                                                                                                   \
		WL_SPIN(n);                                                                        \
	}
LEAF(0)
LEAF(1)
LEAF(2)
LEAF(3)

static int64_t cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

NOINLINE void pass(unsigned seed, int64_t *spent)
{
	static unsigned order[PATHS];

	for (unsigned i = 0; i < PATHS; i++)
		order[i] = i;
	for (unsigned i = PATHS - 1; i > 0; i--) {
		unsigned other, mine = order[i];

		seed = seed * 1664525 + 1013904223;
		other = (seed >> 8) % (i + 1);
		order[i] = order[other];
		order[other] = mine;
	}
	for (unsigned i = 0; i < PATHS; i++) {
		int64_t before = cpu_ns();

		table[0][order[i] & 3](order[i]);
		spent[order[i]] += cpu_ns() - before;
	}
}

int main(int argc, char **argv)
{
	static int64_t spent[PATHS];
	int passes = wl_arg(argc, argv, 1, 1);

	unit = (uint64_t)wl_arg(argc, argv, 2, (int)unit);
	wl_describe("many",
		    "{\"frames\":[\"/f5_[0-3]/\",\"/f4_[0-3]/\",\"/f3_[0-3]/\",\"/f2_[0-3]/\",\"/"
		    "f1_[0-3]/\","
		    "\"/f0_[0-3]/\",\"pass\"," WL_ROOT "],\"min_share\":0.98},"
		    "{\"frames\":[\"?plt\",\"*lib:libc.so.6\",\"*vdso\",\"?/cpu_ns/\",\"?/f4_[0-3]/"
		    "\",\"?/f3_[0-3]/\",\"?/f2_[0-3]/\","
		    "\"?/f1_[0-3]/\",\"?/f0_[0-3]/\",\"?pass\"," WL_ROOT "],\"max_share\":0.02}");
	for (int i = 0; i < passes; i++)
		pass((unsigned)i + 1, spent);
	printf("{\"spent\":[");
	for (unsigned i = 0; i < PATHS; i++)
		printf("%s%lld", i ? "," : "", (long long)spent[i]);
	printf("]}\n");
	return 0;
}
