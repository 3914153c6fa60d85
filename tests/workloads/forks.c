/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forks as fast as it can. The children have the same few process ids again and again (clone3()
 * with set_tid), each time another program: most run a function of this one, some execute one of
 * storm.c's four programs. usage: forks SECONDS DIRECTORY
 */
#include <errno.h>
#include <linux/sched.h>
#include <sys/wait.h>

#include "wl.h"

enum { PIDS = 61, FIRST_PID = 20000, PROGRAM_EACH = 6 };

/* SIGALRM ends the parent: what it counted goes out in its handler. */
static volatile long forks_started, forks_programs, forks_reused;

NOINLINE static void forks_child(void)
{
	WL_SPIN(100000);
}

NOINLINE static void forks_program(const char *dir, unsigned int number)
{
	static const char *const names[] = {"ash", "birch", "cedar", "dill"};
	char path[4096];

	snprintf(path, sizeof(path), "%s/wl-short-%s", dir, names[number % 4]);
	execl(path, path, (char *)NULL);
	_exit(1);
}

/* A child with this pid; with any other one when somebody else has it. */
static pid_t fork_as(pid_t pid)
{
	struct clone_args args = {
	    .exit_signal = SIGCHLD, .set_tid = (uint64_t)(uintptr_t)&pid, .set_tid_size = 1};
	long r = syscall(SYS_clone3, &args, sizeof(args));

	return r < 0 ? fork() : (pid_t)r;
}

static void over(int sig)
{
	char text[128];
	int n = snprintf(text, sizeof(text), "{\"started\":%ld,\"programs\":%ld,\"reused\":%ld}\n",
			 forks_started, forks_programs, forks_reused);

	(void)sig;
	_exit(write(1, text, (size_t)n) != n);
}

int main(int argc, char **argv)
{
	static pid_t children[PIDS];
	const char *dir = argc > 2 ? argv[2] : ".";

	wl_deadline(argc, argv);
	signal(SIGALRM, over);
	wl_describe("forks", "%s", "");
	for (unsigned int i = 0;; i++) {
		pid_t *child = &children[i % PIDS], want = FIRST_PID + (pid_t)(i % PIDS);

		if (*child)
			waitpid(*child, NULL, 0);
		*child = fork_as(want);
		if (*child == 0 && i % PROGRAM_EACH == 0)
			forks_program(dir, i / PROGRAM_EACH);
		if (*child == 0) {
			forks_child();
			_exit(0);
		}
		if (*child < 0) {
			*child = 0;
			continue;
		}
		forks_started++;
		forks_programs += i % PROGRAM_EACH == 0;
		forks_reused += i >= PIDS && *child == want;
	}
}
