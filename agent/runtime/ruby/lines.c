// SPDX-License-Identifier: Apache-2.0
/*
 * The line of an instruction. An instruction sequence has an array of {line, events}, one for each
 * stretch of instructions, and says where the stretches begin by a succinct bit vector: seven bits
 * of rank for each of the first 54 places, then blocks of 512 bits with their ranks. 2.5 has the
 * place in each entry. Loop thread.
 *
 * Sources: iseq.c of 3.3.8 (succ_index_lookup(), get_insn_info_succinct_bitvector()), iseq.h of
 * 2.7.4, 3.1.2 and 3.3.8.
 */
#include "agent/runtime/ruby/ruby.h"

enum {
	STRETCHES_MAX = 1 << 20,
	IMMEDIATE = 54,
	IMMEDIATE_PER_WORD = 9,
	IMMEDIATE_BITS = 7,
	IMMEDIATE_BYTES = 48,
	BLOCK_BITS = 512,
	BLOCK_WORDS = 10, /* rank, ranks of its words, the words */
	RANK_BITS = 9,
	SEARCH_MAX = 32,
};

/* Which stretch INDEX is in, counted from 1. */
static uint64_t stretch_of(const struct ruby_look *look, uint64_t table, uint32_t index)
{
	uint64_t block[BLOCK_WORDS], word, below;
	uint32_t bit, i;

	if (index < IMMEDIATE) {
		word = ruby_read_word(look, table + index / IMMEDIATE_PER_WORD * 8);
		return word >> index % IMMEDIATE_PER_WORD * IMMEDIATE_BITS & 127;
	}
	index -= IMMEDIATE;
	if (target_read(look->memory,
			table + IMMEDIATE_BYTES + index / BLOCK_BITS * (uint64_t)sizeof(block),
			block, sizeof(block)) < 0)
		return 0;
	bit = index % BLOCK_BITS;
	i = bit / 64;
	below = i ? block[1] >> (i - 1) * RANK_BITS & 511 : 0;
	word = block[2 + i] << (63 - bit % 64);
	return (uint32_t)block[0] + below + (uint64_t)__builtin_popcountll(word);
}

/* 2.5: the last of N entries at LINES whose place is not beyond INDEX, counted from 1. */
static uint64_t search(const struct ruby_look *look, uint64_t lines, uint64_t n, uint32_t index)
{
	uint64_t lo = 0, hi = n;

	for (int i = 0; lo < hi && i < SEARCH_MAX; i++) {
		uint64_t mid = (lo + hi) / 2;
		uint32_t place;

		if (target_read(look->memory, lines + mid * look->process->layout->line_size,
				&place, sizeof(place)) < 0)
			return 0;
		if (place <= index)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

uint32_t ruby_read_line(const struct ruby_look *look, uint64_t body, uint32_t index)
{
	const struct ruby_layout *l = look->process->layout;
	uint64_t lines = ruby_read_word(look, body + l->lines), stretch = 1;
	uint32_t n, line;

	if (!lines || target_read(look->memory, body + l->lines_size, &n, sizeof(n)) < 0 || !n ||
	    n > STRETCHES_MAX)
		return 0;
	if (!l->lines_index)
		stretch = search(look, lines, n, index);
	else if (n > 1)
		stretch = stretch_of(look, ruby_read_word(look, body + l->lines_index), index);
	if (!stretch || stretch > n)
		return 0;
	/* What the compiler has put in has no line of its own (2.7: nop at a block's end). */
	for (int i = 0; stretch && i < SEARCH_MAX; i++, stretch--) {
		if (target_read(look->memory, lines + (stretch - 1) * l->line_size + l->line_at,
				&line, sizeof(line)) < 0)
			return 0;
		if (line)
			return line <= INT32_MAX ? line : 0;
	}
	return 0;
}
