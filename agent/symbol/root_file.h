/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens files as a process sees them, and none outside of its root: symbolic links, absolute ones
 * too, and ".." are resolved inside of it.
 */
#pragma once

#include "lib/base.h"

/* A descriptor for the directory ROOT ("/proc/PID/root", NULL: our own "/"); negative errno. */
int root_open(const char *root);
/*
 * Opens a regular file for reading (never a FIFO, a device or, with NOFOLLOW, a last component that
 * is a link), without blocking. Returns the descriptor or a negative errno; -EINVAL for other
 * kinds.
 */
int root_open_file(int root_fd, const char *path, bool nofollow);
/* The same for kernels without openat2: links are refused altogether. */
int root_open_file_walk(int root_fd, const char *path);
