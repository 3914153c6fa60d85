/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a place in optimized code to places in source.
 */
#pragma once

#include "agent/runtime/v8/code.h"
#include "agent/runtime/v8/deopt.h"

/*
 * The places at OFFSET of optimized CODE of the function SHARED, innermost first, at least one and
 * at most V8_INLINE_MAX. RETURNS: a call ends there, and is returned to at OFFSET + 1.
 */
size_t v8_optimized_places(const struct v8_heap *h, const struct v8_code *code,
			   const struct v8_opcodes *opcodes, uint32_t offset, bool returns,
			   uint64_t shared, struct v8_place ret[V8_INLINE_MAX]);
