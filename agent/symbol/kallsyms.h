/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct kallsyms: functions of the kernel, its modules and BPF programs, from /proc/kallsyms.
 * 12 bytes a function and its name; data symbols and the padding symbols before functions (__pfx_,
 * __cfi_) are left out. Of several names at one address: global before weak before local, fewer
 * leading underscores, shorter, byte order. Immutable once read; any number of threads may look up.
 *
 * Line format: kernel/kallsyms.c, s_show(): "%px %c %s\n" or "%px %c %s\t[%s]\n". BPF programs are
 * "bpf_prog_TAG_NAME" of module "bpf" (kernel/bpf/core.c).
 */
#pragma once

#include "lib/base.h"
#include "lib/error.h"

enum {
	KALLSYMS_MAX = 1 << 20,
	KALLSYMS_BLOB_MAX = 32 << 20,
	KALLSYMS_MODULES_MAX = 4096,
	/* A function without a successor nearby covers at most this. */
	KALLSYMS_SPAN_MAX = 64 << 10,
};

struct kallsyms;

struct kallsyms_symbol {
	uint64_t start, end;
	const char *name;
	const char *module; /* "" for the kernel itself, "bpf" for programs */
};

/*
 * FD is read to its end, not closed. When the kernel hides addresses from us (kptr_restrict) the
 * table is empty and kallsyms_restricted() is true.
 */
int kallsyms_read(int fd, struct kallsyms **ret, struct error *err) _must_check_;
struct kallsyms *kallsyms_free(struct kallsyms *k);
DEFINE_CLEANUP(struct kallsyms *, kallsyms_free)

bool kallsyms_find(const struct kallsyms *k, uint64_t address, struct kallsyms_symbol *ret);
bool kallsyms_restricted(const struct kallsyms *k);
size_t kallsyms_count(const struct kallsyms *k);
size_t kallsyms_bytes(const struct kallsyms *k);
