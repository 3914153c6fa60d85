// SPDX-License-Identifier: Apache-2.0
/*
 * Switches as often as the machine can: on each CPU two processes hand a byte to and fro through
 * pipes. For each line on standard input one is printed: the handovers so far, and CLOCK_MONOTONIC
 * in ns. Ends with its input.
 */
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { CPUS_MAX = 256 };

struct counter {
	_Atomic uint64_t n;
	char pad[56]; /* a cache line for each CPU */
};

static void hand_over(int from, int to, struct counter *counter)
{
	char byte;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (read(from, &byte, 1) == 1) {
		counter->n++;
		if (write(to, &byte, 1) != 1)
			break;
	}
	_exit(1);
}

static int start_pair(int cpu, struct counter *counter)
{
	int there[2], back[2];
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set) || pipe(there) || pipe(back))
		return -1;
	for (int i = 0; i < 2; i++) {
		pid_t pid = fork();

		if (pid < 0)
			return -1;
		if (!pid)
			hand_over(i ? back[0] : there[0], i ? there[1] : back[1], counter);
	}
	return write(there[1], "", 1) == 1 ? 0 : -1;
}

int main(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);
	struct counter *counters = mmap(NULL, CPUS_MAX * sizeof(*counters), PROT_READ | PROT_WRITE,
					MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	char line[16];

	if (counters == MAP_FAILED || n > CPUS_MAX)
		return 1;
	for (int cpu = 0; cpu < n; cpu++) {
		if (start_pair(cpu, &counters[cpu])) {
			perror("bench_switches");
			return 1;
		}
	}
	while (fgets(line, sizeof(line), stdin)) {
		uint64_t sum = 0;
		struct timespec now;

		for (int cpu = 0; cpu < n; cpu++)
			sum += counters[cpu].n;
		clock_gettime(CLOCK_MONOTONIC, &now);
		printf("%llu %llu\n", (unsigned long long)sum,
		       (unsigned long long)now.tv_sec * 1000000000ULL +
			   (unsigned long long)now.tv_nsec);
		fflush(stdout);
	}
	return 0;
}
