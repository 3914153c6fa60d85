/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the kernel write no core file of this process, because its memory holds tokens, keys and
 * data of other processes. Other programs of the same user cannot attach to it or read its memory
 * either (prctl(2), PR_SET_DUMPABLE); root still can.
 */
#pragma once

#include <errno.h>
#include <sys/prctl.h>

/* Call this first in main(). */
static inline int core_dump_forbid(void)
{
	return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ? -errno : 0;
}
