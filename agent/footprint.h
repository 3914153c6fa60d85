/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the process itself takes: descriptors, and memory that only the start needed. Any thread.
 */
#pragma once

#include <stdint.h>

/* Raises the limit of open files as far as allowed: every profiled file stays open. */
void footprint_raise_files(void);
/*
 * Gives back the pages of code and constants that linking and initialising the libraries read, and
 * what the allocator holds in reserve. What is needed after all comes back with the next access.
 */
void footprint_trim(void);
/* Gives back memory that was freed a while ago: threads that do not allocate any more would keep it
 * otherwise. */
void footprint_decay(void);
/* Its anonymous memory in bytes, without mapped BPF arrays; 0 when it cannot be told. This and the
 * next one: one thread at a time. */
uint64_t footprint_anonymous(void);
/* The process's resident memory in bytes; 0 when it cannot be told. */
uint64_t footprint_resident(void);
