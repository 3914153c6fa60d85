// SPDX-License-Identifier: Apache-2.0
/*
 * arm64: what one instruction does to the frame. Instructions are words of four bytes, so no
 * disassembler is needed. Those that move or copy the stack pointer, save and restore registers, or
 * jump are decoded; of all others only which general registers they write. Where that is not clear,
 * too many registers rather than too few count as written. Stateless; any thread.
 *
 * Encodings: Arm Architecture Reference Manual (DDI 0487), chapter C4, "A64 instruction set
 * encoding"; the names of its tables are in the comments.
 */
#include "agent/elf/code_state.h"

enum {
	ZR = 31,	/* register number 31 where it is not sp */
	LOOK_BACK = 32, /* instructions that are searched for the constant that sp is moved by */
};

#define NOP 0xd503201fU

/* ---- effects ----------------------------------------------------------------------------------
 */

/* mov x29, #0 at a function's entry, before x29 is saved, marks an outermost frame. */
static void clear(struct code_state *s, int reg)
{
	if (reg == ARCH_REG_FP && s->reg[reg] == CODE_CALLER && code_state_is_entry(s))
		s->is_outermost = 1;
	s->reg[reg] = CODE_UNKNOWN;
}

/* Pre-index and post-index: REG moves by BYTES. */
static void move_base(struct code_state *s, int reg, int32_t bytes)
{
	if (bytes && code_is_known(s->reg[reg]))
		code_state_set(s, reg, (int64_t)s->reg[reg] - bytes);
	else if (bytes)
		s->reg[reg] = CODE_UNKNOWN;
}

static void store(const struct code_insn *insn, struct code_state *s)
{
	int64_t slot = (int64_t)s->reg[insn->to] - insn->value;

	if (code_is_known(s->reg[insn->to])) {
		code_state_store(s, insn->from, slot);
		code_state_store(s, insn->second, slot - CODE_WORD);
	}
	move_base(s, insn->to, insn->moves);
}

static void load(const struct code_insn *insn, struct code_state *s)
{
	int base = insn->from;
	int64_t slot = code_is_known(s->reg[base]) ? (int64_t)s->reg[base] - insn->value : 0;

	code_state_clobber(s, insn);
	if (insn->to >= 0)
		code_state_load(s, insn->to, slot);
	if (insn->second >= 0)
		code_state_load(s, insn->second, slot ? slot - CODE_WORD : 0);
	move_base(s, base, insn->moves);
}

void code_apply(const struct code_insn *insn, struct code_state *s)
{
	int to = insn->to, from = insn->from;

	switch ((enum code_op)insn->op) {
	case CODE_OP_CLEAR:
		clear(s, to);
		return;
	case CODE_OP_STORE:
		store(insn, s);
		return;
	case CODE_OP_LOAD:
		load(insn, s);
		return;
	case CODE_OP_COPY:
	case CODE_OP_LEA:
		if (!code_is_known(s->reg[from]))
			break;
		code_state_set(s, to, (int64_t)s->reg[from] - insn->value);
		return;
	default:
		break;
	}
	code_state_clobber(s, insn);
}

/*
 * Prologues store x30 together with x29, or x30 with sp moved down. A function that has saved x30
 * already stores it only alone and without moving sp, like any other register.
 */
bool code_saves_again(const struct code_insn *insn, const struct code_state *s)
{
	bool stores_ra = insn->op == CODE_OP_STORE && insn->to == ARCH_REG_SP &&
			 (insn->from == ARCH_REG_RA || insn->second == ARCH_REG_RA);

	return stores_ra && s->saved[CODE_RA] && (insn->from == ARCH_REG_FP || insn->moves < 0);
}

/* ---- fields -----------------------------------------------------------------------------------
 */

static uint32_t bits(uint32_t w, int low, int n)
{
	return w >> low & ((1U << n) - 1);
}

static int64_t signed_bits(uint32_t w, int low, int n)
{
	return (int64_t)((uint64_t)bits(w, low, n) << (64 - n)) >> (64 - n);
}

