/* SPDX-License-Identifier: Apache-2.0 */
/* What a thread waits for, by the kernel functions that it waits in. Pure. */
#pragma once

#include "bpf/types.h"
#include "lib/base.h"

/* The attribute of samples that has the cause. */
#define WAIT_CAUSE_KEY "off_cpu.cause"

/*
 * FUNCTION, a kernel function that a thread is blocked in: the cause, when it tells one; else NULL.
 * Asked from the leaf on, the first that tells one is right.
 */
const char *wait_cause_of_function(const char *function);
/* What DETAIL, enum kiln_wait, says by itself; NULL: the functions have to be asked. */
const char *wait_cause_of_detail(uint8_t detail);
