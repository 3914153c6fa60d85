/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct image_content: a hash of an image's bytes, so that what is derived from them (unwind
 * tables, symbol tables, runtimes' layouts) is shared by all files with the same bytes. Build id,
 * size, head and tail do not identify a file: the owner of a container can forge them.
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
 * headers, section names, every loaded segment, every section but those of unread.h. Any thread;
 * may hang with the file's filesystem. -EIO: the file is shorter now; -EFBIG; -ENOMEM; or why it
 * cannot be read.
 */
int image_content_read(const struct image *image, struct image_content *ret) _must_check_;

/* The content of IMAGE; NULL when it is not known. Any thread. */
const struct image_content *image_content(const struct image *image);
/* Sets the content of IMAGE. Only the first call has an effect. Any thread. */
void image_content_set(struct image *image, const struct image_content *content);
/*
 * Gives IMAGE a content that no other image has, unless its content is known already: what is
 * derived from IMAGE is shared with no other image, and its file need not be hashed.
 * image_content_check() then compares the file's size and mtime. Any thread; may hang with the
 * file's filesystem.
 */
void image_keep_unshared(struct image *image);
/* The file was rewritten: its content is not known any more, for good. Any thread. */
void image_content_revoke(struct image *image);
/*
 * Gets the content of IMAGE, after reading and setting it if it is not known. -ESTALE: it was
 * revoked.
 */
int image_identify(struct image *image, struct image_content *ret) _must_check_;
/*
 * As image_identify(), by way of image_copy(): *RET_COPY is IMAGE with the bytes that were hashed,
 * so that they are read once and need no image_content_check(). NULL when the content was known
 * already, or the file is larger than IMAGE_COPY_MAX.
 */
int image_identify_copy(struct image *image, struct image_content *ret,
			struct image **ret_copy) _must_check_;
/*
 * Are size, mtime and ctime of IMAGE's file the same in NOW as before its content was read? False
 * when the times of then are not known, or when the file had been written so shortly before that a
 * later write may not have changed them. A write through a mapping may not change them either.
 */
bool image_is_untouched(const struct image *image, const struct stat *now);

/*
 * To be called after PARSED, which is IMAGE or a copy of it, was parsed. 0: the bytes of PARSED
 * match IMAGE's content, or that was never known. -ESTALE: the file has changed, or the content was
 * revoked, so the result may not be shared. Other errors as image_content_read().
 */
int image_content_check(const struct image *image, const struct image *parsed) _must_check_;

/*
 * A copy of IMAGE with its bytes in memory, read now: the bytes that are parsed are those that are
 * hashed, even if the file is written to meanwhile. -EFBIG: the file is larger than IMAGE_COPY_MAX,
 * or only its headers were kept (image_open_headers()).
 */
int image_copy(const struct image *image, struct image **ret, struct error *err) _must_check_;
