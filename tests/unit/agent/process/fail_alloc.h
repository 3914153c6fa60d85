/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the Nth allocation from now on fail, once (linked with --wrap; see CMakeLists.txt). */
#pragma once

#include <stdbool.h>

/* 0: none. */
void fail_alloc_at(unsigned int n);
/* Did it happen? */
bool fail_alloc_done(void);
