/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the processes that run a runtime, by the names of the files that they map, before anything
 * is sampled: unlike native frames, frames of runtimes cannot be added to a sample later, so the
 * tables of runtimes are made beforehand. A process that is missed is found by its first sample.
 */
#pragma once

#include "agent/process/maps.h"
#include "agent/runtime/runtime.h"

enum { WARM_PROCESSES_MAX = 64, WARM_SCAN_MAX = 4096, WARM_FILES_MAX = 256 /* of a process */ };

/* Does the file name in PATH begin like the name of a file of a runtime in TABLE? */
bool warm_is_runtime(const char *path, const struct interpreter_ops *const *table);
/*
 * Calls FOUND for the processes below PROC_DIRFD (or those of the N_PIDS PIDS, if PIDS is not NULL)
 * that map such a file as code: at most WARM_PROCESSES_MAX.
 */
void warm_scan(int proc_dirfd, const uint32_t *pids, size_t n_pids,
	       const struct interpreter_ops *const *table, void (*found)(uint32_t pid, void *arg),
	       void *arg);
