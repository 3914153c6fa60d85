// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/agent/runtime/recorder.h"

#include <sys/uio.h>

enum { RANGES_MAX = 65536 };

static struct range {
	uint64_t start, end;
} ranges[RANGES_MAX];
static size_t n_ranges;
static pid_t recorded_pid;

static int live(uint64_t address, void *dst, size_t len)
{
	struct iovec to = {dst, len}, from = {(void *)(uintptr_t)address, len};

	return process_vm_readv(recorded_pid, &to, 1, &from, 1, 0) == (ssize_t)len ? 0 : -EFAULT;
}

static int note(void *arg, uint64_t address, void *dst, size_t len)
{
	int r = live(address, dst, len);

	if (r == 0 && n_ranges < RANGES_MAX)
		ranges[n_ranges++] = (struct range){address, address + len};
	return r;
}

struct target_memory recorder_begin(pid_t pid)
{
	recorded_pid = pid;
	n_ranges = 0;
	return (struct target_memory){.read = note};
}

static int compare(const void *a, const void *b)
{
	const struct range *x = a, *y = b;

	return x->start < y->start ? -1 : x->start > y->start;
}

void recorder_write(void)
{
	qsort(ranges, n_ranges, sizeof(*ranges), compare);
	for (size_t i = 0; i < n_ranges;) {
		uint64_t start = ranges[i].start, end = ranges[i].end;

		while (++i < n_ranges && ranges[i].start <= end)
			end = MAX(end, ranges[i].end);
		printf("memory %#llx ", (unsigned long long)start);
		for (; start < end; start++) {
			uint8_t byte = 0;

			(void)live(start, &byte, 1);
			printf("%02x", byte);
		}
		printf("\n");
	}
}
