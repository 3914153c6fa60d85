/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The records in which bpf/cgroups.bpf.c tells user space of cgroups that are made and removed. */
#pragma once

#include "types.h"

enum {
	KILN_CGROUP_PATH_MAX = 1024, /* longer paths are cut; the kernel's buffer has this size */
};

enum kiln_cgroup_change { KILN_CGROUP_MADE, KILN_CGROUP_REMOVED };

/* A record of `cgroup_ring`. The path is relative to the hierarchy's root and ends with a NUL. */
struct kiln_cgroup_event {
	uint64_t id; /* kernfs id of the directory, the key in `cgroup_policy` */
	uint32_t change;
	uint32_t path_len; /* with the NUL; 0: the path could not be read */
	char path[KILN_CGROUP_PATH_MAX];
};
KILN_ASSERT_SIZE(kiln_cgroup_event, 16 + KILN_CGROUP_PATH_MAX);
