/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One memory budget for everything that grows with the load: unwind tables and mappings in the
 * kernel, stacks, names, images and symbols in user space. The slabs get what is left below the
 * soft limit after all other memory, so a full slab evicts its own coldest tables first. When the
 * other memory itself reaches the soft limit, the caches are asked to shrink.
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

/* New stacks lose their frames before the budget is used up, because it is checked once a
 * second. */
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
