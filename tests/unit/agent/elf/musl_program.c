// SPDX-License-Identifier: Apache-2.0
/* A static musl program with a thread and a signal handler, for test_known_code.c. Never run. */
#include <pthread.h>
#include <signal.h>
#include <stddef.h>

static void on_signal(int sig)
{
}

static void *run(void *arg)
{
	return arg;
}

int main(void)
{
	pthread_t thread;

	signal(SIGUSR1, on_signal);
	return pthread_create(&thread, NULL, run, NULL);
}
