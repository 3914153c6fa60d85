/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is the agent in a nested pid namespace (Kind's nodes, a Pod without hostPID)? In the machine's
 * first one /proc has all processes. In a nested one it has only the namespace's own, and under
 * other ids, so BPF has to know the namespace (bpf/task_id.h). Any thread.
 */
#pragma once

#include "lib/error.h"

/* The inode of the nested namespace that we are in, or 0. PROC: "/proc" outside of tests. */
uint32_t pid_namespace_nested(const char *proc);
/* One line for the log: what it is, what is sampled, what to do. */
const char *pid_namespace_advice(void);
