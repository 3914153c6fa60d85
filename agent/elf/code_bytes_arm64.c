// SPDX-License-Identifier: Apache-2.0
/*
 * arm64: where functions begin and end, as far as bytes tell; code_bytes.h. All instructions are
 * words of four bytes. Stateless; any thread.
 */
#include "agent/elf/code_bytes.h"

enum {
	PROLOGUE_MAX = 12, /* instructions until the frame pointer is set */
	HINT_PACIASP = 0xd503233f,
	HINT_PACIBSP = 0xd503237f,
};

/* The instruction that ends at VADDR. */
static bool before(const struct code_bytes *b, uint64_t vaddr, struct code_insn *ret)
{
	return vaddr % 4 == 0 && vaddr - b->first >= 4 &&
	       code_bytes_decode(b, vaddr - 4, true, ret);
}

static bool word_at(const struct code_bytes *b, uint64_t vaddr, uint32_t *ret)
{
	if (vaddr < b->first || vaddr >= b->end || b->end - vaddr < 4)
		return false;
	memcpy(ret, code_bytes_at(b, vaddr), sizeof(*ret));
	return true;
}

/*
 * stp x29, x30, [sp, #-n]!; mov x29, sp. Or in more steps: the first instruction moves sp, later
 * ones store x29 and x30 in that frame and set x29.
 */
bool code_sets_frame(const struct code_bytes *b, uint64_t vaddr)
{
	struct code_state s = code_state_at_entry();
	struct code_insn insn;
	bool begun = false;

	for (int i = 0; i < PROLOGUE_MAX && vaddr >= b->first && vaddr < b->end; i++, vaddr += 4) {
		if (!code_bytes_decode(b, vaddr, false, &insn) || insn.flow != CODE_NEXT ||
		    insn.is_padding || (insn.op == CODE_OP_LOAD && insn.from == ARCH_REG_SP))
			return false;
		code_apply(&insn, &s);
		if (code_state_has_frame(&s) && s.saved[CODE_RA])
			return true;
		/* The first instruction that neither is an entry mark nor signs x30 has to move
		 * sp. */
		if (s.reg[ARCH_REG_SP] != code_state_at_entry().reg[ARCH_REG_SP])
			begun = true;
		else if (!begun && (insn.writes || insn.op))
			return false;
	}
	return false;
}

bool code_is_entry(const struct code_bytes *b, uint64_t vaddr)
{
	struct code_insn insn;
	uint32_t w;

	if (!word_at(b, vaddr, &w))
		return false;
	return w == (uint32_t)HINT_PACIASP || w == (uint32_t)HINT_PACIBSP ||
	       (code_bytes_decode(b, vaddr, true, &insn) && insn.is_entry);
}

/* brk. Zero words fill gaps too but do not count: constant pools contain them as well. */
bool code_is_trap(const struct code_bytes *b, uint64_t vaddr)
{
	uint32_t w;

	return word_at(b, vaddr, &w) && (w & 0xffe0001f) == 0xd4200000;
}

unsigned int code_traps_before(const struct code_bytes *b, uint64_t vaddr)
{
	unsigned int n = 0;

	while (n < CODE_TRAPS_BETWEEN && vaddr - b->first >= 4 * (n + 1) &&
	       code_is_trap(b, vaddr - 4 * (n + 1)))
		n++;
	return n;
}

bool code_padding_before(const struct code_bytes *b, uint64_t vaddr)
{
	struct code_insn insn;

	return before(b, vaddr, &insn) && insn.is_padding;
}

bool code_ends_before(const struct code_bytes *b, uint64_t vaddr)
{
	struct code_insn insn;

	return before(b, vaddr, &insn) && (insn.flow == CODE_RETURN || insn.flow == CODE_JUMP ||
					   insn.flow == CODE_INDIRECT || insn.flow == CODE_END);
}

bool code_is_behind_call(const struct code_bytes *b, uint64_t vaddr)
{
	struct code_insn insn;

	return before(b, vaddr, &insn) && insn.flow == CODE_CALL;
}
