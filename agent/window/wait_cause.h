/* SPDX-License-Identifier: Apache-2.0 */
/* What a thread waits for, by the kernel functions that it waits in. Pure. */
#pragma once

#include "bpf/types.h"
#include "lib/base.h"

/* The attribute of samples that has the cause. */
#define WAIT_CAUSE_KEY "off_cpu.cause"

/*
 * The cause that FUNCTION, a kernel function in which a thread is blocked, stands for; NULL: none.
 * The caller goes through the stack from the leaf on and takes the first cause.
 */
const char *wait_cause_of_function(const char *function);
/* The cause that DETAIL (enum kiln_wait) stands for; NULL: the functions tell it. */
const char *wait_cause_of_detail(uint8_t detail);
