/* SPDX-License-Identifier: Apache-2.0 */
/* C++ (Itanium ABI) and Rust (legacy and v0) names for people, by libiberty. */
#pragma once

#include "lib/base.h"

enum { DEMANGLE_MAX = 4096 }; /* bytes of a name, in and out; longer ones stay mangled or are cut */

/* *ret: NULL when NAME is not mangled, else allocated. *ret_rust: NAME is Rust's. */
int demangle(const char *name, char **ret, bool *ret_rust) _must_check_;
