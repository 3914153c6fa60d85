/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the code under test logs goes into memory instead of standard error. Link the test with
 *   -Wl,--wrap=log_line
 * and add log_capture.c to its sources.
 */
#pragma once

#include "lib/base.h"

/* Forgets all lines. */
void log_capture_clear(void);
/* How many lines contain WORDS. */
size_t log_capture_count(const char *words);
