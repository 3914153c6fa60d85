/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Maps and unmaps code as fast as it can: each mapping is one that the kernel tells profilers of.
 * usage: mmaps SECONDS
 */
#include <sys/mman.h>

#include "wl.h"

int main(int argc, char **argv)
{
	wl_deadline(argc, argv);
	printf("{\"pid\":%d,\"name\":\"mmaps\",\"chains\":[]}\n", (int)getpid());
	fflush(stdout);
	for (;;) {
		void *at =
		    mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (at == MAP_FAILED)
			return 1;
		munmap(at, 4096);
	}
}
