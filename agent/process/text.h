/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the text files of /proc through a cursor: lines, numbers, single characters. */
#pragma once

#include "lib/cursor.h"

/* The next line without its newline; false at the end. The last line needs no newline. */
static inline bool text_line(struct cursor *c, struct cursor *ret_line)
{
	size_t left = cursor_left(c);
	const uint8_t *start, *nl;

	if (left == 0)
		return false;
	start = c->data + c->pos;
	nl = memchr(start, '\n', left);
	*ret_line = cursor_sub(c, nl ? (size_t)(nl - start) : left);
	if (nl)
		cursor_skip(c, 1);
	return true;
}

/* The byte at INDEX of the whole text, 0 outside of it. */
static inline char text_at(const struct cursor *c, size_t index)
{
	return index < c->size ? (char)c->data[index] : 0;
}

static inline int text_hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

/* A number in BASE (10 or 16, lower case) of at least one digit; false when it does not fit. */
static inline bool text_number(struct cursor *c, unsigned int base, uint64_t *ret)
{
	size_t start = c->pos;
	uint64_t v = 0;
	int digit;

	while (cursor_left(c) > 0) {
		digit = text_hex_digit(text_at(c, c->pos));
		if (digit < 0 || (unsigned int)digit >= base)
			break;
		if (__builtin_mul_overflow(v, (uint64_t)base, &v) ||
		    __builtin_add_overflow(v, (uint64_t)digit, &v))
			return false;
		c->pos++;
	}
	if (c->pos == start)
		return false;
	*ret = v;
	return true;
}

/* Takes WANT; false, and nothing taken, when something else follows. */
static inline bool text_char(struct cursor *c, char want)
{
	if (cursor_left(c) == 0 || text_at(c, c->pos) != want)
		return false;
	c->pos++;
	return true;
}

static inline void text_skip_blanks(struct cursor *c)
{
	while (text_char(c, ' ') || text_char(c, '\t'))
		;
}

/* Takes PREFIX when the rest of the text begins with it. */
static inline bool text_prefix(struct cursor *c, const char *prefix)
{
	size_t len = strlen(prefix);

	if (cursor_left(c) < len || memcmp(c->data + c->pos, prefix, len) != 0)
		return false;
	c->pos += len;
	return true;
}
