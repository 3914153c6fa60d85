/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Into the vDSO and into the kernel below nine calls of rec().
 * usage: kernel SECONDS vdso|urandom|getrandom
 */
#include <fcntl.h>
#include <sys/random.h>

#include "wl.h"

static int urandom = -1;
static char bytes[65536];

NOINLINE void vdso_loop(void)
{
	struct timespec ts;

	for (;;) {
		clock_gettime(CLOCK_MONOTONIC, &ts);
		AFTER_CALL();
	}
}

NOINLINE void read_loop(void)
{
	for (;;) {
		if (read(urandom, bytes, sizeof(bytes)) < 0)
			_exit(1);
		AFTER_CALL();
	}
}

NOINLINE void getrandom_loop(void)
{
	for (;;) {
		if (getrandom(bytes, sizeof(bytes), 0) < 0)
			_exit(1);
		AFTER_CALL();
	}
}

NOINLINE void rec(int n, void (*loop)(void))
{
	if (n == 1)
		loop();
	else
		rec(n - 1, loop);
	AFTER_CALL();
}

#define REC9 "{\"n\":9,\"of\":[\"rec\"]}," WL_ROOT

int main(int argc, char **argv)
{
	const char *what = argc > 2 ? argv[2] : "vdso";

	wl_deadline(argc, argv);
	if (strcmp(what, "vdso") == 0) {
		wl_describe("vdso",
			    "{\"frames\":[\"+vdso\",\"libc:clock_gettime\",\"vdso_loop\"," REC9
			    "],\"min_share\":0.2},"
			    "{\"frames\":[\"?libc:clock_gettime\",\"vdso_loop\"," REC9 "]},"
			    "{\"frames\":[\"plt\",\"vdso_loop\"," REC9 "]}");
		rec(9, vdso_loop);
	} else if (strcmp(what, "urandom") == 0) {
		urandom = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
		wl_describe("urandom", "{\"frames\":[\"libc:read\",\"read_loop\"," REC9
				       "],\"min_kernel_share\":0.8},"
				       "{\"frames\":[\"?plt\",\"read_loop\"," REC9 "]}");
		rec(9, read_loop);
	} else {
		wl_describe("getrandom", "{\"frames\":[\"libc:getrandom\",\"getrandom_loop\"," REC9
					 "],\"min_kernel_share\":0.8},"
					 "{\"frames\":[\"?plt\",\"getrandom_loop\"," REC9 "]}");
		rec(9, getrandom_loop);
	}
	AFTER_CALL();
	return 0;
}
