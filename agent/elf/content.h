/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct image_content: which bytes an image has, so that what is made of them (unwind tables,
 * symbol tables, runtimes' layouts) can be shared by all files that have the same. Another
 * container's file may have any build id, size, head and tail that its owner likes, so none of
 * those decides.
 */
#pragma once

#include "agent/elf/image.h"

#include <sys/stat.h>

enum {
	IMAGE_CONTENT_BYTES_MAX = 1 << 30, /* of one file; larger ones are shared with nobody */
	IMAGE_COPY_MAX = 4 << 20,	   /* bytes of a file that image_copy() takes */
};

/*
 * Reads IMAGE's file with pread (a copy: from memory) and hashes all that the agent reads of it:
 * headers, section names, every loaded segment, every section but .debug_* (other than
 * .debug_frame), which nothing here reads. Any thread; may hang with the file's filesystem.
 * -EIO: the file is shorter now; -EFBIG; -ENOMEM; or why it cannot be read.
 */
int image_content_read(const struct image *image, struct image_content *ret) _must_check_;

/* What was set; NULL: not known yet. Any thread. */
const struct image_content *image_content(const struct image *image);
/* Only the first call has an effect. Any thread. */
void image_content_set(struct image *image, const struct image_content *content);
/*
 * Gives IMAGE a content that no other image has, unless its content is known already: what is made
 * of it is shared with no other image, and its file need not be hashed. image_content_check() then
 * compares the file's size and mtime. Any thread; may hang with the file's filesystem.
 */
void image_keep_unshared(struct image *image);
/* The file was rewritten: its content is not known any more, for good. Any thread. */
void image_content_revoke(struct image *image);
/* Both in one: reads and sets it, unless it is known. -ESTALE: it was revoked. */
int image_identify(struct image *image, struct image_content *ret) _must_check_;
/*
 * As image_identify(), by way of image_copy(): *RET_COPY is IMAGE with the bytes that were hashed,
 * so that they are read once and need no image_content_check(). NULL when the content was known
 * already, or the file is larger than IMAGE_COPY_MAX.
 */
int image_identify_copy(struct image *image, struct image_content *ret,
			struct image **ret_copy) _must_check_;
/*
 * Did stat() say the same of IMAGE's file before its content was read as it does NOW? False when
 * that is not known, or the file had been written to so shortly before that a later write need not
 * have changed its times. A write through a mapping need not change them either.
 */
bool image_is_untouched(const struct image *image, const struct stat *now);

/*
 * PARSED, which is IMAGE or a copy of it, was parsed: 0 when its bytes are what IMAGE's content
 * says, or that was never known; -ESTALE when the file has changed, so that nothing may be shared;
 * else as image_content_read().
 */
int image_content_check(const struct image *image, const struct image *parsed) _must_check_;

/*
 * IMAGE with its bytes in memory, read now: they are parsed as they were hashed, whoever writes to
 * the file meanwhile. -EFBIG: the file is larger than IMAGE_COPY_MAX.
 */
int image_copy(const struct image *image, struct image **ret, struct error *err) _must_check_;
