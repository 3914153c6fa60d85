/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory budget: anonymous memory and BPF maps together. Numbers only; rotation.c measures
 * every second and acts on them.
 */
#pragma once

#include "agent/window/intake.h"

/* The default budget, bytes: 1/64 of the machine's memory, at least 128 MiB, at most 1 GiB. */
uint64_t budget_default(uint64_t machine_bytes);
/* From 7/8 of the budget on caches shrink, from 31/32 on new stacks are counted without frames. */
enum memory_pressure budget_pressure(uint64_t budget, uint64_t used);
/*
 * How many bytes the slabs of the kernel side may take when the rest of the agent uses OTHER bytes:
 * never so many that the slabs alone exceed the soft limit, but always enough for a few tables.
 */
uint64_t budget_for_slabs(uint64_t budget, uint64_t other);
