/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the file behind a mapping of another process. No state; any thread. */
#pragma once

#include "agent/process/maps.h"

/*
 * Opens the regular file that MAP (kind MAPPING_FILE) of PID maps, for reading:
 *   1. /proc/PID/map_files/START-END: right for deleted files and any mount namespace
 *   2. its path below /proc/PID/root: other mount namespaces
 *   3. its path below our own root, then that of process 1: processes in a chroot of theirs
 * What 2 and 3 find must be the mapped file by inode and device (on overlayfs and btrfs, where maps
 * and stat show different devices, by inode alone).
 * *RET_AMBIGUOUS: MAP's device and inode do not identify the file (on btrfs several files may have
 * them; or it was found by path, and by inode alone). Use fstat() of *RET instead. -ESRCH when the
 * process is gone, -ESTALE when only this mapping of it is; -ENOEXEC when it is no regular file;
 * else why it cannot be opened.
 */
int map_file_open(int proc_dirfd, uint32_t pid, const struct map_entry *map, int *ret,
		  bool *ret_ambiguous) _must_check_;
