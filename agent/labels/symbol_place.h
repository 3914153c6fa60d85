/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a thread-local variable with a name in .dynsym is, by the relocations that the loader
 * applies for it (Drepper, "ELF Handling For Thread-Local Storage"; ELF for the Arm 64-bit
 * Architecture). Any thread.
 */
#pragma once

#include "agent/runtime/thread_variable.h"

/* -ENOENT: the file defines no such variable; -ENOTSUP: it does, but its place cannot be
 * determined. */
int symbol_place_find(const struct image *image, const char *name,
		      struct thread_variable *ret) _must_check_;
/* Reads the 4-byte variable NAME, a symbol of .dynsym, as the file initializes it. -ENOENT: there
 * is no such variable. */
int symbol_value(const struct image *image, const char *name, uint32_t *ret) _must_check_;
