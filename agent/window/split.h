/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct split: which batches are made of a window. Each receiver (a bit of a route) gets one batch
 * with all its samples; receivers that get the same samples share one. Stateless; called by the
 * naming worker.
 */
#pragma once

#include "agent/window/window.h"

enum { SPLIT_PARTS_MAX = 63 };

struct split {
	/* The bits of the receivers of each part; any one of these bits selects the part's
	 * counts. */
	uint64_t parts[SPLIT_PARTS_MAX];
	size_t n;
	bool whole; /* there is one part, which has all counts */
};

/* The receivers of the window's default route always get a part, which may be empty. */
void window_split(const struct window *w, struct split *ret);
/* The WHOSE argument of naming_build() for part I. */
uint64_t split_whose(const struct split *s, size_t i);
