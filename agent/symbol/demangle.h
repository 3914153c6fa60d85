/* SPDX-License-Identifier: Apache-2.0 */
/*
 * C++ (Itanium ABI) and Rust (legacy and v0) names for people, by libiberty.
 *
 * What compilers and linkers append is taken off, so that all pieces of one source function have
 * one name: symbol versions ("@@GLIBC_2.34"; "@plt" stays), and ".cold", ".part.0", ".isra.0",
 * ".constprop.0", ".lto_priv.0", ".llvm.123" and the like. C++ names keep their parameter lists
 * (else overloads would be one), Rust names lose their hashes.
 */
#pragma once

#include "lib/base.h"

enum { DEMANGLE_MAX = 4096 }; /* bytes of a name, in and out; longer ones stay mangled or are cut */

/*
 * *ret: the name for people, allocated; NULL when that is NAME itself. *ret_rust: NAME is a mangled
 * Rust name. 0 or -ENOMEM.
 */
int demangle(const char *name, char **ret, bool *ret_rust) _must_check_;
