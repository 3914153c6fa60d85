/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Remote files: those on filesystems that get their bytes from a server or another process, and
 * wait for ever when it does not answer. For threads that may hang.
 */
#pragma once

#include "agent/elf/unread.h"

enum { REMOTE_FILE_END = UNREAD_BLOCK };

/* Is FD a file of such a filesystem? By the type that statfs(2) tells. */
bool remote_file_is(int fd);
/*
 * A copy of a file in memory (memfd_create(2)), as large as the file: reading it does not hang.
 * What is not copied is 0 and takes no memory.
 */
struct remote_copy {
	int fd;
	size_t size;
	struct file_range headers[5]; /* copied by remote_file_copy_headers(); they may overlap */
	size_t n_headers;
	bool has_sections; /* all section headers and their names were copied as headers */
};

/*
 * Copies the first and the last REMOTE_FILE_END bytes of FD, which has SIZE bytes, and its ELF
 * program and section headers and their names if those are usable. The caller closes RET->fd. -EIO
 * when FD has fewer bytes, -ESTALE when they changed meanwhile.
 */
int remote_file_copy_headers(int fd, size_t size, struct remote_copy *ret) _must_check_;
/*
 * Copies all else of FD but HOLES, which are in order. The headers are not read again, because the
 * server may give others: what they say about HOLES holds for the copy. -EIO when FD has fewer
 * bytes.
 */
int remote_file_copy_rest(int fd, const struct remote_copy *copy, const struct file_range *holes,
			  size_t n_holes) _must_check_;
