// SPDX-License-Identifier: Apache-2.0
/*
 * Finds the line of an instruction. CPython has had three tables for that:
 *   3.6 - 3.9   co_lnotab: pairs (bytes of code, signed lines), each a step from the one before
 *               (CPython v3.9.18, Objects/lnotab_notes.txt).
 *   3.10        co_linetable: the same pairs, but each is a range of code and its line; -128: the
 *               range has no line (CPython v3.10.13, Objects/lnotab_notes.txt).
 *   3.11 on     co_linetable: entries of one byte (kind, length) and varints behind it
 *               (CPython v3.11.7, Objects/locations.md).
 * All bytes are foreign: only sums are kept, and a table that ends early ends the search. Any
 * thread.
 */
#include "agent/runtime/python/python.h"

enum {
	NO_LINE = -128,
	CODE_UNIT = 2, /* bytes of an instruction */
};

/*
 * Kinds of entries of the location table. All of these but LOCATION_NONE tell their line as the
 * difference to the line of the entry before.
 */
enum {
	LOCATION_ONE_LINE_0 = 10, /* 10 to 12: 0 to 2 lines further, 2 bytes of columns */
	LOCATION_ONE_LINE_2 = 12,
	LOCATION_NO_COLUMNS = 13, /* a varint */
	LOCATION_LONG = 14,	  /* a varint, and three of columns */
	LOCATION_NONE = 15,
};

static uint32_t valid_line(int64_t line)
{
	return line > 0 && line <= INT32_MAX ? (uint32_t)line : 0;
}

static uint32_t line_by_steps(struct cursor *c, uint32_t first, int32_t lasti)
{
	int64_t line = first, at = 0;

	while (cursor_left(c) >= 2) {
		at += cursor_u8(c);
		if (at > lasti)
			break;
		line += cursor_i8(c);
	}
	return valid_line(line);
}

static uint32_t line_by_ranges(struct cursor *c, uint32_t first, int32_t lasti)
{
	int64_t line = first, at = 0, byte = (int64_t)lasti * CODE_UNIT;

	while (cursor_left(c) >= 2) {
		unsigned int length = cursor_u8(c);
		int lines = cursor_i8(c);

		if (lines != NO_LINE)
			line += lines;
		at += length;
		if (byte < at)
			return lines == NO_LINE ? 0 : valid_line(line);
	}
	return 0;
}

/* Groups of six bits, the lowest first; the seventh bit says that more follow. */
static uint32_t read_varint(struct cursor *c)
{
	uint32_t v = 0;
	unsigned int shift = 0;
	uint8_t b;

	do {
		b = cursor_u8(c);
		if (shift < 32)
			v |= (uint32_t)(b & 63) << shift;
		shift += 6;
	} while ((b & 64) && !c->bad);
	return v;
}

static int64_t read_signed(struct cursor *c)
{
	uint32_t v = read_varint(c);

	return v & 1 ? -(int64_t)(v >> 1) : (int64_t)(v >> 1);
}

static uint32_t line_by_locations(struct cursor *c, uint32_t first, int32_t lasti)
{
	int64_t line = first, at = 0;

	while (cursor_left(c)) {
		uint8_t b = cursor_u8(c);
		unsigned int kind = b >> 3 & 15;

		if (!(b & 128))
			return 0;
		if (kind == LOCATION_NO_COLUMNS) {
			line += read_signed(c);
		} else if (kind == LOCATION_LONG) {
			line += read_signed(c);
			for (int i = 0; i < 3; i++)
				(void)read_varint(c);
		} else if (kind >= LOCATION_ONE_LINE_0 && kind <= LOCATION_ONE_LINE_2) {
			line += kind - LOCATION_ONE_LINE_0;
			cursor_skip(c, 2);
		} else if (kind < LOCATION_ONE_LINE_0) {
			cursor_skip(c, 1);
		}
		at += ((b & 7) + 1) * CODE_UNIT;
		if (c->bad)
			return 0;
		if (lasti < at)
			return kind == LOCATION_NONE ? 0 : valid_line(line);
	}
	return 0;
}

uint32_t python_line(unsigned int minor, struct cursor c, uint32_t first, int32_t lasti)
{
	/* LASTI is negative in a frame that has not run yet: it is at the function's first line. */
	if (lasti < 0)
		return valid_line(first);
	if (minor < 10)
		return line_by_steps(&c, first, lasti);
	return minor == 10 ? line_by_ranges(&c, first, lasti) : line_by_locations(&c, first, lasti);
}
