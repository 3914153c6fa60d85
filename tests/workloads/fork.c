/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A parent that forks a worker every 400 ms, after it has said what it is; workers of even and odd
 * number have chains of their own and live for half a second. fork() without exec: the child has
 * the parent's mappings.
 * usage: fork SECONDS
 */
#include <sys/wait.h>

#include "wl.h"

NOINLINE void even_leaf(void)
{
	WL_SPIN_FOREVER();
}

NOINLINE void odd_leaf(void)
{
	WL_SPIN_FOREVER();
}

NOINLINE void even_worker(void)
{
	even_leaf();
	AFTER_CALL();
}

NOINLINE void odd_worker(void)
{
	odd_leaf();
	AFTER_CALL();
}

static void over(int sig)
{
	(void)sig;
	_exit(0);
}

NOINLINE void spawn(int i)
{
	struct timespec life = {0, 500000000};
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
	struct itimerspec at = {.it_value = life};
	timer_t timer;
	pid_t pid = fork();

	if (pid != 0)
		return;
	timer_create(CLOCK_MONOTONIC, &event, &timer);
	timer_settime(timer, 0, &at, NULL);
	if (i % 2)
		odd_worker();
	else
		even_worker();
	AFTER_CALL();
}

int main(int argc, char **argv)
{
	signal(SIGUSR1, over);
	wl_deadline(argc, argv);
	wl_describe(
	    "fork",
	    "{\"frames\":[\"even_leaf\",\"even_worker\",\"spawn\"," WL_ROOT "],\"min_share\":0.2},"
	    "{\"frames\":[\"odd_leaf\",\"odd_worker\",\"spawn\"," WL_ROOT "],\"min_share\":0.2},"
	    /* fork, exit and page faults of the copy */
	    "{\"frames\":[\"+lib:libc.so.6\",\"*spawn\"," WL_ROOT "],\"max_share\":0.05},"
	    "{\"frames\":[\"*spawn\"," WL_ROOT "],\"max_share\":0.05},"
	    "{\"frames\":[\"?over\",\"libc:__restore_rt\",\"*\"," WL_ROOT "],\"max_share\":0.05},"
	    "{\"frames\":[\"lib:libc.so.6\",\"over\",\"libc:__restore_rt\",\"*\"," WL_ROOT
	    "],\"max_share\":0.05}");
	for (int i = 0;; i++) {
		spawn(i);
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		usleep(400000);
	}
}
