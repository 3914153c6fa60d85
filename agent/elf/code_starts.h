/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct code_starts: where functions begin in code that has no unwind information, from symbol
 * tables, the entry points that the ELF headers name, and the code itself.
 */
#pragma once

#include "agent/elf/image.h"

enum {
	CODE_STARTS_MAX = 1 << 18,
	CODE_GAP_MIN = 16, /* bytes; shorter gaps between functions are padding */
	CODE_BYTES_MAX = 8 << 20,
	CODE_SYMBOLS_MAX = 1 << 22, /* symbols that are looked at */
};

enum code_start_from {
	CODE_FROM_GUESS, /* its address is taken, or it follows another function */
	CODE_FROM_SYMBOL,
	CODE_FROM_CALL,
	CODE_FROM_HEADER, /* DT_INIT and the like */
	CODE_FROM_ENTRY,  /* e_entry: it has no caller */
};

struct code_start {
	uint64_t vaddr;
	uint32_t size; /* 0: not known */
	uint8_t from;  /* enum code_start_from */
};

struct code_gap {
	uint64_t start, end;
};

struct code_starts {
	struct code_gap *gaps; /* ascending */
	size_t n_gaps, gaps_cap;
	struct code_start *v; /* ascending, one per address */
	size_t n, cap;
	uint64_t *tables; /* ascending: data addresses that the code takes */
	size_t n_tables, tables_cap;
};

/* The gap that holds VADDR, or NULL. */
const struct code_gap *code_starts_gap(const struct code_starts *s, uint64_t vaddr);
/* Finds the starts and tables in the gaps, which the caller has set in S. */
int code_starts_find(struct code_starts *s, const struct image *image) _must_check_;
void code_starts_done(struct code_starts *s);
