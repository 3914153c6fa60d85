/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does the kernel tell of processes by the ids that this process's /proc has? BPF's are those of
 * the machine's first pid namespace. In a nested one (Kind's nodes, a Pod without hostPID) samples
 * are taken, but no process is found: no user frames, containers or paths. Any thread.
 */
#pragma once

#include "lib/error.h"

/* What to look at: "/proc" outside of tests. */
bool pid_namespace_is_nested(const char *proc);
/* One line for the log: what it is, what it costs, what to do. */
const char *pid_namespace_advice(void);