/* The mask bit of register REG, in a field where 31 is the zero register; 0 for that one. */
static uint32_t bit_of(uint32_t reg)
{
	return reg == ZR ? 0 : 1U << reg;
}

static int8_t register_or_none(uint32_t reg)
{
	return reg == ZR ? -1 : (int8_t)reg;
}

static uint32_t word_at(struct cursor c, size_t back)
{
	uint32_t w = 0;

	if (c.pos >= 4 * back)
		memcpy(&w, c.data + c.pos - 4 * back, sizeof(w));
	return w;
}

/* adrp: the page, from the instruction W at VADDR */
static uint64_t page_of(uint32_t w, uint64_t vaddr)
{
	return (vaddr & ~(uint64_t)0xfff) +
	       ((uint64_t)(signed_bits(w, 5, 19) * 4 + bits(w, 29, 2)) << 12);
}

/*
 * The address that the adr W at VADDR takes. Only an adr behind a nop is believed, which is what
 * lld makes of adrp and add (ELF/Arch/AArch64.cpp, relaxAdrpAdd): assembler has tables within code,
 * whose words often look like adr.
 */
static uint64_t address_near(uint32_t w, uint64_t vaddr)
{
	return vaddr + (uint64_t)(signed_bits(w, 5, 19) * 4 + bits(w, 29, 2));
}

/*
 * Finds the constant that movz and movk before C have put into REG. Other instructions may lie in
 * between if they do not write REG. gcc moves sp by such a constant for frames of more than 4 KiB.
 */
static bool constant_before(struct cursor c, uint32_t reg, int64_t *ret)
{
	uint64_t value = 0;

	for (size_t i = 1; i <= LOOK_BACK; i++) {
		uint32_t w = word_at(c, i);
		struct cursor at = c;
		struct code_insn insn;

		if ((w & 0x7f80001f) == (0x52800000 | reg)) { /* movz */
			*ret = (int64_t)(value | (uint64_t)bits(w, 5, 16) << 16 * bits(w, 21, 2));
			return true;
		}
		if ((w & 0xff80001f) == (0xf2800000 | reg)) { /* movk */
			value |= (uint64_t)bits(w, 5, 16) << 16 * bits(w, 21, 2);
			continue;
		}
		cursor_seek(&at, c.pos - MIN(c.pos, 4 * i));
		if (c.pos < 4 * i || !code_decode(at, 0, true, &insn) || insn.flow != CODE_NEXT ||
		    insn.writes >> reg & 1)
			return false;
	}
	return false;
}

/* ---- data processing --------------------------------------------------------------------------
 */

/* add and sub of a constant: ADD/SUB (immediate) */
static void read_add_immediate(uint32_t w, struct code_insn *insn)
{
	uint32_t rd = bits(w, 0, 5);
	int32_t value = (int32_t)(bits(w, 10, 12) << (bits(w, 22, 1) ? 12 : 0));

	if (w & 1U << 29) { /* sets flags: register 31 is not sp */
		insn->writes = bit_of(rd);
		return;
	}
	insn->writes = 1U << rd;
	if (!(w >> 31))
		return;
	insn->op = CODE_OP_LEA;
	insn->to = (int8_t)rd;
	insn->from = (int8_t)bits(w, 5, 5);
	insn->value = w & 1U << 30 ? -value : value;
}

/* add and sub of a register that holds a constant: ADD/SUB (extended register) */
static void read_add_extended(struct cursor c, uint32_t w, struct code_insn *insn)
{
	uint32_t rd = bits(w, 0, 5);
	int64_t value;

	/* 64 bits, no flags, uxtx #0 */
	if ((w & 0xbfe0fc00) != 0x8b206000 || !constant_before(c, bits(w, 16, 5), &value) ||
	    value < 0 || value > CODE_OFFSET_MAX)
		return;
	insn->op = CODE_OP_LEA;
	insn->to = (int8_t)rd;
	insn->from = (int8_t)bits(w, 5, 5);
	insn->value = (int32_t)(w & 1U << 30 ? -value : value);
}

