// SPDX-License-Identifier: Apache-2.0
/*
 * usage: kiln-bench-empty timers HZ   a perf event of the CPU clock on each CPU, HZ times a second
 *        kiln-bench-empty switches     the tracepoint sched_switch
 *
 * What it costs that the kernel calls a BPF program there, with a program that only returns.
 * Prints "ready", ends with its input.
 */
#include <bpf/bpf.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int load_program(enum bpf_prog_type type)
{
	/* r0 = 0; exit */
	const struct bpf_insn program[] = {
	    {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0},
	    {.code = BPF_JMP | BPF_EXIT},
	};

	return bpf_prog_load(type, "kiln_nothing", "GPL", program,
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

static int start_timers(long hz)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);
	int program = load_program(BPF_PROG_TYPE_PERF_EVENT);

	if (program < 0)
		return -1;
	for (int cpu = 0; cpu < n; cpu++)
		if (start_timer(cpu, hz, program))
			return -1;
	return 0;
}

static int start_switches(void)
{
	int program = load_program(BPF_PROG_TYPE_RAW_TRACEPOINT);

	return program < 0 ? -1 : bpf_raw_tracepoint_open("sched_switch", program);
}

int main(int argc, char **argv)
{
	const char *where = argc > 1 ? argv[1] : "";
	long hz = argc > 2 ? atol(argv[2]) : 0;
	int r = -1;

	if (!strcmp(where, "timers") && hz > 0)
		r = start_timers(hz);
	else if (!strcmp(where, "switches"))
		r = start_switches();
	if (r < 0) {
		perror("usage: kiln-bench-empty timers HZ | switches");
		return 1;
	}
	puts("ready");
	(void)fflush(stdout);
	while (getchar() != EOF)
		;
	return 0;
}
