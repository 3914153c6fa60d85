// SPDX-License-Identifier: Apache-2.0
/*
 * A container can truncate a file that the agent has mapped; the next read past its new end raises
 * SIGBUS. The handler replaces the lost pages by anonymous zero pages and returns, so the reader
 * goes on with zeros, which every parser survives.
 *
 * The table of ranges is read in the handler, hence plain atomics: a slot is claimed by its `end`
 * and becomes visible with its `start`. mmap() and sigaction() are system calls without user-space
 * state.
 */
#include "agent/elf/image_fault.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "agent/elf/image.h"

enum { PAGE = 4096 };

static struct {
	_Atomic uintptr_t start, end;
} ranges[IMAGE_MAPPED_MAX];
static _Atomic size_t n_used; /* slots ever used: the handler looks no further */
static struct sigaction previous;

int image_fault_add(const void *start, size_t size)
{
	for (size_t i = 0; i < IMAGE_MAPPED_MAX; i++) {
		uintptr_t none = 0;
		size_t used = atomic_load(&n_used);

		if (!atomic_compare_exchange_strong(&ranges[i].end, &none, (uintptr_t)start + size))
			continue;
		while (used <= i && !atomic_compare_exchange_weak(&n_used, &used, i + 1))
			;
		atomic_store(&ranges[i].start, (uintptr_t)start);
		return 0;
	}
	return -EMFILE;
}

void image_fault_remove(const void *start)
{
	for (size_t i = 0; i < atomic_load(&n_used); i++) {
		if (atomic_load(&ranges[i].start) != (uintptr_t)start)
			continue;
		atomic_store(&ranges[i].start, 0);
		atomic_store(&ranges[i].end, 0);
		return;
	}
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
	uintptr_t at = (uintptr_t)info->si_addr & ~(uintptr_t)(PAGE - 1);
	size_t n = atomic_load(&n_used);
	int saved = errno;

	for (size_t i = 0; i < n; i++) {
		uintptr_t start = atomic_load(&ranges[i].start), end = atomic_load(&ranges[i].end);

		if (!start || at < start || at >= end)
			continue;
		if (mmap((void *)at, end - at, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
			 -1, 0) != MAP_FAILED) {
			errno = saved;
			return;
		}
	}
	/* None of ours: the instruction faults again, under the former action. */
	sigaction(SIGBUS, &previous, NULL);
	errno = saved;
}

int image_catch_faults(struct error *err)
{
	struct sigaction action = {.sa_sigaction = on_fault,
				   .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};

	sigemptyset(&action.sa_mask);
	if (sigaction(SIGBUS, &action, &previous) < 0)
		return error_set(err, -errno, "sigaction: %s", strerror(errno));
	return 0;
}
