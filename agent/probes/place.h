/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds where in its file a function begins, for a uprobe, by its linker name in .dynsym, .symtab
 * and .gnu_debugdata. Any thread.
 */
#pragma once

#include "lib/base.h"
#include "lib/error.h"

struct image;

/*
 * The file offset of the first instruction of the function NAME. -ENOENT: no function has this
 * name; -ENOTUNIQ: several have it; -ENOTSUP: it cannot be probed; each with a message that says
 * what to do.
 */
int probe_place_find(const struct image *image, const char *name, uint64_t *ret,
		     struct error *err) _must_check_;
/*
 * The same for the file at PATH, as the host's first process sees it, which is opened as *RET_FD.
 * RETURNS: the place is for a uretprobe, which Go programs do not survive.
 */
int probe_place_open(const char *path, const char *name, bool returns, int *ret_fd,
		     uint64_t *ret_offset, struct error *err) _must_check_;
