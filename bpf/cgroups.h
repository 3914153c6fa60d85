/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What bpf/cgroups.bpf.c tells user space: cgroups that come and go. */
#pragma once

#include "types.h"

enum {
	KILN_CGROUP_PATH_MAX = 1024, /* longer paths are cut; the kernel's buffer has as much */
};

enum kiln_cgroup_change { KILN_CGROUP_MADE, KILN_CGROUP_REMOVED };

/* A record of `cgroup_ring`. The path, from the hierarchy's root on, ends with a NUL. */
struct kiln_cgroup_event {
	uint64_t id; /* kernfs id of the directory, what `cgroup_policy` has as key */
	uint32_t change;
	uint32_t path_len; /* with the NUL; 0: not readable */
	char path[KILN_CGROUP_PATH_MAX];
};
KILN_ASSERT_SIZE(kiln_cgroup_event, 16 + KILN_CGROUP_PATH_MAX);
