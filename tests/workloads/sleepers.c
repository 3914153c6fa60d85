/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that wait for ever, from before anybody looks: two that hold what the other wants, the
 * main thread, and as many others as asked for.
 *
 * usage: sleepers [THREADS]
 *
 * Prints {"pid":N} when all wait, or are about to.
 */
#include <pthread.h>

#include "wl.h"

static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER, second = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both_have_one;

NOINLINE static void want(pthread_mutex_t *m)
{
	pthread_mutex_lock(m);
	AFTER_CALL();
}

NOINLINE static void *has_first(void *arg)
{
	pthread_mutex_lock(&first);
	pthread_barrier_wait(&both_have_one);
	want(&second);
	AFTER_CALL();
	return arg;
}

NOINLINE static void *has_second(void *arg)
{
	pthread_mutex_lock(&second);
	pthread_barrier_wait(&both_have_one);
	want(&first);
	AFTER_CALL();
	return arg;
}

NOINLINE static void *one_of_many(void *arg)
{
	for (;;)
		pause();
	return arg;
}

NOINLINE static void wait_for_ever(void)
{
	for (;;)
		pause();
}

int main(int argc, char **argv)
{
	long n = argc > 1 ? atol(argv[1]) : 0;
	pthread_attr_t small;
	pthread_t thread;

	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 65536);
	pthread_barrier_init(&both_have_one, NULL, 2);
	if (pthread_create(&thread, NULL, has_first, NULL) ||
	    pthread_create(&thread, NULL, has_second, NULL))
		return 1;
	for (long i = 0; i < n; i++)
		if (pthread_create(&thread, &small, one_of_many, NULL))
			return 1;
	usleep(200000);
	printf("{\"pid\":%d}\n", getpid());
	fflush(stdout);
	wait_for_ever();
}
