/* SPDX-License-Identifier: Apache-2.0 */
/* The pieces that a compiler has split a function of a stripped file into. Any thread. */
#pragma once

#include "agent/runtime/runtime.h"

/*
 * Finds the pieces of the function [START, END) that lie outside of it, at most MAX. Returns how
 * many.
 */
size_t runtime_find_pieces(const struct image *image, uint64_t start, uint64_t end,
			   struct runtime_range *pieces, size_t max);
