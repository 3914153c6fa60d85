/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process that holds a pod's namespaces while its containers come and go. It waits for SIGINT
 * or SIGTERM. It reaps the orphans that it inherits where the pod shares process ids. Static, so
 * that its image is this one file.
 */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int number)
{
	(void)number;
	_exit(0);
}

static void reap(int number)
{
	(void)number;
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
}

int main(void)
{
	signal(SIGINT, end);
	signal(SIGTERM, end);
	signal(SIGCHLD, reap);
	for (;;)
		pause();
}
