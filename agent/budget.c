/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One budget for what follows need: unwind tables and mappings in the kernel, stacks, names, images
 * and symbols in user space. The slabs get what the rest leaves below the limit of soft pressure,
 * so a slab that is full evicts its own coldest tables first. When the rest grows into that limit,
 * caches are asked to shrink.
 */
#include "agent/budget.h"

#include "lib/base.h"

#define MIB	   (1ULL << 20)
#define BUDGET_MIN (128 * MIB)
#define BUDGET_MAX (1024 * MIB)
#define SLABS_MIN  (4 * MIB)

uint64_t budget_default(uint64_t machine_bytes)
{
	return MIN(MAX(machine_bytes / 64, BUDGET_MIN), BUDGET_MAX);
}

/* Caches shrink from 7/8 of the budget on: the last eighth is for one window's new data. */
static uint64_t soft_limit(uint64_t budget)
{
	return budget - budget / 8;
}

/* Stacks without frames before it is used up: it is looked at once a second. */
static uint64_t hard_limit(uint64_t budget)
{
	return budget - budget / 32;
}

enum memory_pressure budget_pressure(uint64_t budget, uint64_t used)
{
	if (used > hard_limit(budget))
		return PRESSURE_HARD;
	return used > soft_limit(budget) ? PRESSURE_SOFT : PRESSURE_NONE;
}

uint64_t budget_for_slabs(uint64_t budget, uint64_t other)
{
	uint64_t limit = soft_limit(budget);

	return other < limit ? MAX(limit - other, SLABS_MIN) : SLABS_MIN;
}
