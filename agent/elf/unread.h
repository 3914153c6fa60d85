/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which bytes of an image the agent never reads: debug information, but for .debug_frame. A
 * content's hash (content.h) and the copy of a remote file leave them out.
 */
#pragma once

#include "agent/elf/image.h"

enum { UNREAD_BLOCK = 64 << 10 }; /* at least a page of any kernel */

struct file_range { /* [START, END) */
	uint64_t start, end;
};

/*
 * For each section of IMAGE, whether it is never read. The caller frees the array; NULL when out of
 * memory.
 */
bool *image_unread_sections(const struct image *image) _must_check_;
/*
 * The ranges of IMAGE's file that are never read, in order, made of whole blocks of UNREAD_BLOCK
 * bytes. The first and the last UNREAD_BLOCK bytes of the file are in none. There is none at all
 * when a section lies outside of the file, or one that is never read overlaps anything else. The
 * caller frees *RET. -ENOMEM.
 */
int image_unread_ranges(const struct image *image, struct file_range **ret,
			size_t *ret_n) _must_check_;
