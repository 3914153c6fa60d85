/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The outer frames that two stacks of one process have in common: most of a deep stack is what it
 * was in the sample before.
 */
#pragma once

#include "bpf/types.h"
#include "lib/base.h"

/*
 * From word AT on, the stack A (N_A user words, leaf first) has the same frames as B after its
 * first FRAMES frames. AT is N_A when they share none.
 */
struct outer_frames {
	uint32_t at, frames;
};
struct outer_frames outer_frames_shared(const uint64_t *a, uint32_t n_a, const uint64_t *b,
					uint32_t n_b);
