/* SPDX-License-Identifier: Apache-2.0 */
/*
 * To be preloaded into an agent. The agent believes that the machine has KILN_BENCH_CPUS CPUs, all
 * of them present, and makes room for them. The timers of the real CPUs fire KILN_BENCH_CPUS /
 * (number of real CPUs) times as often as the agent asks for, so that together they take as many
 * samples as KILN_BENCH_CPUS CPUs would. The weights of the samples are wrong then; their number,
 * where they wait and their cost are right. The agent must not change its sampling rate.
 */
#include <bpf/libbpf.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CPUS_PRESENT "/sys/devices/system/cpu/present" /* as in agent/sampler/cpus.h */

static int pretended(void)
{
	const char *cpus = getenv("KILN_BENCH_CPUS");

	return cpus ? atoi(cpus) : 1;
}

int libbpf_num_possible_cpus(void)
{
	return pretended();
}

/* A descriptor of the list of all pretended CPUs. */
static int open_present(void)
{
	int fd = memfd_create("present", MFD_CLOEXEC);

	if (fd >= 0 && (dprintf(fd, "0-%d\n", pretended() - 1) < 0 || lseek(fd, 0, SEEK_SET) < 0)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* cpus_read() opens the list with open(). */
int open(const char *path, int flags, ...)
{
	int (*real)(const char *, int, ...) =
	    (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
	mode_t mode = 0;
	va_list args;

	if (strcmp(path, CPUS_PRESENT) == 0)
		return open_present();
	if (flags & (O_CREAT | __O_TMPFILE)) {
		va_start(args, flags);
		mode = va_arg(args, mode_t);
		va_end(args);
	}
	return real(path, flags, mode);
}

long syscall(long number, ...)
{
	long (*real)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
	long a[6], cpus = sysconf(_SC_NPROCESSORS_CONF);
	va_list args;

	va_start(args, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(args, long);
	va_end(args);
	if (number == SYS_perf_event_open) {
		struct perf_event_attr *attr = (struct perf_event_attr *)a[0];

		if ((int)a[2] >= cpus) {
			errno = ENODEV; /* as for a CPU that is offline */
			return -1;
		}
		if (attr->type == PERF_TYPE_SOFTWARE && attr->config == PERF_COUNT_SW_CPU_CLOCK)
			attr->sample_period /= (unsigned long long)(pretended() / cpus);
	}
	return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
