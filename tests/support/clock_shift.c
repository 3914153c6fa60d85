/* SPDX-License-Identifier: Apache-2.0 */
/*
 * To be preloaded into a program under test: moves its wall clock by the number of seconds in the
 * file $KILN_CLOCK_SHIFT_FILE. Monotonic clocks are not changed.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long shift(void)
{
	const char *path = getenv("KILN_CLOCK_SHIFT_FILE");
	char text[32] = "";
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

	if (fd < 0)
		return 0;
	if (read(fd, text, sizeof(text) - 1) < 0)
		text[0] = '\0';
	close(fd);
	return strtol(text, NULL, 10);
}

int clock_gettime(clockid_t id, struct timespec *ts)
{
	long r = syscall(SYS_clock_gettime, id, ts);

	if (r == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
		ts->tv_sec += shift();
	return (int)r;
}

time_t time(time_t *ret)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	if (ret)
		*ret = ts.tv_sec;
	return ts.tv_sec;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	tv->tv_sec = ts.tv_sec;
	tv->tv_usec = ts.tv_nsec / 1000;
	return 0;
}
