/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The call chain alternates between two functions with frames of different sizes. Each notes its
 * return address on entry: the word that a sample must have for that frame. One thread writes the
 * report; no code here takes a lock while it spins.
 */
#include "tests/bpf/child.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum {
	LIFE_SECONDS = 60,
	LONG_LIFE_SECONDS = 600,
	WORDS = 32768,
	HOLE_WORDS = 65536,
	EDGE_WORDS = 64
};

static struct child_report report;
static volatile sig_atomic_t usr1, usr2;
static unsigned int life = LIFE_SECONDS;
static volatile uint64_t sink;

/* No tail call. */
#define AFTER_CALL() __asm__ volatile("" ::: "memory")
#define NOTE()	     note((uint64_t)(uintptr_t)__builtin_return_address(0))

static inline __attribute__((always_inline)) void note(uint64_t address)
{
	if (report.n < CHILD_DEPTH_MAX)
		report.returns[report.n++] = address;
}

static void on_signal(int sig)
{
	if (sig == SIGUSR1)
		usr1++;
	else
		usr2++;
}

static void tell(const void *data, size_t n)
{
	if (write(STDOUT_FILENO, data, n) != (ssize_t)n)
		_exit(9);
}

static void fork_once(void)
{
	int pid = fork();

	if (pid) {
		tell(&pid, sizeof(pid));
		return;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, CHILD_NAME);
	alarm(life);
}

static NOINLINE_ void spin_leaf(void)
{
	NOTE();
	report.leaf = (uint64_t)(uintptr_t)spin_leaf;
	tell(&report, sizeof(report));
	for (;;) {
		sink++;
		if (usr1) {
			usr1 = 0;
			fork_once();
		}
		if (usr2)
			execl("/proc/self/exe", "child", "spin", "3", (char *)NULL);
	}
}

static NOINLINE_ void chain_even(int left);

static NOINLINE_ void chain_odd(int left)
{
	char room[40];

	__asm__ volatile("" ::"r"(room) : "memory");
	NOTE();
	if (left > 1)
		chain_even(left - 1);
	else
		spin_leaf();
	AFTER_CALL();
}

static NOINLINE_ void chain_even(int left)
{
	char room[200];

	__asm__ volatile("" ::"r"(room) : "memory");
	NOTE();
	if (left > 1)
		chain_odd(left - 1);
	else
		spin_leaf();
	AFTER_CALL();
}

static NOINLINE_ void begin(int depth)
{
	NOTE();
	chain_odd(depth);
	AFTER_CALL();
}

static NOINLINE_ void begin_deep(int depth)
{
	uint64_t words[WORDS];

	NOTE();
	for (size_t i = 0; i < WORDS; i++)
		((volatile uint64_t *)words)[i] = (uint64_t)(uintptr_t)&words[i];
	report.words_from = (uint64_t)(uintptr_t)words;
	report.words_to = (uint64_t)(uintptr_t)(words + WORDS);
	chain_odd(depth);
	AFTER_CALL();
	sink += words[0];
}

/* 512 KiB of stack of which only the first and the last EDGE_WORDS words are written. */
static NOINLINE_ void begin_sparse(int depth)
{
	uint64_t words[HOLE_WORDS];

	NOTE();
	for (size_t i = 0; i < EDGE_WORDS; i++) {
		size_t j = HOLE_WORDS - 1 - i;

		((volatile uint64_t *)words)[i] = (uint64_t)(uintptr_t)&words[i];
		((volatile uint64_t *)words)[j] = (uint64_t)(uintptr_t)&words[j];
	}
	report.words_from = (uint64_t)(uintptr_t)words;
	report.words_to = (uint64_t)(uintptr_t)(words + HOLE_WORDS);
	chain_odd(depth);
	AFTER_CALL();
	sink += words[0];
}

/* Returns once the process has received ARG signals SIGUSR1. */
static void *spin_until(void *arg)
{
	while (usr1 < (intptr_t)arg)
		sink++;
	return NULL;
}

static int spin_threads(void)
{
	pthread_t first, last;

	if (pthread_create(&first, NULL, spin_until, (void *)1) ||
	    pthread_create(&last, NULL, spin_until, (void *)3))
		return 9;
	tell(&report, sizeof(report));
	spin_until((void *)2);
	pthread_exit(NULL);
}

NOINLINE_ int child_main(int argc, char **argv)
{
	int depth = argc > 2 ? atoi(argv[2]) : 3;
	const char *is_long = getenv("KILN_LONG");

	if (is_long && streq(is_long, "1"))
		life = LONG_LIFE_SECONDS;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, CHILD_NAME);
	alarm(life);
	signal(SIGUSR1, on_signal);
	signal(SIGUSR2, on_signal);
	if (streq(argv[1], "threads"))
		return spin_threads();
	depth = MIN(MAX(depth, 1), CHILD_DEPTH_MAX - 4);
	NOTE();
	if (streq(argv[1], "deep"))
		begin_deep(depth);
	else if (streq(argv[1], "sparse"))
		begin_sparse(depth);
	else
		begin(depth);
	AFTER_CALL();
	return 0;
}

void child_spin(void)
{
	for (;;)
		sink++;
}

static int join_cgroup(const char *cgroup)
{
	_cleanup_close_ int fd = -1;
	char path[512];

	snprintf(path, sizeof(path), "%s/cgroup.procs", cgroup);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	return fd >= 0 && write(fd, "0", 1) == 1 ? 0 : -1;
}

static void run_child(const char *mode, int depth, const char *cgroup, int out)
{
	char number[16];

	snprintf(number, sizeof(number), "%d", depth);
	if ((cgroup && join_cgroup(cgroup) < 0) || dup2(out, STDOUT_FILENO) < 0)
		_exit(9);
	execl("/proc/self/exe", "child", mode, number, (char *)NULL);
	_exit(9);
}

static bool read_all(int fd, void *data, size_t n)
{
	for (size_t done = 0; done < n;) {
		ssize_t got = read(fd, (char *)data + done, n - done);

		if (got <= 0 && !(got < 0 && errno == EINTR))
			return false;
		done += got > 0 ? (size_t)got : 0;
	}
	return true;
}

int child_start(const char *mode, int depth, const char *cgroup, struct child *ret)
{
	struct child c = {};
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	c.pid = fork();
	if (!c.pid)
		run_child(mode, depth, cgroup, fds[1]);
	c.out = fds[0];
	close(fds[1]);
	if (c.pid < 0 || !read_all(c.out, &c.report, sizeof(c.report))) {
		child_end(&c);
		return -EIO;
	}
	/* The child noted return addresses from main() down; a sample has the leaf first. */
	for (uint32_t i = 0, j = c.report.n - 1; c.report.n && i < j; i++, j--) {
		uint64_t swap = c.report.returns[i];

		c.report.returns[i] = c.report.returns[j];
		c.report.returns[j] = swap;
	}
	*ret = c;
	return 0;
}

int child_forked(struct child *c)
{
	int pid;

	return read_all(c->out, &pid, sizeof(pid)) ? pid : -EIO;
}

void child_end(struct child *c)
{
	if (c->pid > 0) {
		kill(c->pid, SIGKILL);
		waitpid(c->pid, NULL, 0);
		close(c->out);
	}
	c->pid = 0;
}
