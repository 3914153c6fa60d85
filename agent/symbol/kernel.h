/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct kernel_symbols: kallsyms kept fresh. The file is read again when an address is not covered
 * (a module or a BPF program came) and every ten minutes when BPF programs or modules are met
 * (their memory is used again), at most once between two trims. The wait doubles each time the new
 * table did not cover the address either. One thread at a time.
 */
#pragma once

#include "agent/symbol/kallsyms.h"

struct kernel_symbols;
int kernel_symbols_new(const char *path, struct kernel_symbols **ret) _must_check_;
struct kernel_symbols *kernel_symbols_free(struct kernel_symbols *k);
DEFINE_CLEANUP(struct kernel_symbols *, kernel_symbols_free)

/* NOW_MS: a monotonic clock. What RET points to lives until the trim. */
bool kernel_symbols_find(struct kernel_symbols *k, uint64_t address, uint64_t now_ms,
			 struct kallsyms_symbol *ret);
void kernel_symbols_trim(struct kernel_symbols *k);
size_t kernel_symbols_bytes(const struct kernel_symbols *k);
