// SPDX-License-Identifier: Apache-2.0
/*
 * The line of an instruction. An instruction sequence has an array of {line, events}, one entry for
 * each stretch of instructions. A succinct bit vector tells where the stretches begin: seven bits
 * of rank for each of the first 54 positions, then blocks of 512 bits with their ranks. In 2.5 each
 * entry has the position instead. The array and the bit vector are copied into one buffer, the
 * array first, so that frames of other instructions need no read. Loop thread.
 *
 * Sources: iseq.c of 3.3.8 (succ_index_lookup(), get_insn_info_succinct_bitvector()), iseq.h of
 * 2.7.4, 3.1.2 and 3.3.8.
 */
#include "agent/runtime/ruby/ruby.h"

enum {
	STRETCHES_MAX = 1 << 16,
	INSTRUCTIONS_MAX = 1 << 20, /* words */
	IMMEDIATE = 54,
	IMMEDIATE_PER_WORD = 9,
	IMMEDIATE_BITS = 7,
	IMMEDIATE_BYTES = 48,
	BLOCK_BITS = 512,
	BLOCK_BYTES = 80, /* rank, ranks of its words, the words */
	RANK_BITS = 9,
};

int ruby_read_lines(const struct ruby_look *look, uint64_t body, uint32_t instructions,
		    struct ruby_lines *ret)
{
	const struct ruby_layout *l = look->process->layout;
	uint64_t lines = ruby_read_word(look, body + l->lines), index = 0;
	_cleanup_free_ uint8_t *bytes = NULL;
	size_t size, index_size = 0;
	uint32_t n;
	int r;

	if (!lines || target_read(look->memory, body + l->lines_size, &n, sizeof(n)) < 0 || !n ||
	    n > STRETCHES_MAX || instructions > INSTRUCTIONS_MAX)
		return -EFAULT;
	size = (size_t)n * l->line_size;
	if (l->lines_index && n > 1) {
		index = ruby_read_word(look, body + l->lines_index);
		index_size = IMMEDIATE_BYTES;
		if (instructions > IMMEDIATE)
			index_size +=
			    (instructions - IMMEDIATE + BLOCK_BITS - 1) / BLOCK_BITS * BLOCK_BYTES;
	}
	bytes = malloc(size + index_size);
	if (!bytes)
		return -ENOMEM;
	r = target_read(look->memory, lines, bytes, size);
	if (r == 0 && index_size)
		r = target_read(look->memory, index, bytes + size, index_size);
	if (r < 0)
		return r;
	ret->bytes = TAKE_PTR(bytes);
	ret->size = size + index_size;
	ret->n = n;
	return 0;
}

static uint64_t word_at(struct cursor *c, size_t at)
{
	cursor_seek(c, at);
	return cursor_u64(c);
}

/* The number, from 1 on, of the stretch that has instruction INDEX, by the bit vector at AT. */
static uint64_t stretch_of(struct cursor *c, size_t at, uint32_t index)
{
	uint64_t word, below;
	uint32_t bit, i;

	if (index < IMMEDIATE) {
		word = word_at(c, at + index / IMMEDIATE_PER_WORD * 8);
		return word >> index % IMMEDIATE_PER_WORD * IMMEDIATE_BITS & 127;
	}
	index -= IMMEDIATE;
	at += IMMEDIATE_BYTES + index / BLOCK_BITS * (size_t)BLOCK_BYTES;
	bit = index % BLOCK_BITS;
	i = bit / 64;
	below = i ? word_at(c, at + 8) >> (i - 1) * RANK_BITS & 511 : 0;
	word = word_at(c, at + 16 + (size_t)i * 8) << (63 - bit % 64);
	return (uint32_t)word_at(c, at) + below + (uint64_t)__builtin_popcountll(word);
}

static uint32_t int_at(struct cursor *c, size_t at)
{
	cursor_seek(c, at);
	return cursor_u32(c);
}

/* 2.5: the number, from 1 on, of the last of N entries whose position is not beyond INDEX. */
static uint64_t search(const struct ruby_layout *l, struct cursor *c, uint32_t n, uint32_t index)
{
	uint32_t lo = 0, hi = n;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (int_at(c, (size_t)mid * l->line_size) <= index)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

uint32_t ruby_line(const struct ruby_layout *l, const void *bytes, size_t size, uint32_t n,
		   uint32_t index)
{
	struct cursor c = cursor_of(bytes, size);
	uint64_t stretch = 1;
	uint32_t line;

	if (!l->lines_index)
		stretch = search(l, &c, n, index);
	else if (n > 1)
		stretch = stretch_of(&c, (size_t)n * l->line_size, index);
	if (stretch > n || c.bad)
		return 0;
	/* Instructions that the compiler has inserted have no line (2.7: nop at a block's end):
	 * take that of the stretch before. */
	for (; stretch; stretch--) {
		line = int_at(&c, (size_t)(stretch - 1) * l->line_size + l->line_at);
		if (c.bad)
			return 0;
		if (line)
			return line <= INT32_MAX ? line : 0;
	}
	return 0;
}
