/* SPDX-License-Identifier: Apache-2.0 */
/*
 * To be preloaded into an agent. The agent believes that the machine has KILN_BENCH_CPUS CPUs. The
 * timers of the real CPUs fire KILN_BENCH_CPUS / (number of real CPUs) times as often as the agent
 * asks for, so that together they take as many samples as KILN_BENCH_CPUS CPUs would. The weights
 * of the samples are wrong then; their number, where they wait and their cost are right. The agent
 * must not change its sampling rate.
 */
#include <bpf/libbpf.h>
#include <dlfcn.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static int pretended(void)
{
	const char *cpus = getenv("KILN_BENCH_CPUS");

	return cpus ? atoi(cpus) : 1;
}

int libbpf_num_possible_cpus(void)
{
	return pretended();
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
