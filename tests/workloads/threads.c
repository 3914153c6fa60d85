/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Eight threads, each with functions of its own; the expectation names the thread.
 * usage: threads SECONDS
 */
#include <pthread.h>

#include "wl.h"

static _Atomic int tids[8];

#define WORKER(i)                                                                                  \
	NOINLINE void leaf_##i(void)                                                               \
	{                                                                                          \
		WL_SPIN_FOREVER();                                                                 \
	}                                                                                          \
	NOINLINE void middle_##i(int n)                                                            \
	{                                                                                          \
		if (n == 0)                                                                        \
			leaf_##i();                                                                \
		else                                                                               \
			middle_##i(n - 1);                                                         \
		AFTER_CALL();                                                                      \
	}                                                                                          \
	static void *worker_##i(void *arg)                                                         \
	{                                                                                          \
		tids[i] = (int)syscall(SYS_gettid);                                                \
		middle_##i(i);                                                                     \
		AFTER_CALL();                                                                      \
		return arg;                                                                        \
	}
WORKER(0)
WORKER(1)
WORKER(2)
WORKER(3)
WORKER(4)
WORKER(5)
WORKER(6)
WORKER(7)

int main(int argc, char **argv)
{
	static void *(*const workers[8])(void *) = {worker_0, worker_1, worker_2, worker_3,
						    worker_4, worker_5, worker_6, worker_7};
	pthread_t thread;

	wl_deadline(argc, argv);
	for (int i = 0; i < 8; i++)
		if (pthread_create(&thread, NULL, workers[i], NULL) != 0)
			return 1;
	for (int i = 0; i < 8; i++)
		while (!tids[i])
			usleep(1000);
	printf("{\"pid\":%d,\"name\":\"threads\",\"chains\":[", (int)getpid());
	for (int i = 0; i < 8; i++)
		printf("%s{\"tid\":%d,\"min_share\":0.03,\"frames\":[\"leaf_%d\",{\"n\":%d,\"of\":["
		       "\"middle_%d\"]},"
		       "\"worker_%d\"," WL_THREAD_ROOT "]}",
		       i ? "," : "", tids[i], i, i + 1, i, i);
	printf("]}\n");
	fflush(stdout);
	for (;;)
		pause();
}
