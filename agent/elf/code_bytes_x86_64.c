// SPDX-License-Identifier: Apache-2.0
/* x86-64: where functions begin and end, as far as bytes tell; code_bytes.h. Stateless. */
#include "agent/elf/code_bytes.h"

enum {
	INSTRUCTION_MAX = 15, /* bytes */
	BETWEEN_MAX = 4,      /* instructions that a compiler moves into the middle of a prologue */
	INT3 = 0xcc,
};

static bool has_bytes(const struct code_bytes *b, uint64_t vaddr, const void *bytes, size_t n)
{
	return b->end - vaddr >= n && memcmp(code_bytes_at(b, vaddr), bytes, n) == 0;
}

bool code_is_entry(const struct code_bytes *b, uint64_t vaddr)
{
	return has_bytes(b, vaddr, "\xf3\x0f\x1e\xfa", 4);
}

/*
 * [endbr64;] push %rbp; mov %rsp,%rbp, with at most BETWEEN_MAX instructions in between, none of
 * which writes rsp or rbp, pushes or pops.
 */
bool code_sets_frame(const struct code_bytes *b, uint64_t vaddr)
{
	struct code_insn insn;

	if (vaddr < b->first || vaddr >= b->end)
		return false;
	if (code_is_entry(b, vaddr))
		vaddr += 4;
	if (!has_bytes(b, vaddr, "\x55", 1))
		return false;
	vaddr++;
	for (int i = 0; i <= BETWEEN_MAX; i++, vaddr += insn.size) {
		if (has_bytes(b, vaddr, "\x48\x89\xe5", 3) ||
		    has_bytes(b, vaddr, "\x48\x8b\xec", 3))
			return true;
		if (!code_bytes_decode(b, vaddr, false, &insn) || insn.flow != CODE_NEXT ||
		    insn.op == CODE_OP_PUSH || insn.op == CODE_OP_POP ||
		    (insn.writes & (1 << ARCH_REG_SP | 1 << ARCH_REG_FP)))
			return false;
	}
	return false;
}

bool code_is_trap(const struct code_bytes *b, uint64_t vaddr)
{
	return *code_bytes_at(b, vaddr) == INT3;
}

unsigned int code_traps_before(const struct code_bytes *b, uint64_t vaddr)
{
	unsigned int n = 0;

	while (n < CODE_TRAPS_BETWEEN && vaddr - n > b->first &&
	       code_bytes_at(b, vaddr)[-1 - (int)n] == INT3)
		n++;
	return n;
}

bool code_padding_before(const struct code_bytes *b, uint64_t vaddr)
{
	struct code_insn insn;

	for (uint64_t n = 1; n <= INSTRUCTION_MAX && vaddr - n >= b->first && n <= vaddr; n++)
		if (code_bytes_decode(b, vaddr - n, true, &insn) && insn.is_padding &&
		    insn.size == n)
			return true;
	return false;
}

/* ret, jmp or a trap ends at VADDR, as far as its bytes tell. */
bool code_ends_before(const struct code_bytes *b, uint64_t vaddr)
{
	const uint8_t *p = code_bytes_at(b, vaddr);
	uint64_t n = vaddr - b->first;

	return (n >= 1 && (p[-1] == 0xc3 || p[-1] == INT3)) ||
	       (n >= 2 && (p[-2] == 0xeb || (p[-2] == 0x0f && p[-1] == 0x0b) ||
			   (p[-2] == 0xff && (p[-1] & 0xf8) == 0xe0))) ||
	       (n >= 5 && p[-5] == 0xe9);
}

/* Could VADDR be a return address? call rel32, or call through a register or memory. */
bool code_is_behind_call(const struct code_bytes *b, uint64_t vaddr)
{
	const uint8_t *p = code_bytes_at(b, vaddr);
	uint64_t n = vaddr - b->first;

	if (n >= 5 && p[-5] == 0xe8)
		return true;
	for (int i = 2; i <= 7 && (uint64_t)i <= n; i++)
		if (p[-i] == 0xff && (p[1 - i] & 0x38) == 0x10)
			return true;
	return false;
}
