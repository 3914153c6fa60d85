/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The argument of sched_setattr(2) and sched_getattr(2): struct sched_attr of the kernel's
 * include/uapi/linux/sched/types.h (Linux 3.14). That header is not included: before Linux 5.8 it
 * conflicts with glibc's <sched.h>, and with that of glibc 2.41, which declares the calls itself.
 */
#pragma once

#include <stdint.h>

struct kernel_sched_attr {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period; /* ns; of SCHED_NORMAL `runtime` is the slice */
};
