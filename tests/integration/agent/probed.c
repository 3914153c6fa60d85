/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program whose calls are counted by probes. Each line of its standard input is a command; the
 * program answers with one line when it has executed it:
 *
 *   call N    N times: three calls of leaf() from often(), one from seldom()
 *   malloc N  N calls of malloc() from take_memory()
 *   exec N    executes itself N times
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OWN_FRAME __attribute__((noinline, noclone, optimize("no-optimize-sibling-calls")))

OWN_FRAME int leaf(int x)
{
	__asm__ volatile("" ::: "memory");
	return x + 1;
}

OWN_FRAME int often(int n)
{
	int sum = leaf(n);

	sum += leaf(n + 1);
	return sum + leaf(n + 2);
}

OWN_FRAME int seldom(int n)
{
	return leaf(n) + 2;
}

OWN_FRAME void take_memory(void)
{
	void *volatile p = malloc(24);

	free(p);
}

static void answer(void)
{
	(void)!write(1, "done\n", 5);
}

int main(int argc, char **argv)
{
	char line[64];
	int n;

	if (argc > 1 && (n = atoi(argv[1])) > 0) {
		snprintf(line, sizeof(line), "%d", n - 1);
		execl("/proc/self/exe", argv[0], line, NULL);
		return 1;
	}
	answer();
	for (;;) {
		size_t len = 0;

		/* Byte by byte: the rest of the input is for the next executed program. */
		while (len < sizeof(line) - 1 && read(0, line + len, 1) == 1 && line[len] != '\n')
			len++;
		line[len] = 0;
		if (!len)
			return 0;
		n = atoi(strchr(line, ' '));
		if (line[0] == 'e') {
			snprintf(line, sizeof(line), "%d", n - 1);
			execl("/proc/self/exe", argv[0], line, NULL);
			return 1;
		}
		for (int i = 0; i < n; i++) {
			if (line[0] == 'm') {
				take_memory();
				continue;
			}
			often(i);
			seldom(i);
		}
		answer();
	}
}
