/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is memory of a process resident, so that reading it (process_vm_readv(2)) waits for no
 * filesystem? A page that is mapped from a file and not resident would be read from the file.
 * Source: Linux, Documentation/admin-guide/mm/pagemap.rst.
 */
#pragma once

#include "lib/base.h"

/* Are all pages of the LEN bytes at ADDRESS in memory or in swap? False if that is not known. */
bool memory_is_resident(int proc_dirfd, uint32_t tgid, uint64_t address, size_t len);
/* The same, of the process whose pagemap is open as FD: for several questions about one process. */
bool pagemap_is_resident(int fd, uint64_t address, size_t len);
/* A file descriptor, or -errno. */
int pagemap_open(int proc_dirfd, uint32_t tgid) _must_check_;
