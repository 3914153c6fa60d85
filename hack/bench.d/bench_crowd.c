/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kiln-bench-crowd N: reads cgroup directories from standard input, one a line, and starts one
 * process in each, with N executable mappings besides those of its program. Each process works for
 * about a millisecond, then sleeps, again and again. All of them end with this program.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { PAGE = 4096, CODE_OFFSET = 0x26000, ROUNDS = 300000, REST_US = 1500000 };

/*
 * N mappings of one page of libc. A page without access behind each keeps the kernel from merging
 * them.
 */
static int map_code(int n)
{
	int fd = open("/lib/x86_64-linux-gnu/libc.so.6", O_RDONLY);

	for (int i = 0; i < n; i++)
		if (mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, CODE_OFFSET) ==
			MAP_FAILED ||
		    mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
			return -1;
	close(fd);
	return 0;
}

static int join_cgroup(const char *directory)
{
	char path[4200];
	int fd;
	ssize_t n;

	snprintf(path, sizeof(path), "%s/cgroup.procs", directory);
	fd = open(path, O_WRONLY);
	n = write(fd, "0", 1);
	close(fd);
	return n == 1 ? 0 : -1;
}

static void work(unsigned seed)
{
	volatile unsigned long x = seed;

	usleep(seed % 1000 * (REST_US / 1000));
	for (;; usleep(REST_US))
		for (int i = 0; i < ROUNDS; i++)
			x = x * 3 + 1;
}

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 100;
	unsigned started = 0;
	char line[4096];

	while (fgets(line, sizeof(line), stdin)) {
		pid_t pid = fork();

		line[strcspn(line, "\n")] = 0;
		if (pid < 0)
			return perror("fork"), 1;
		if (!pid) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (join_cgroup(line) < 0 || map_code(n) < 0)
				return perror(line), 1;
			work(started);
		}
		started++;
	}
	printf("%u\n", started);
	fflush(stdout);
	for (;;)
		pause();
}
