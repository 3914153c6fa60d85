/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/wakeup.h"

#include <linux/sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "lib/base.h"
#include "lib/sched_attr.h"

enum { SLICE_NS = 100000, NICE = -10 };

static int set_attr(int nice)
{
	struct kernel_sched_attr attr = {
	    .size = sizeof(attr),
	    .policy = SCHED_NORMAL,
	    .flags = SCHED_FLAG_RESET_ON_FORK,
	    .nice = nice,
	    .runtime = SLICE_NS,
	};

	return (int)syscall(SYS_sched_setattr, 0, &attr, 0);
}

void wakeup_soon(void)
{
	int nice = getpriority(PRIO_PROCESS, 0);

	/* A nice value above 0 was set on purpose: keep it. */
	if (nice > 0 || set_attr(MIN(NICE, nice)) < 0)
		(void)set_attr(nice);
}
