/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the places in source that a place in optimized code stands for. */
#pragma once

#include "agent/runtime/v8/code.h"
#include "agent/runtime/v8/deopt.h"

/*
 * Finds the places at OFFSET of the optimized code CODE of the function SHARED, innermost first.
 * Returns how many, 1 to V8_INLINE_MAX. RETURNS: a call ends at OFFSET, and its return address is
 * OFFSET + 1.
 */
size_t v8_optimized_places(const struct v8_heap *h, const struct v8_code *code,
			   const struct v8_opcodes *opcodes, uint32_t offset, bool returns,
			   uint64_t shared, struct v8_place ret[V8_INLINE_MAX]);