/* Data processing -- immediate */
static void read_immediate(struct cursor c, uint32_t w, uint64_t vaddr, struct code_insn *insn)
{
	uint32_t rd = bits(w, 0, 5), before = word_at(c, 1);

	insn->writes = bit_of(rd);
	switch (bits(w, 23, 3)) {
	case 0: /* adr, adrp */
	case 1:
		if (!(w >> 31) && before == NOP)
			insn->target = address_near(w, vaddr);
		break;
	case 2:
		read_add_immediate(w, insn);
		/* adrp and add: an address */
		if ((before & 0x9f00001f) == (0x90000000 | bits(w, 5, 5)) &&
		    (w & 0xffc00000) == 0x91000000)
			insn->target = page_of(before, vaddr - 4) + bits(w, 10, 12);
		break;
	case 3: /* with tags */
		insn->writes = 1U << rd;
		break;
	case 4: /* logical: register 31 is sp, but for ands */
		if (bits(w, 29, 2) != 3)
			insn->writes = 1U << rd;
		break;
	case 5: /* movn, movz, movk */
		if ((w & 0x7fffffe0) == 0x52800000 && rd != ZR) {
			insn->op = CODE_OP_CLEAR;
			insn->to = (int8_t)rd;
		}
		break;
	default:
		break;
	}
}

/* Data processing -- register */
static void read_register(struct cursor c, uint32_t w, bool only_flow, struct code_insn *insn)
{
	uint32_t rd = bits(w, 0, 5), rm = bits(w, 16, 5);

	insn->writes = bit_of(rd);
	if ((w & 0x7fe0ffe0) == 0x2a0003e0 && rd != ZR) { /* mov */
		insn->to = (int8_t)rd;
		insn->from = (int8_t)rm;
		if (rm == ZR)
			insn->op = CODE_OP_CLEAR;
		else if (w >> 31)
			insn->op = CODE_OP_COPY;
	} else if ((w & 0x1fe00000) == 0x0b200000) {
		insn->writes = w & 1U << 29 ? bit_of(rd) : 1U << rd;
		if (!only_flow)
			read_add_extended(c, w, insn);
	}
}

/* Data processing -- scalar floating-point and advanced SIMD: what writes a general register. */
static void read_vector(uint32_t w, struct code_insn *insn)
{
	uint32_t op = bits(w, 16, 3);
	bool converts = (w & 0x7f20fc00) == 0x1e200000 || (w & 0x7f200000) == 0x1e000000;

	if ((converts && op != 2 && op != 3 && op != 7) || /* fcvt, fmov to a general one */
	    (w & 0xbfe0fc00) == 0x0e002c00 ||		   /* smov */
	    (w & 0xbfe0fc00) == 0x0e003c00)		   /* umov */
		insn->writes = bit_of(bits(w, 0, 5));
}

/* ---- loads and stores -------------------------------------------------------------------------
 */

/*
 * A load or store of which only the effect on the base register (31: sp) is tracked: it moves by
 * BYTES.
 */
static void read_writeback(uint32_t base, int32_t bytes, struct code_insn *insn)
{
	insn->op = CODE_OP_STORE;
	insn->to = (int8_t)base;
	insn->from = -1;
	insn->moves = bytes;
}

/* ldp, stp and the like: "Load/store pair". MODE 1: post-index, 3: pre-index. */
static void read_pair(uint32_t w, struct code_insn *insn)
{
	uint32_t opc = bits(w, 30, 2), mode = bits(w, 23, 2), base = bits(w, 5, 5);
	bool vector = w & 1U << 26, loads = w & 1U << 22;
	int32_t scale = vector ? 4 << opc : opc == 2 ? 8 : opc == 1 && !loads ? 16 : 4;
	int32_t offset = (int32_t)signed_bits(w, 15, 7) * scale;
	uint32_t first = bits(w, 0, 5), second = bits(w, 10, 5);

	read_writeback(base, mode == 1 || mode == 3 ? offset : 0, insn);
	insn->value = mode == 1 ? 0 : offset;
	if (vector || (opc != 2 && !loads))
		return;
	if (loads) {
		insn->op = CODE_OP_LOAD;
		insn->from = (int8_t)base;
		insn->to = -1;
		insn->writes = bit_of(first) | bit_of(second);
	}
	if (opc != 2)
		return;
	if (loads)
		insn->to = register_or_none(first);
	else
		insn->from = register_or_none(first);
	insn->second = register_or_none(second);
}

