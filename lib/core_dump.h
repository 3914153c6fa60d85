/* SPDX-License-Identifier: Apache-2.0 */
/*
 * No core files of this process: its memory holds tokens, keys and what it read of others. Nor can
 * other programs of the same user look into it (prctl(2), PR_SET_DUMPABLE); root still can.
 */
#pragma once

#include <errno.h>
#include <sys/prctl.h>

/* First thing in main(). */
static inline int core_dump_forbid(void)
{
	return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ? -errno : 0;
}
