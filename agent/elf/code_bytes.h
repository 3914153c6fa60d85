/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Predicates on machine code without unwind information: do the bytes around an address look like
 * the start or the end of a function? Implemented per architecture (code_bytes_x86_64.c,
 * code_bytes_arm64.c). Stateless; any thread.
 */
#pragma once

#include "agent/elf/code_state.h"

/* One executable section, or one executable segment when the file has no sections. */
struct code_bytes {
	uint64_t first, end;
	const uint8_t *data; /* at `first` */
};

enum {
	CODE_TRAPS_BETWEEN = 2, /* so many traps in a row occur only between functions */
};

static inline const uint8_t *code_bytes_at(const struct code_bytes *b, uint64_t vaddr)
{
	return b->data + (vaddr - b->first);
}

static inline bool code_bytes_decode(const struct code_bytes *b, uint64_t vaddr, bool only_flow,
				     struct code_insn *ret)
{
	struct cursor c = {.data = code_bytes_at(b, vaddr), .size = (size_t)(b->end - vaddr)};

	return code_decode(c, vaddr, only_flow, ret);
}

/*
 * Is there a prologue at VADDR that sets up a frame and makes the frame pointer point to it? It may
 * begin with an entry mark (endbr64, bti), and a few unrelated instructions may lie in between.
 */
bool code_sets_frame(const struct code_bytes *b, uint64_t vaddr);
/* Is there an entry mark at VADDR, as targets of indirect calls have: endbr64, bti? */
bool code_is_entry(const struct code_bytes *b, uint64_t vaddr);
/* Is there a trap instruction at VADDR, like those with which linkers fill gaps? */
bool code_is_trap(const struct code_bytes *b, uint64_t vaddr);
/* The number of traps that lie directly before VADDR, counted up to CODE_TRAPS_BETWEEN. */
unsigned int code_traps_before(const struct code_bytes *b, uint64_t vaddr);
/* Does an instruction that is padding (struct code_insn) end at VADDR? */
bool code_padding_before(const struct code_bytes *b, uint64_t vaddr);
/* Do the bytes before VADDR look like a return, a jump or a trap? */
bool code_ends_before(const struct code_bytes *b, uint64_t vaddr);
/* Could VADDR be a return address: do the bytes before it look like a call? */
bool code_is_behind_call(const struct code_bytes *b, uint64_t vaddr);