/* One register: "Load/store register (unsigned immediate)", "(immediate post-indexed)" and so on */
static void read_single(uint32_t w, struct code_insn *insn)
{
	uint32_t size = bits(w, 30, 2), opc = bits(w, 22, 2), rt = bits(w, 0, 5);
	uint32_t base = bits(w, 5, 5), mode = bits(w, 10, 2);
	bool vector = w & 1U << 26, unsigned_offset = bits(w, 24, 2) == 1;
	bool loads = opc != 0 && !(size == 3 && opc == 2);
	int32_t offset = (int32_t)signed_bits(w, 12, 9), moves = 0;

	if (unsigned_offset) {
		offset = (int32_t)(bits(w, 10, 12) << (size + (vector ? (opc & 2) << 1 : 0)));
	} else if (w & 1U << 21) {
		/* A register offset, an atomic operation, or ldraa, which may move its base. */
		insn->writes = vector ? 0 : bit_of(rt);
		if ((mode & 1) && (w & 1U << 11))
			insn->writes |= 1U << base;
		return;
	} else if (mode & 1) {
		moves = offset;
		offset = mode == 1 ? 0 : offset;
	}
	read_writeback(base, moves, insn);
	insn->value = offset;
	if (vector)
		return;
	if (loads) {
		insn->op = CODE_OP_LOAD;
		insn->from = (int8_t)base;
		insn->to = size == 3 && opc == 1 ? register_or_none(rt) : -1;
		insn->writes = bit_of(rt);
	} else if (size == 3 && opc == 0) {
		insn->from = register_or_none(rt);
	}
}

/* Loads and stores */
static void read_memory(uint32_t w, struct code_insn *insn)
{
	uint32_t base = 1U << bits(w, 5, 5);

	if ((w & 0x3a000000) == 0x28000000) {
		read_pair(w, insn);
	} else if ((w & 0x3a000000) == 0x38000000) {
		read_single(w, insn);
	} else if ((w & 0x3b000000) == 0x18000000) { /* literal */
		insn->writes = w & 1U << 26 ? 0 : bit_of(bits(w, 0, 5));
	} else if ((w & 0xbe000000) == 0x0c000000) { /* ld1 and the like, post-index */
		insn->writes = w & 1U << 23 ? base : 0;
	} else {
		/* Exclusive and compare-and-swap, a pair too; tags, which may move the base; memory
		 * copies, which write all three. */
		insn->writes = bit_of(bits(w, 0, 5)) | bit_of(bits(w, 10, 5)) |
			       bit_of(bits(w, 16, 5)) | bit_of(bits(w, 16, 5) | 1);
		if ((w & 0x3b000000) == 0x19000000 && bits(w, 10, 2))
			insn->writes |= base;
	}
}

/* ---- jumps ------------------------------------------------------------------------------------
 */

/* nop, bti, and the instructions that sign and check return addresses. */
static void read_hint(uint32_t w, struct code_insn *insn)
{
	uint32_t hint = bits(w, 5, 7);

	insn->is_padding = hint == 0;
	insn->is_entry = hint == 34 || hint == 38; /* bti c, bti jc */
	if (hint >= 8 && hint <= 15)		   /* pacia1716 and the like */
		insn->writes = 1U << 16 | 1U << 17;
}

/* BR, BLR, RET and their authenticating forms: "Unconditional branch (register)" */
static void read_branch_register(uint32_t w, struct code_insn *insn)
{
	switch (bits(w, 21, 3)) {
	case 0:
		insn->flow = CODE_INDIRECT;
		break;
	case 1:
		insn->flow = CODE_CALL;
		break;
	default:
		insn->flow = CODE_RETURN;
		break;
	}
}

