/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of a process as far as a recording has it: a few pieces, each a line of a text file,
 * "memory ADDRESS HEX", as recorder.h writes them.
 */
#pragma once

#include "agent/runtime/target.h"

enum { RECORDED_PIECES_MAX = 2048 };

struct recorded_memory {
	struct recorded_piece {
		uint64_t start, size;
		uint8_t *bytes; /* owned */
	} pieces[RECORDED_PIECES_MAX];
	size_t n_pieces;
};

/* Adds the piece of one line. False: it is no such line, or there is no room. */
bool recorded_memory_parse(struct recorded_memory *m, const char *line);
void recorded_memory_done(struct recorded_memory *m);
/* Reads M; -EFAULT for what was not recorded. */
struct target_memory recorded_memory_target(struct recorded_memory *m);
/* SIZE bytes of zeros more at START, which was not recorded. */
uint8_t *recorded_memory_add(struct recorded_memory *m, uint64_t start, size_t size);
/* LEN bytes at ADDRESS, to be changed; NULL when they were not recorded. */
uint8_t *recorded_memory_at(struct recorded_memory *m, uint64_t address, size_t len);
uint64_t recorded_memory_word(struct recorded_memory *m, uint64_t address); /* 0: not recorded */
void recorded_memory_put(struct recorded_memory *m, uint64_t address, uint64_t value);
