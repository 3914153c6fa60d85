// SPDX-License-Identifier: Apache-2.0
/*
 * usage: kiln-bench-timers HZ
 *
 * What a profiler's timers cost when nothing is done in them: on each CPU a perf event of the CPU
 * clock, HZ times a second, with a BPF program that only returns. Prints "ready", ends with its
 * input.
 */
#include <bpf/bpf.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int load_program(void)
{
	/* r0 = 0; exit */
	const struct bpf_insn program[] = {
	    {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0},
	    {.code = BPF_JMP | BPF_EXIT},
	};

	return bpf_prog_load(BPF_PROG_TYPE_PERF_EVENT, "kiln_nothing", "GPL", program,
			     sizeof(program) / sizeof(program[0]), NULL);
}

static int start_timer(int cpu, long hz, int program)
{
	struct perf_event_attr attr = {
	    .size = sizeof(attr),
	    .type = PERF_TYPE_SOFTWARE,
	    .config = PERF_COUNT_SW_CPU_CLOCK,
	    .sample_period = 1000000000UL / (unsigned long)hz,
	    .exclude_idle = 1,
	};
	int fd = (int)syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);

	return fd < 0 ? -1 : ioctl(fd, PERF_EVENT_IOC_SET_BPF, program);
}

int main(int argc, char **argv)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN), hz = argc > 1 ? atol(argv[1]) : 0;
	int program = load_program();

	if (hz <= 0 || program < 0) {
		perror("bench_timers");
		return 1;
	}
	for (int cpu = 0; cpu < n; cpu++) {
		if (start_timer(cpu, hz, program)) {
			perror("bench_timers");
			return 1;
		}
	}
	puts("ready");
	(void)fflush(stdout);
	while (getchar() != EOF)
		;
	return 0;
}
