/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct child: a process that spins at the end of a known call chain, so that its samples can be
 * checked word by word. The child is the test program itself, executed with arguments: main() of
 * every test calls child_main() when it has arguments.
 */
#pragma once

#include "lib/base.h"

#define NOINLINE_ __attribute__((noinline, noclone, noipa))

enum { CHILD_DEPTH_MAX = 1100 };

#define CHILD_NAME "kiln-test-child" /* thread name of the greatest length */

/* What the child tells about itself once it spins. */
struct child_report {
	uint32_t n;
	uint32_t pad;
	uint64_t leaf;			   /* the function that spins */
	uint64_t returns[CHILD_DEPTH_MAX]; /* the frames above it, up to main() */
	uint64_t words_from, words_to;	   /* stack memory where each word holds its address */
};

enum {
	CHILD_ABOVE_MAIN = 3, /* __libc_start_call_main, __libc_start_main, _start */
};

struct child {
	int pid;
	int out; /* the child's standard output */
	struct child_report report;
};

/*
 * MODE: "spin": SIGUSR1 makes the child fork a process that spins likewise, SIGUSR2 makes it
 *       execute itself anew.
 *       "deep": as "spin", with 256 KiB of words below main() that hold their addresses.
 *       "sparse": as "spin", with 512 KiB below main() of which only both ends are written.
 *       "threads": three threads spin; each SIGUSR1 ends one: a thread, the main one, the last.
 * DEPTH: calls in the chain. CGROUP: directory of the cgroup that the child runs in, or NULL.
 * Returns once the child spins. The child ends with the test, or after a minute (ten with
 * KILN_LONG=1).
 */
int child_start(const char *mode, int depth, const char *cgroup, struct child *ret) _must_check_;
/* Waits for the pid of the process that the child forked; or a negative errno. */
int child_forked(struct child *c) _must_check_;
void child_end(struct child *c);
int child_main(int argc, char **argv);
/* Makes the calling process spin until it is killed. */
void child_spin(void);
