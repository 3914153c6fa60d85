/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the bytes around a place in code without unwind information tell of where functions begin
 * and end. The architecture's: code_bytes_x86_64.c, code_bytes_arm64.c. Stateless; any thread.
 */
#pragma once

#include "agent/elf/code_state.h"

/* An executable section, or segment where there are no sections. */
struct code_bytes {
	uint64_t first, end;
	const uint8_t *data; /* at `first` */
};

enum {
	CODE_TRAPS_BETWEEN = 2, /* traps in a row that only lie between functions */
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
 * Does a function begin at VADDR by setting up a frame that the frame pointer points to? Perhaps
 * behind the mark of an entry, and with a few instructions in between that do not matter.
 */
bool code_sets_frame(const struct code_bytes *b, uint64_t vaddr);
/* Is there, at VADDR, the mark of where indirect calls lead: endbr64, bti? */
bool code_is_entry(const struct code_bytes *b, uint64_t vaddr);
/* Is there, at VADDR, a trap that linkers fill with? */
bool code_is_trap(const struct code_bytes *b, uint64_t vaddr);
/* Such traps that end at VADDR, up to CODE_TRAPS_BETWEEN. */
unsigned int code_traps_before(const struct code_bytes *b, uint64_t vaddr);
/* Does padding that does nothing end at VADDR? */
bool code_padding_before(const struct code_bytes *b, uint64_t vaddr);
/* Does a return, a jump or a trap end at VADDR, as far as its bytes tell? */
bool code_ends_before(const struct code_bytes *b, uint64_t vaddr);
/* Could VADDR be a return address? */
bool code_is_behind_call(const struct code_bytes *b, uint64_t vaddr);
