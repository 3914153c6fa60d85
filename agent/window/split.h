/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct split: which batches a window becomes. Each receiver (a bit of a route) gets one batch
 * with all that is its own; receivers that get the same share one. Pure; the naming worker's.
 */
#pragma once

#include "agent/window/window.h"

enum { SPLIT_PARTS_MAX = 63 };

struct split {
	/* Bits of those who get the part; any one of them tells its counts from the others'. */
	uint64_t parts[SPLIT_PARTS_MAX];
	size_t n;
	bool whole; /* one part, and everything is in it */
};

/*
 * Who is in the window's default route gets a part in any case, which may be empty.
 */
void window_split(const struct window *w, struct split *ret);
/* What naming_build() is to be asked for part I. */
uint64_t split_whose(const struct split *s, size_t i);
