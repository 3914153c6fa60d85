/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A signal handler that spins, above a function that the timer interrupted anywhere (its first
 * instruction too: a signal frame's pc is no return address).
 * usage: signal SECONDS stay|return [altstack]
 */
#include <sys/time.h>

#include "wl.h"

static bool stay;

/* 1 to 3 of the timer's 10 ms. */
NOINLINE void handler_spin(void)
{
	do
		WL_SPIN(5000000);
	while (stay);
}

NOINLINE void handler(int sig)
{
	(void)sig;
	handler_spin();
	AFTER_CALL();
}

/* Tiny, so that the signal often finds its first instruction. */
NOINLINE void tick(void)
{
	__asm__ volatile("nop\n\tnop");
}

NOINLINE void victim(void)
{
	for (;;)
		tick();
}

NOINLINE void outer(void)
{
	victim();
	AFTER_CALL();
}

int main(int argc, char **argv)
{
	static char other_stack[256 * 1024];
	struct sigaction sa = {.sa_handler = handler, .sa_flags = SA_RESTART};
	struct itimerval every = {{0, 10000}, {0, 10000}};

	stay = argc <= 2 || strcmp(argv[2], "stay") == 0;
	if (argc > 3) {
		stack_t stack = {.ss_sp = other_stack, .ss_size = sizeof(other_stack)};

		sigaltstack(&stack, NULL);
		sa.sa_flags |= SA_ONSTACK;
	}
	sigaction(SIGVTALRM, &sa, NULL);
	wl_deadline(argc, argv);
	wl_describe(
	    "signal",
	    "{\"frames\":[\"handler_spin\",\"handler\",\"libc:__restore_rt\",\"?tick\",\"victim\","
	    "\"outer\"," WL_ROOT "],\"min_share\":0.05},"
	    "{\"frames\":[\"?/handler|tick/\",\"victim\",\"outer\"," WL_ROOT "]},"
	    /* the return from the handler: one instruction and a system call */
	    "{\"frames\":[\"?handler\",\"libc:__restore_rt\",\"?tick\",\"victim\","
	    "\"outer\"," WL_ROOT "]}");
	setitimer(ITIMER_VIRTUAL, &every, NULL);
	outer();
	AFTER_CALL();
	return 0;
}