/* Branches, exception generating and system instructions */
static void read_branch(uint32_t w, uint64_t vaddr, struct code_insn *insn)
{
	if ((w & 0x7c000000) == 0x14000000) { /* b, bl */
		insn->flow = w >> 31 ? CODE_CALL : CODE_JUMP;
		insn->target = vaddr + (uint64_t)(signed_bits(w, 0, 26) * 4);
	} else if ((w & 0xff000000) == 0x54000000 || (w & 0x7e000000) == 0x34000000) {
		insn->flow = CODE_BRANCH; /* b.cond, cbz, cbnz */
		insn->target = vaddr + (uint64_t)(signed_bits(w, 5, 19) * 4);
	} else if ((w & 0x7e000000) == 0x36000000) { /* tbz, tbnz */
		insn->flow = CODE_BRANCH;
		insn->target = vaddr + (uint64_t)(signed_bits(w, 5, 14) * 4);
	} else if ((w & 0xfe000000) == 0xd6000000) {
		read_branch_register(w, insn);
	} else if ((w & 0xff000000) == 0xd4000000) {
		if ((w & 0xffe0001f) == 0xd4000001) /* svc: Linux keeps all but x0 */
			insn->writes = 1;
		else
			insn->flow = CODE_END; /* brk, hlt and the like */
	} else if ((w & 0xfffff01f) == 0xd503201f) {
		read_hint(w, insn);
	} else if ((w & 0xffe00000) == 0xd5200000) { /* mrs, sysl */
		insn->writes = bit_of(bits(w, 0, 5));
	}
	if (insn->flow == CODE_CALL) {
		/* AAPCS64, 6.1.1: what a function may change; and x30. */
		insn->op = CODE_OP_CALL;
		insn->writes = ((1U << ARCH_REGS_FREE) - 1) | 1U << ARCH_REG_RA;
	}
}

/*
 * SVE: addvl and addpl may move sp. All others count as writing the general register in their
 * field, although only some, such as the counting ones, do.
 */
static void read_sve(uint32_t w, struct code_insn *insn)
{
	uint32_t rd = bits(w, 0, 5);

	insn->writes = (w & 0xffa0f800) == 0x04205000 ? 1U << rd : bit_of(rd);
}

bool code_decode(struct cursor c, uint64_t vaddr, bool only_flow, struct code_insn *ret)
{
	struct code_insn insn = {.size = 4, .flow = CODE_NEXT, .second = -1};
	struct cursor at = c;
	uint32_t w = cursor_u32(&at);

	/* bits 28..25: "A64 instruction set encoding" */
	if (at.bad || vaddr % 4)
		return false;
	switch (bits(w, 25, 4)) {
	case 0:
		if (w >> 16) /* reserved, or SME */
			return false;
		insn.flow = CODE_END; /* udf */
		insn.is_padding = w == 0;
		break;
	case 1:
	case 3:
		return false;
	case 2:
		read_sve(w, &insn);
		break;
	case 8:
	case 9:
		read_immediate(c, w, vaddr, &insn);
		break;
	case 10:
	case 11:
		read_branch(w, vaddr, &insn);
		break;
	case 5:
	case 13:
		read_register(c, w, only_flow, &insn);
		break;
	case 7:
	case 15:
		read_vector(w, &insn);
		break;
	default:
		read_memory(w, &insn);
		break;
	}
	*ret = insn;
	return true;
}

/* bl; adrp and add; nop and adr */
bool code_reference(const uint8_t *p, uint64_t vaddr, uint64_t *ret_target)
{
	uint32_t w[2];

	memcpy(w, p, sizeof(w));
	if ((w[0] & 0xfc000000) == 0x94000000)
		*ret_target = vaddr + (uint64_t)(signed_bits(w[0], 0, 26) * 4);
	else if ((w[0] & 0x9f000000) == 0x90000000 && (w[1] & 0xffc00000) == 0x91000000 &&
		 bits(w[1], 5, 5) == bits(w[0], 0, 5))
		*ret_target = page_of(w[0], vaddr) + bits(w[1], 10, 12);
	else if (w[0] == NOP && (w[1] & 0x9f000000) == 0x10000000)
		*ret_target = address_near(w[1], vaddr + 4);
	else
		return false;
	return true;
}
