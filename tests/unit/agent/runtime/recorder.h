/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of a live process that keeps which bytes of it were read, for the programs that make
 * recordings. One process, which has to stand still.
 */
#pragma once

#include "agent/runtime/target.h"

/* Reads of PID from now on are noted. */
struct target_memory recorder_begin(pid_t pid);
/* All that was read, to standard output: lines for recorded_memory_parse(). */
void recorder_write(void);
