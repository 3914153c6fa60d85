/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files on filesystems that have to ask somebody else for their bytes (a server, a process), and
 * wait for ever when that one does not answer. For threads that may hang.
 */
#pragma once

#include "lib/base.h"

/* Is FD a file of such a filesystem? By the type that statfs(2) tells. */
bool remote_file_is(int fd);
/*
 * A copy in memory (memfd_create(2)) of the first SIZE bytes of FD: a file like any other, whose
 * bytes are there. -EIO when FD has fewer bytes.
 */
int remote_file_copy(int fd, size_t size, int *ret_fd) _must_check_;
