/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct buf: a growing byte buffer with a hard cap given at construction. Once an append fails
 * (-ENOMEM, -E2BIG) the buffer keeps that error, later appends do nothing, and buf_error() tells;
 * so a writer may append many times and check once. The data is always followed by a NUL byte.
 */
#pragma once

#include "lib/base.h"

struct buf {
	char *data; /* NULL while empty */
	size_t len, cap, max;
	int error; /* first failure, negative errno */
};

void buf_init(struct buf *b, size_t max);
void buf_done(struct buf *b);
void buf_reset(struct buf *b); /* empties, keeps memory, clears the error */
int buf_append(struct buf *b, const void *data, size_t len);
int buf_puts(struct buf *b, const char *s);
int buf_printf(struct buf *b, const char *format, ...) _printf_(2, 3);
/* Room for LEN bytes at the end, which the caller fills; NULL on failure. */
void *buf_extend(struct buf *b, size_t len);
char *buf_take(struct buf *b); /* the caller frees; NULL when empty or failed */

static inline int buf_error(const struct buf *b)
{
	return b->error;
}
