/* SPDX-License-Identifier: Apache-2.0 */
/* Which CPUs are online, and whether an event that is bound to a CPU survived. Any thread. */
#pragma once

#include "lib/base.h"

/* The kernel's list; Documentation/admin-guide/cputopology.rst. */
#define CPUS_ONLINE "/sys/devices/system/cpu/online"

/*
 * Reads a list such as "0-3,5" from PATH: RET_ONLINE[i] tells whether CPU i < N is in it. -errno of
 * the file, -EBADMSG when it is no list.
 */
int cpus_read(const char *path, bool *ret_online, size_t n) _must_check_;

/*
 * Does the event FD still count? When a CPU goes offline, its events end for good: the descriptor
 * stays but counts nothing (perf_event_exit_cpu() in the kernel's kernel/events/core.c). FD: an
 * enabled event with read_format CPUS_READ_FORMAT. *ENABLED: its enabled time (ns) at the last
 * call, 0 at first; updated.
 */
#define CPUS_READ_FORMAT PERF_FORMAT_TOTAL_TIME_ENABLED
bool cpus_event_is_alive(int fd, uint64_t *enabled);
