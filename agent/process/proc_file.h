/* SPDX-License-Identifier: Apache-2.0 */
/* Whole small files of /proc in one buffer. Any thread. */
#pragma once

#include "lib/buf.h"

/*
 * Appends the file PATH below DIRFD to OUT (its max is the cap). -ESRCH when the process that the
 * file is about is gone; -E2BIG when the file is larger than the cap, OUT then holds its beginning.
 */
int proc_file_read(int dirfd, const char *path, struct buf *out) _must_check_;
/* The target of a link below DIRFD, allocated; -ESRCH as above, -ENOENT when there is no such link.
 */
int proc_link_read(int dirfd, const char *path, char **ret) _must_check_;
