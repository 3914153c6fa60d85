/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the nth allocation of the code under test fail. Link the test with
 *   -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc
 * and add failalloc.c to its sources.
 */
#pragma once

#include "lib/base.h"

/* From now on allocation number N (0 is the next one) fails, and every one after it. */
void failalloc_at(long n);
/* No more failures; returns whether one happened since failalloc_at(). */
bool failalloc_stop(void);
