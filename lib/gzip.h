/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole messages as gzip (RFC 1952), by libdeflate: at level 1 it takes a third of the time of
 * zlib's level 4, and a profile becomes 3 % larger; at level 4, half the time and 3 % smaller.
 */
#pragma once

#include "lib/base.h"

enum { GZIP_FAST = 1 /* for data sent once */, GZIP_SMALL = 4 /* for data that is stored */ };

/* The largest compressed size of LEN bytes. */
size_t gzip_bound(size_t len);
/* LEVEL: of libdeflate, 1 to 12. OUT: CAP bytes, at least gzip_bound(). -ENOMEM. Any thread. */
int gzip_compress(int level, const void *data, size_t len, void *out, size_t cap,
		  size_t *ret_len) _must_check_;
/*
 * Decompresses one message of at most MAX bytes into *RET, which the caller frees. -EBADMSG: not
 * gzip, or damaged; -E2BIG; -ENOMEM. Any thread.
 */
int gzip_expand(const void *data, size_t len, size_t max, uint8_t **ret,
		size_t *ret_len) _must_check_;
