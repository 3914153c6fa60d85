/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose process ids does /proc have? In the machine's first pid namespace those of all processes.
 * In a nested one (Kind's nodes, a Pod without hostPID) other ids, and of the namespace's own
 * processes only: BPF has to be told which it is (bpf/kernel.h). Any thread.
 */
#pragma once

#include "lib/error.h"

/* The inode of the nested namespace that we are in, or 0. PROC: "/proc" outside of tests. */
uint32_t pid_namespace_nested(const char *proc);
/* One line for the log: what it is, what is sampled, what to do. */
const char *pid_namespace_advice(void);
