/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the lines of bytecodes. Behind a method's bytecodes there is a table of lines. Most of its
 * entries are one byte: how much the bytecode index grows (5 bits), and how much the line grows (3
 * bits). The others are 0xff and two signed numbers. A 0 ends the table
 * (src/hotspot/share/oops/method.cpp, CompressedLineNumberReadStream::read_pair()). Loop thread;
 * keeps nothing.
 */
#include "agent/runtime/hotspot/hotspot.h"

enum {
	LINES_BYTES_MAX = 1 << 17,
	LINE_PAIR = 0xff,
};

uint32_t hotspot_read_number(struct cursor *c, uint32_t excluded)
{
	uint32_t v = 0;

	for (uint32_t i = 0; i < 5; i++) {
		uint32_t b = cursor_u8(c);

		v += (b - excluded) << (6 * i);
		if (b < 192)
			break;
	}
	return v;
}

/* Reads a number that has its sign in the lowest bit. */
static int32_t read_signed(struct cursor *c, uint32_t excluded)
{
	uint32_t v = hotspot_read_number(c, excluded);

	return (int32_t)(v >> 1 ^ (0U - (v & 1)));
}

/* A table and the current entry in it. */
struct line_walk {
	struct cursor c;
	uint32_t excluded;
	uint32_t bci, line;
};

/* Goes to the next entry. False: there is none. */
static bool next_line(struct line_walk *w)
{
	uint32_t b = cursor_left(&w->c) ? cursor_u8(&w->c) : 0;

	if (!b)
		return false;
	if (b == LINE_PAIR) {
		w->bci += (uint32_t)read_signed(&w->c, w->excluded);
		w->line += (uint32_t)read_signed(&w->c, w->excluded);
	} else {
		w->bci += b >> 3;
		w->line += b & 7;
	}
	return !w->c.bad;
}

void hotspot_lines_find(const void *bytes, size_t size, int32_t bci, uint32_t excluded,
			uint32_t *ret, uint32_t *ret_start)
{
	struct line_walk w = {.c = cursor_of(bytes, size), .excluded = excluded};
	uint32_t line = 0, start = 0;
	int32_t best = -1;

	while (next_line(&w)) {
		/* Entries are not sorted by bytecode. */
		if ((int32_t)w.bci <= bci && (int32_t)w.bci >= best) {
			best = (int32_t)w.bci;
			line = w.line;
		}
		if (!w.bci && !start)
			start = w.line;
	}
	*ret_start = start <= INT32_MAX ? start : 0;
	*ret = line <= INT32_MAX ? line : 0;
}

int hotspot_lines_read(const struct hotspot_process *p, const struct target_memory *memory,
		       uint64_t code, struct hotspot_lines *ret)
{
	const struct hotspot_layout *l = &p->layout;
	uint64_t at, end, words;
	struct line_walk w;
	uint16_t flags, size;
	uint32_t n = 0;

	*ret = (struct hotspot_lines){};
	if (l->const_flags < 0 || l->has_lines <= 0 ||
	    hotspot_read(memory, code, l->const_flags, &flags, sizeof(flags)) < 0 ||
	    hotspot_read(memory, code, l->const_code_size, &size, sizeof(size)) < 0 ||
	    hotspot_read(memory, code, l->const_words, &n, sizeof(n)) < 0)
		return -EFAULT;
	words = n;
	at = code + (uint64_t)l->const_size + size;
	end = code + words * 8;
	/*
	 * If there is a table, it is in the rest of the ConstMethod, which ends with other tables.
	 */
	if (!(flags & (uint32_t)l->has_lines) || end <= at || words * 8 > LINES_BYTES_MAX)
		return 0;
	ret->bytes = malloc(end - at);
	if (!ret->bytes)
		return -ENOMEM;
	ret->size = end - at;
	if (target_read(memory, at, ret->bytes, ret->size) < 0) {
		hotspot_lines_done(ret);
		return -EFAULT;
	}
	/* Only the table itself is kept. */
	w = (struct line_walk){.c = cursor_of(ret->bytes, ret->size),
			       .excluded = p->numbers_exclude_zero};
	while (next_line(&w))
		;
	ret->size = w.c.bad ? 0 : w.c.pos;
	return 0;
}

void hotspot_lines_done(struct hotspot_lines *l)
{
	free(l->bytes);
	*l = (struct hotspot_lines){};
}
