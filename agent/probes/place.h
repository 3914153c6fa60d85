/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where in its file a function begins, for a uprobe. By its name as the linker has it, in .dynsym,
 * .symtab and .gnu_debugdata. Any thread.
 */
#pragma once

#include "lib/base.h"
#include "lib/error.h"

struct image;

/*
 * The offset in the file of the first instruction of the function NAME. -ENOENT: there is none of
 * that name; -ENOTUNIQ: there are several; -ENOTSUP: there is, but it is no place for a probe;
 * each with a message that says what to do.
 */
int probe_place_find(const struct image *image, const char *name, uint64_t *ret,
		     struct error *err) _must_check_;
/*
 * Of the file at PATH, as the host sees it (its first process does), which is opened as RET_FD.
 * RETURNS: for a uretprobe, which Go does not bear.
 */
int probe_place_open(const char *path, const char *name, bool returns, int *ret_fd,
		     uint64_t *ret_offset, struct error *err) _must_check_;
