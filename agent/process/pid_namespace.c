/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first namespace of a kind has a fixed inode: PROC_PID_INIT_INO (Linux, since 3.8,
 * include/linux/proc_ns.h). A link that cannot be read counts as the first namespace.
 */
#include "agent/process/pid_namespace.h"

#include <limits.h>

#define INITIAL "pid:[4026531836]" /* 0xEFFFFFFC */

uint32_t pid_namespace_nested(const char *proc)
{
	char path[PATH_MAX], link[64] = "", *end;
	unsigned long inode;
	ssize_t n;

	snprintf(path, sizeof(path), "%s/self/ns/pid", proc);
	n = readlink(path, link, sizeof(link) - 1);
	if (n <= 0 || !has_prefix(link, "pid:[") || streq(link, INITIAL))
		return 0;
	inode = strtoul(link + strlen("pid:["), &end, 10);
	return streq(end, "]") && inode <= UINT32_MAX ? (uint32_t)inode : 0;
}

const char *pid_namespace_advice(void)
{
	return "/proc/self/ns/pid: this is not the machine's first pid namespace: only processes "
	       "of this one are sampled, without the machine's kernel threads. Where a container "
	       "is the "
	       "node (Kind, k3d), these are the node's. Else set hostPID: true in Kubernetes (the "
	       "operator does), --pid=host in Docker";
}
