/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules for single places in code without unwind information, where an image has too much of it to
 * be read as a whole (docs/unwinding/code-frames.md). The function that holds each place is
 * searched for and followed. A place whose function is not found gets no rule, never a guessed one.
 */
#pragma once

#include "agent/elf/image.h"
#include "bpf/types.h"

enum {
	CODE_PLACES_MAX = 1024,	   /* places per call of code_places_read() */
	CODE_PLACE_BACK = 1 << 16, /* bytes searched backwards for a function's start */
	CODE_PLACE_ROOM = 1 << 17, /* bytes that are followed from a start */
	CODE_PIECES_MAX = 1 << 20,
	CODE_BYTES_PER_STEP = 4,	  /* what a step (an instruction) counts as */
	CODE_PLACES_BYTES_MAX = 64 << 20, /* bytes of one image that are read in all */
};

struct code_place {
	uint64_t vaddr; /* of a pc, or of a return address minus one */
	/* It may be no return address at all. Read only if the bytes before VADDR + 1 look like
	 * a call. */
	bool is_guess;
};

/* One rule for [start, end). */
struct code_piece {
	uint64_t start, end;
	struct kiln_rule rule;
};

struct code_pieces {
	struct code_piece *v; /* ascending, without overlaps, once code_places_read() returned */
	size_t n, cap;
};

/*
 * Reads the functions around N PLACES (at most CODE_PLACES_MAX; sorted here) of IMAGE, and adds
 * their rules to *RET. Every place that is no guess is in one of the pieces afterwards; in one with
 * an INVALID rule when its function was not found. *RET_BYTES: the cost of the reading, in bytes of
 * code.
 */
int code_places_read(const struct image *image, struct code_place *places, size_t n,
		     struct code_pieces *ret, uint64_t *ret_bytes) _must_check_;
/* Adds one piece behind all others. */
int code_pieces_add(struct code_pieces *p, const struct code_piece *piece) _must_check_;
void code_pieces_done(struct code_pieces *p);
