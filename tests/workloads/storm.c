/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts RATE short-lived processes a second, of four programs in turn.
 * usage: storm SECONDS DIRECTORY RATE
 */
#include <spawn.h>
#include <sys/wait.h>

#include "wl.h"

extern char **environ;

static int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

int main(int argc, char **argv)
{
	static const char *const names[] = {"ash", "birch", "cedar", "dill"};
	const char *dir = argc > 2 ? argv[2] : ".";
	int rate = wl_arg(argc, argv, 3, 200), seconds = wl_arg(argc, argv, 1, 1);
	int64_t start = now_ns(), due = start, failed = 0, started = 0;
	char path[4096];

	printf("{\"pid\":%d,\"name\":\"storm\",\"chains\":[]}\n", (int)getpid());
	fflush(stdout);
	while (now_ns() - start < seconds * 1000000000LL) {
		char *const child_argv[] = {path, NULL};
		pid_t pid;

		snprintf(path, sizeof(path), "%s/wl-short-%s", dir, names[started % 4]);
		if (posix_spawn(&pid, path, NULL, NULL, child_argv, environ) != 0)
			failed++;
		else
			started++;
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		due += 1000000000LL / rate;
		if (due > now_ns())
			usleep((useconds_t)((due - now_ns()) / 1000));
	}
	while (waitpid(-1, NULL, 0) > 0)
		;
	printf("{\"started\":%ld,\"failed\":%ld}\n", (long)started, (long)failed);
	return failed ? 1 : 0;
}
