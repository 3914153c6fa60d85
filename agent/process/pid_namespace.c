/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first namespace of a kind has a fixed inode: PROC_PID_INIT_INO (Linux, since 3.8,
 * include/linux/proc_ns.h). A link that cannot be read says nothing, so nothing is said of it.
 */
#include "agent/process/pid_namespace.h"

#include <limits.h>

#define INITIAL "pid:[4026531836]" /* 0xEFFFFFFC */

bool pid_namespace_is_nested(const char *proc)
{
	char path[PATH_MAX], link[64] = "";
	ssize_t n;

	snprintf(path, sizeof(path), "%s/self/ns/pid", proc);
	n = readlink(path, link, sizeof(link) - 1);
	return n > 0 && has_prefix(link, "pid:[") && !streq(link, INITIAL);
}

const char *pid_namespace_advice(void)
{
	return "/proc/self/ns/pid: this is not the machine's first pid namespace, so the kernel "
	       "tells of processes by ids that /proc here does not have: samples will be without "
	       "user frames, containers and paths. In Kubernetes set hostPID: true (the operator "
	       "does), in Docker --pid=host; in Kind and other nodes that are containers nothing "
	       "helps: run the agent on the machine itself (docs/testing-kubernetes.md)";
}
