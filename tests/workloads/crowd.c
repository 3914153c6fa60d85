/* SPDX-License-Identifier: Apache-2.0 */
/*
 * N processes, each with M mappings of code of its own, that all run a little, all the time. They
 * begin when all are there: busy ones would leave their parent no time to start the rest. Ends with
 * its parent.
 * usage: crowd SECONDS N M MILLISECONDS: of sleep between two bursts of about one
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "wl.h"

enum { PAGE = 4096, BURST = 400000 };

NOINLINE static void crowd_burst(void)
{
	for (int i = 0; i < BURST; i++)
		wl_sink++;
}

/* GATE: the end of a pipe that is closed when all are there. */
NOINLINE static void crowd_member(int gate, int mappings, int nap_ms)
{
	int fd = open("/proc/self/exe", O_RDONLY);
	char c;

	if (read(gate, &c, 1) < 0)
		_exit(1);
	close(gate);
	for (int i = 0; i < mappings; i++) {
		/* With a page between two, so that the kernel does not join them. */
		mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
		mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	}
	for (;;) {
		crowd_burst();
		usleep((useconds_t)nap_ms * 1000);
	}
}

int main(int argc, char **argv)
{
	int n = wl_arg(argc, argv, 2, 300), mappings = wl_arg(argc, argv, 3, 100);
	int nap_ms = wl_arg(argc, argv, 4, 200), started = 0, gate[2];

	wl_deadline(argc, argv);
	if (pipe(gate) < 0)
		return 1;
	for (; started < n; started++) {
		pid_t pid = fork();

		if (pid < 0)
			break;
		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			close(gate[1]);
			crowd_member(gate[0], mappings, nap_ms);
		}
	}
	close(gate[1]);
	printf("{\"pid\":%d,\"name\":\"crowd\",\"chains\":[],\"started\":%d}\n", (int)getpid(),
	       started);
	fflush(stdout);
	for (;;)
		pause();
}
