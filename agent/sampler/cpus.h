/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which CPUs are online, how many there may be, and whether an event that is bound to a CPU
 * survived. Any thread.
 */
#pragma once

#include "lib/base.h"

/* The kernel's lists; Documentation/admin-guide/cputopology.rst. */
#define CPUS_ONLINE  "/sys/devices/system/cpu/online"
#define CPUS_PRESENT "/sys/devices/system/cpu/present"

/*
 * Reads a list such as "0-3,5" from PATH: RET_ONLINE[i] tells whether CPU i < N is in it,
 * *RET_BEYOND how many CPUs in it have the number N or a higher one; RET_BEYOND may be NULL. -errno
 * of the file, -EBADMSG when it is no list.
 */
int cpus_read(const char *path, bool *ret_online, size_t n, size_t *ret_beyond) _must_check_;

/*
 * For how many CPUs to make room on a machine where CPUs below the number PRESENT are there and
 * POSSIBLE is what the kernel is prepared for: twice PRESENT and at least CPUS_ROOM_MIN, but not
 * more than POSSIBLE. Virtual machines that CPUs can be added to often have 2 CPUs of 128 to 240
 * possible ones, and one CPU's share of the BPF maps is 0.2 MiB.
 */
enum { CPUS_ROOM_MIN = 4 };
size_t cpus_room(size_t present, size_t possible);
/* cpus_room() with the CPUs of the list at PATH; POSSIBLE if the list cannot be read. */
size_t cpus_expected(const char *path, size_t possible);

/*
 * Does the event FD still count? When a CPU goes offline, its events end for good: the descriptor
 * stays but counts nothing (perf_event_exit_cpu() in the kernel's kernel/events/core.c). FD: an
 * enabled event with read_format CPUS_READ_FORMAT. *ENABLED: its enabled time (ns) at the last
 * call, 0 at first; updated.
 */
#define CPUS_READ_FORMAT PERF_FORMAT_TOTAL_TIME_ENABLED
bool cpus_event_is_alive(int fd, uint64_t *enabled);
