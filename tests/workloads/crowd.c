/* SPDX-License-Identifier: Apache-2.0 */
/*
 * N processes, each with M mappings of code of its own, which all run a little, all the time. They
 * wait until all are started: busy ones would leave the parent no time to start the rest. Each
 * executes its own program (exec), so that no walk uses its parent's mappings. They end with their
 * parent. usage: crowd SECONDS N M MILLISECONDS (of sleep between two bursts of about 1 ms)
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "wl.h"

enum { PAGE = 4096, ROOM = 48 << 10, BURST = 400000, GATE = 0 };

NOINLINE static void crowd_burst(void)
{
	for (int i = 0; i < BURST; i++)
		wl_sink++;
}

/* GATE: the reading end of a pipe that is closed once all members are started. */
NOINLINE static void crowd_member(int mappings, int nap_ms)
{
	int fd = open("/proc/self/exe", O_RDONLY);
	char room[ROOM]; /* fills small copies of this stack (KILN_DUMP_SMALL) */
	char c;

	if (read(GATE, &c, 1) < 0)
		_exit(1);
	for (int i = 0; i < mappings; i++) {
		/* A page between two mappings keeps the kernel from merging them. */
		mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
		mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	}
	memset(room, 1, sizeof(room));
	__asm__ volatile("" ::"r"(room) : "memory");
	for (;;) {
		crowd_burst();
		usleep((useconds_t)nap_ms * 1000);
	}
}

int main(int argc, char **argv)
{
	int n = wl_arg(argc, argv, 2, 300), started = 0, gate[2];

	if (argc == 4 && !strcmp(argv[1], "member"))
		crowd_member(atoi(argv[2]), atoi(argv[3]));
	wl_deadline(argc, argv);
	if (argc < 5 || pipe(gate) < 0)
		return 1;
	for (; started < n; started++) {
		pid_t pid = fork();

		if (pid < 0)
			break;
		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			close(gate[1]);
			dup2(gate[0], GATE);
			execl(argv[0], argv[0], "member", argv[3], argv[4], (char *)NULL);
			_exit(1);
		}
	}
	close(gate[1]);
	printf("{\"pid\":%d,\"name\":\"crowd\",\"chains\":[],\"started\":%d}\n", (int)getpid(),
	       started);
	fflush(stdout);
	for (;;)
		pause();
}
