/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Remote files: those on filesystems that get their bytes from a server or another process, and
 * wait for ever when it does not answer. For threads that may hang.
 */
#pragma once

#include "lib/base.h"

enum { REMOTE_FILE_END = 64 << 10 };

/* Is FD a file of such a filesystem? By the type that statfs(2) tells. */
bool remote_file_is(int fd);
/*
 * A copy in memory (memfd_create(2)) of the first SIZE bytes of FD: reading that file does not
 * hang. -EIO when FD has fewer bytes.
 */
int remote_file_copy(int fd, size_t size, int *ret_fd) _must_check_;
/*
 * As remote_file_copy(), but only the first and the last REMOTE_FILE_END bytes are copied. The
 * bytes between them are 0 and take no memory.
 */
int remote_file_copy_ends(int fd, size_t size, int *ret_fd) _must_check_;
