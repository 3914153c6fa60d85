/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Built without unwind information, with frame pointers, and with more code than is read as a whole
 * (CODE_BYTES_MAX of agent/elf/code_starts.h): 4 MiB of filling lie in front of each part. Time is
 * spent in leaves without a frame, behind a tail call, in a switch, beside a block of variable
 * size, in prologues (a leaf that is called all the time), and in a signal handler. usage: bare
 * SECONDS
 */
#include <alloca.h>
#include <sys/time.h>

#include "wl.h"

#define FAR(n)                                                                                     \
	__asm__(".text\n.globl far_" #n "\n.type far_" #n ", @object\nfar_" #n                     \
		":\n.fill 4 << 20, 1, 0xcc\n.size far_" #n ", . - far_" #n)

/* The body of the function that has no frame at all; a loop in it, so that it is more than a ret.
 */
#define BARE_LEAF(name)                                                                            \
	NOINLINE uint64_t name(uint64_t n)                                                         \
	{                                                                                          \
		uint64_t sum = 0;                                                                  \
                                                                                                   \
		for (uint64_t i = 0; i < n; i++)                                                   \
			sum += i * i ^ wl_sink;                                                    \
		return sum;                                                                        \
	}

BARE_LEAF(bare_leaf)
BARE_LEAF(bare_behind_tail)

/* Next to nothing: many samples are in the first and the last instructions. */
NOINLINE uint64_t bare_short(uint64_t n)
{
	return n + 1;
}

/* With a frame: push, mov and pop are a large part of it. */
NOINLINE uint64_t bare_framed(uint64_t n)
{
	n = bare_short(n);
	AFTER_CALL();
	return n;
}

FAR(one);

#ifdef __clang__
#define TAIL_CALL __attribute__((musttail)) return
#define MAY_TAIL_CALL
#else
#define TAIL_CALL     return
#define MAY_TAIL_CALL __attribute__((optimize("optimize-sibling-calls")))
#endif
NOINLINE MAY_TAIL_CALL uint64_t bare_tail(uint64_t n)
{
	wl_sink++;
	TAIL_CALL bare_behind_tail(n + 1);
}

NOINLINE uint64_t bare_switch(unsigned int what, uint64_t n)
{
	uint64_t sum = 0;

	switch (what) {
	case 0:
		sum = bare_leaf(n);
		break;
	case 1:
		sum = bare_tail(n + 3);
		break;
	case 2:
		for (uint64_t i = 0; i < n / 4; i++)
			sum += bare_framed(i);
		break;
	case 3:
		sum = bare_leaf(n * 2) + 1;
		break;
	case 4:
		sum = bare_tail(n / 2) ^ 5;
		break;
	default:
		abort();
	}
	AFTER_CALL();
	return sum;
}

FAR(two);

NOINLINE uint64_t bare_alloca(size_t room, unsigned int what)
{
	volatile char *block = alloca(room);
	uint64_t sum;

	block[0] = 1;
	sum = bare_switch(what, 20000);
	AFTER_CALL();
	return sum + (uint64_t)block[0];
}

NOINLINE uint64_t bare_recursive(int depth, unsigned int what)
{
	uint64_t sum;

	if (depth == 0)
		return bare_alloca(100 + what * 64, what) + 1;
	sum = bare_recursive(depth - 1, what);
	AFTER_CALL();
	return sum + (uint64_t)depth;
}

NOINLINE void bare_handler(int sig)
{
	(void)sig;
	wl_sink += bare_leaf(400000);
	AFTER_CALL();
}

FAR(three);

NOINLINE void bare_forever(void)
{
	for (unsigned int what = 0;; what = (what + 1) % 5) {
		wl_sink += bare_recursive(12, what);
		AFTER_CALL();
	}
}

int main(int argc, char **argv)
{
#define BELOW                                                                                      \
	"\"bare_switch\",\"bare_alloca\",{\"n\":13,\"of\":[\"bare_recursive\"]},\"bare_"           \
	"forever\"," WL_ROOT
	const struct itimerval often = {{0, 2000}, {0, 2000}};
	struct sigaction sa;

	wl_deadline(argc, argv);
	wl_describe("bare",
		    "{\"frames\":[\"?bare_leaf\"," BELOW "],\"min_share\":0.05},"
		    "{\"frames\":[\"bare_behind_tail\"," BELOW "],\"min_share\":0.05},"
		    "{\"frames\":[\"bare_tail\"," BELOW "]},"
		    "{\"frames\":[\"?bare_short\",\"bare_framed\"," BELOW "],\"min_share\":0.03},"
		    "{\"frames\":[\"?bare_alloca\",{\"n\":13,\"of\":[\"?bare_recursive\"]},"
		    "\"bare_forever\"," WL_ROOT "],\"max_share\":0.02},"
		    "{\"frames\":[\"?bare_leaf\",\"?bare_handler\",\"libc:__restore_rt\",\"*\","
		    "\"bare_forever\"," WL_ROOT "],\"min_share\":0.01}");
	memset(&sa, 0, sizeof(sa));
	sa.sa_handler = bare_handler;
	sa.sa_flags = SA_RESTART;
	sigaction(SIGVTALRM, &sa, NULL);
	setitimer(ITIMER_VIRTUAL, &often, NULL);
	bare_forever();
	return 0;
}
