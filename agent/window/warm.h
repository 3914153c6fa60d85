/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which processes run a runtime, by the names of the files that they map, before anything is
 * sampled: frames of runtimes cannot be found after the fact, as native ones are, so their tables
 * are worth having beforehand. Only a hint: what it misses is met by the first sample.
 */
#pragma once

#include "agent/process/maps.h"
#include "agent/runtime/runtime.h"

enum { WARM_PROCESSES_MAX = 64, WARM_SCAN_MAX = 4096, WARM_FILES_MAX = 256 /* of a process */ };

/* Does the last part of PATH begin as files of a runtime of TABLE do? */
bool warm_is_runtime(const char *path, const struct interpreter_ops *const *table);
/*
 * FOUND for the processes below PROC_DIRFD (or of PIDS, N_PIDS of them, when that is not NULL) that
 * map such a file as code: at most WARM_PROCESSES_MAX.
 */
void warm_scan(int proc_dirfd, const uint32_t *pids, size_t n_pids,
	       const struct interpreter_ops *const *table, void (*found)(uint32_t pid, void *arg),
	       void *arg);
