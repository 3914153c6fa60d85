// SPDX-License-Identifier: Apache-2.0
/*
 * x86-64: what one instruction does to the frame. Zydis decodes; here only those instructions have
 * a meaning that move the stack pointer, copy it, or save and restore rbp and rbx. Whatever else
 * writes to a register makes it unknown, so an instruction that nobody thought of can cost a rule,
 * but not make a wrong one. Stateless; any thread.
 */
#include "agent/elf/code_state.h"

#include <pthread.h>

#include <Zydis/Zydis.h>

#include "agent/elf/arch.h"

enum {
	ENTRY_DEPTH = 8, /* of rsp below the CFA: the return address */
	WORD = 8,
	INSTRUCTION_MAX = 15,
	STANDARD_FRAME = 16, /* of rbp below the CFA, behind push %rbp; mov %rsp,%rbp */
};

struct instruction {
	ZydisDecodedInstruction in;
	ZydisDecodedOperand ops[ZYDIS_MAX_OPERAND_COUNT];
	uint64_t vaddr;
};

static ZydisDecoder decoder;
static pthread_once_t decoder_once = PTHREAD_ONCE_INIT;

static void decoder_init(void)
{
	/* It fails for machine modes that it does not know only. */
	(void)ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
}

/* ---- states -----------------------------------------------------------------------------------
 */

static bool is_known(int32_t value)
{
	return value < CODE_CALLER;
}

struct code_state code_state_at_entry(void)
{
	struct code_state s = {0};

	for (int i = 0; i < CODE_REGS; i++)
		s.reg[i] = CODE_UNKNOWN;
	s.reg[ARCH_REG_BP] = s.reg[ARCH_REG_BX] = CODE_CALLER;
	s.reg[ARCH_REG_SP] = ENTRY_DEPTH;
	return s;
}

/* The register to count the CFA from; -1 when there is none. */
static int base_register(const struct code_state *s)
{
	if (s->saved_bp && s->reg[ARCH_REG_BP] == s->saved_bp && s->saved_bp == STANDARD_FRAME)
		return ARCH_REG_BP;
	if (is_known(s->reg[ARCH_REG_SP]))
		return s->reg[ARCH_REG_SP] >= ENTRY_DEPTH ? ARCH_REG_SP : -1;
	if (is_known(s->reg[ARCH_REG_BP]))
		return ARCH_REG_BP;
	for (int i = 0; i < CODE_REGS; i++)
		if (is_known(s->reg[i]))
			return i;
	return -1;
}

struct kiln_rule code_state_rule(const struct code_state *s)
{
	struct kiln_rule rule = {.kind = KILN_RULE_INVALID};
	int base = base_register(s);

	if (s->is_outermost)
		return (struct kiln_rule){.kind = KILN_RULE_STOP};
	if (base < 0)
		return rule;
	rule = (struct kiln_rule){.kind = KILN_RULE_CFA,
				  .reg = (uint8_t)base,
				  .ra_off = ARCH_RA_OFFSET,
				  .cfa_off = s->reg[base]};
	if (s->saved_bp && s->saved_bp % WORD == 0 && s->saved_bp / WORD <= INT16_MAX) {
		rule.flags |= KILN_RULE_SAVED_RBP;
		rule.rbp_off = (int16_t)(-s->saved_bp / WORD);
	}
	if (s->saved_bx && s->saved_bx % WORD == 0 && s->saved_bx / WORD <= INT16_MAX) {
		rule.flags |= KILN_RULE_SAVED_RBX;
		rule.rbx_off = (int16_t)(-s->saved_bx / WORD);
	}
	return rule;
}

/*
 * Paths that do not need a register do not save it. While one that saved it has not changed it, it
 * still is in both places.
 */
static int32_t join_saved(const struct code_state *a, int32_t in_a, const struct code_state *b,
			  int32_t in_b, int reg)
{
	if (in_a == in_b)
		return in_a;
	if (in_a && in_b)
		return 0;
	if (in_a)
		return a->reg[reg] == CODE_CALLER ? 0 : in_a;
	return b->reg[reg] == CODE_CALLER ? 0 : in_b;
}

bool code_state_join(struct code_state *to, const struct code_state *from)
{
	struct code_state old = *to;

	for (int i = 0; i < CODE_REGS; i++)
		if (to->reg[i] != from->reg[i])
			to->reg[i] = CODE_UNKNOWN;
	to->saved_bp = join_saved(&old, old.saved_bp, from, from->saved_bp, ARCH_REG_BP);
	to->saved_bx = join_saved(&old, old.saved_bx, from, from->saved_bx, ARCH_REG_BX);
	to->is_outermost &= from->is_outermost;
	return memcmp(&old, to, sizeof(old)) != 0;
}

static void set(struct code_state *s, int reg, int64_t value)
{
	if (value < -CODE_OFFSET_MAX || value > CODE_OFFSET_MAX)
		value = CODE_UNKNOWN;
	s->reg[reg] = (int32_t)value;
	if (reg != ARCH_REG_SP || !is_known(s->reg[reg]))
		return;
	/* What the stack pointer has passed is gone. */
	if (s->saved_bp > value)
		s->saved_bp = 0;
	if (s->saved_bx > value)
		s->saved_bx = 0;
}

static void move_sp(struct code_state *s, int64_t deeper)
{
	if (is_known(s->reg[ARCH_REG_SP]))
		set(s, ARCH_REG_SP, s->reg[ARCH_REG_SP] + deeper);
}

/* REG, or -1 for anything else, is stored at CFA - SLOT. */
static void store(struct code_state *s, int reg, int64_t slot)
{
	if (slot < ENTRY_DEPTH + WORD || slot > CODE_OFFSET_MAX)
		return;
	if (reg == ARCH_REG_BP && s->reg[reg] == CODE_CALLER && !s->saved_bp)
		s->saved_bp = (int32_t)slot;
	else if (reg == ARCH_REG_BX && s->reg[reg] == CODE_CALLER && !s->saved_bx)
		s->saved_bx = (int32_t)slot;
}

/* REG is loaded from CFA - SLOT. */
static void load(struct code_state *s, int reg, int64_t slot)
{
	if ((reg == ARCH_REG_BP && slot == s->saved_bp) ||
	    (reg == ARCH_REG_BX && slot == s->saved_bx))
		s->reg[reg] = slot ? CODE_CALLER : CODE_UNKNOWN;
	else
		s->reg[reg] = CODE_UNKNOWN;
}

/* ---- operands ---------------------------------------------------------------------------------
 */

/* DWARF number of the 64-bit register that REG is or is part of; -1 when it is none of those. */
static int number(ZydisRegister reg)
{
	static const int8_t dwarf[] = {0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15};

	reg = ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, reg);
	return reg >= ZYDIS_REGISTER_RAX && reg <= ZYDIS_REGISTER_R15
		   ? dwarf[reg - ZYDIS_REGISTER_RAX]
		   : -1;
}

/* The whole 64-bit register that OP is, or -1. */
static int whole(const ZydisDecodedOperand *op)
{
	if (op->type != ZYDIS_OPERAND_TYPE_REGISTER || op->size != 64)
		return -1;
	return number(op->reg.value);
}

/* OP's memory is at CFA - *RET. */
static bool stack_slot(const struct code_state *s, const ZydisDecodedOperand *op, int64_t *ret)
{
	int base;

	if (op->type != ZYDIS_OPERAND_TYPE_MEMORY || op->mem.index != ZYDIS_REGISTER_NONE ||
	    op->mem.segment == ZYDIS_REGISTER_FS || op->mem.segment == ZYDIS_REGISTER_GS)
		return false;
	base = number(op->mem.base);
	if (base < 0 || !is_known(s->reg[base]))
		return false;
	*ret = s->reg[base] - op->mem.disp.value;
	return true;
}

static bool rip_address(const struct instruction *i, const ZydisDecodedOperand *op, uint64_t *ret)
{
	if (op->type != ZYDIS_OPERAND_TYPE_MEMORY || op->mem.base != ZYDIS_REGISTER_RIP)
		return false;
	*ret = i->vaddr + i->in.length + (uint64_t)op->mem.disp.value;
	return true;
}

/* Every register that the instruction writes to becomes unknown. */
static void clobber(struct code_state *s, const struct instruction *i)
{
	for (int n = 0; n < i->in.operand_count; n++) {
		const ZydisDecodedOperand *op = &i->ops[n];
		int reg;

		if (op->type != ZYDIS_OPERAND_TYPE_REGISTER ||
		    !(op->actions & ZYDIS_OPERAND_ACTION_MASK_WRITE))
			continue;
		reg = number(op->reg.value);
		if (reg >= 0)
			s->reg[reg] = CODE_UNKNOWN;
	}
}

/* ---- instructions -----------------------------------------------------------------------------
 */

static void push(struct code_state *s, const struct instruction *i)
{
	int64_t slot;

	move_sp(s, i->in.operand_width == 16 ? 2 : WORD);
	slot = s->reg[ARCH_REG_SP];
	if (is_known(s->reg[ARCH_REG_SP]))
		store(s, whole(&i->ops[0]), slot);
}

static void pop(struct code_state *s, const struct instruction *i)
{
	int reg = i->ops[0].type == ZYDIS_OPERAND_TYPE_REGISTER ? number(i->ops[0].reg.value) : -1;

	if (reg == ARCH_REG_SP) {
		s->reg[reg] = CODE_UNKNOWN;
		return;
	}
	if (reg >= 0)
		load(s, reg, whole(&i->ops[0]) < 0 ? 0 : s->reg[ARCH_REG_SP]);
	move_sp(s, i->in.operand_width == 16 ? -2 : -WORD);
}

static void leave(struct code_state *s)
{
	int64_t slot = s->reg[ARCH_REG_BP];

	s->reg[ARCH_REG_SP] = CODE_UNKNOWN;
	if (!is_known(s->reg[ARCH_REG_BP])) {
		s->reg[ARCH_REG_BP] = CODE_UNKNOWN;
		return;
	}
	load(s, ARCH_REG_BP, slot);
	set(s, ARCH_REG_SP, slot - WORD);
}

static void enter(struct code_state *s, const struct instruction *i)
{
	if (i->ops[1].imm.value.u & 31) { /* with a display: nobody does */
		clobber(s, i);
		return;
	}
	move_sp(s, WORD);
	if (is_known(s->reg[ARCH_REG_SP]))
		store(s, ARCH_REG_BP, s->reg[ARCH_REG_SP]);
	s->reg[ARCH_REG_BP] = is_known(s->reg[ARCH_REG_SP]) ? s->reg[ARCH_REG_SP] : CODE_UNKNOWN;
	move_sp(s, (int64_t)i->ops[0].imm.value.u);
}

static void mov(struct code_state *s, const struct instruction *i)
{
	int to = whole(&i->ops[0]), from = whole(&i->ops[1]);
	int64_t slot;

	if (to >= 0 && from >= 0 && is_known(s->reg[from]))
		set(s, to, s->reg[from]);
	else if (to >= 0 && to != ARCH_REG_SP && stack_slot(s, &i->ops[1], &slot))
		load(s, to, slot);
	else if (from >= 0 && stack_slot(s, &i->ops[0], &slot))
		store(s, from, slot);
	else
		clobber(s, i);
}

static void lea(struct code_state *s, const struct instruction *i)
{
	int to = whole(&i->ops[0]);
	int64_t slot;

	if (to >= 0 && stack_slot(s, &i->ops[1], &slot))
		set(s, to, slot);
	else
		clobber(s, i);
}

/* add and sub of a constant */
static void add(struct code_state *s, const struct instruction *i, int sign)
{
	int to = whole(&i->ops[0]);

	if (to >= 0 && is_known(s->reg[to]) && i->ops[1].type == ZYDIS_OPERAND_TYPE_IMMEDIATE &&
	    i->ops[1].imm.value.s >= -CODE_OFFSET_MAX && i->ops[1].imm.value.s <= CODE_OFFSET_MAX)
		set(s, to, s->reg[to] - sign * i->ops[1].imm.value.s);
	else
		clobber(s, i);
}

/* xor %ebp,%ebp at the depth of an entry, the caller's rbp not saved: nobody returns from here. */
static void clear(struct code_state *s, const struct instruction *i)
{
	if (i->ops[0].type == ZYDIS_OPERAND_TYPE_REGISTER &&
	    i->ops[1].type == ZYDIS_OPERAND_TYPE_REGISTER &&
	    i->ops[0].reg.value == i->ops[1].reg.value &&
	    number(i->ops[0].reg.value) == ARCH_REG_BP && s->reg[ARCH_REG_BP] == CODE_CALLER &&
	    !s->saved_bp && s->reg[ARCH_REG_SP] == ENTRY_DEPTH)
		s->is_outermost = 1;
	clobber(s, i);
}

/* psABI x86-64, fig. 3.4: what a function may change. */
static void call(struct code_state *s, const struct code_step *step, const struct instruction *i)
{
	static const uint8_t changed[] = {0, 1, 2, 4, 5, 8, 9, 10, 11};

	if (step->flow != CODE_CALL) { /* call of the next instruction: a push */
		move_sp(s, WORD);
		return;
	}
	(void)i;
	for (size_t n = 0; n < ARRAY_SIZE(changed); n++)
		s->reg[changed[n]] = CODE_UNKNOWN;
}

static void apply(struct code_state *s, const struct instruction *i, const struct code_step *step)
{
	switch (i->in.mnemonic) {
	case ZYDIS_MNEMONIC_PUSH:
	case ZYDIS_MNEMONIC_PUSHFQ:
		push(s, i);
		break;
	case ZYDIS_MNEMONIC_POP:
	case ZYDIS_MNEMONIC_POPFQ:
		pop(s, i);
		break;
	case ZYDIS_MNEMONIC_LEAVE:
		leave(s);
		break;
	case ZYDIS_MNEMONIC_ENTER:
		enter(s, i);
		break;
	case ZYDIS_MNEMONIC_MOV:
		mov(s, i);
		break;
	case ZYDIS_MNEMONIC_LEA:
		lea(s, i);
		break;
	case ZYDIS_MNEMONIC_ADD:
		add(s, i, 1);
		break;
	case ZYDIS_MNEMONIC_SUB:
		add(s, i, -1);
		break;
	case ZYDIS_MNEMONIC_XOR:
		clear(s, i);
		break;
	case ZYDIS_MNEMONIC_CALL:
		call(s, step, i);
		break;
	default:
		clobber(s, i);
	}
}

static void classify(const struct instruction *i, struct code_step *step)
{
	const ZydisDecodedOperand *op = &i->ops[0];
	bool direct = i->in.operand_count_visible > 0 && op->type == ZYDIS_OPERAND_TYPE_IMMEDIATE &&
		      op->imm.is_relative;

	if (direct)
		step->target = i->vaddr + i->in.length + op->imm.value.u;
	switch (i->in.meta.category) {
	case ZYDIS_CATEGORY_COND_BR:
		step->flow = CODE_BRANCH;
		return;
	case ZYDIS_CATEGORY_UNCOND_BR:
		step->flow = direct ? CODE_JUMP : CODE_INDIRECT;
		if (!direct && op->type == ZYDIS_OPERAND_TYPE_MEMORY && op->mem.scale == WORD &&
		    op->mem.base == ZYDIS_REGISTER_NONE)
			step->address = (uint64_t)op->mem.disp.value;
		return;
	case ZYDIS_CATEGORY_CALL:
		step->flow = CODE_CALL;
		if (direct && op->imm.value.u == 0)
			step->flow = CODE_NEXT;
		return;
	case ZYDIS_CATEGORY_RET:
		step->flow = CODE_RETURN;
		return;
	default:
		break;
	}
	switch (i->in.mnemonic) {
	case ZYDIS_MNEMONIC_INT3:
		step->is_padding = true;
		step->flow = CODE_END;
		break;
	case ZYDIS_MNEMONIC_UD0:
	case ZYDIS_MNEMONIC_UD1:
	case ZYDIS_MNEMONIC_UD2:
	case ZYDIS_MNEMONIC_HLT:
		step->flow = CODE_END;
		break;
	case ZYDIS_MNEMONIC_NOP:
		step->is_padding = true;
		break;
	case ZYDIS_MNEMONIC_LEA:
		(void)rip_address(i, &i->ops[1], &step->address);
		break;
	case ZYDIS_MNEMONIC_XBEGIN:
		step->flow = CODE_BRANCH;
		break;
	default:
		break;
	}
}

bool code_step(struct cursor c, uint64_t vaddr, struct code_state *state, struct code_step *ret)
{
	struct instruction i;
	struct code_step step = {.flow = CODE_NEXT};
	const uint8_t *p;

	pthread_once(&decoder_once, decoder_init);
	p = cursor_bytes(&c, MIN(cursor_left(&c), (size_t)INSTRUCTION_MAX));
	if (!p || !ZYAN_SUCCESS(ZydisDecoderDecodeFull(
		      &decoder, p, MIN(c.size - (size_t)(p - c.data), (size_t)INSTRUCTION_MAX),
		      &i.in, i.ops)))
		return false;
	i.vaddr = vaddr;
	step.size = i.in.length;
	classify(&i, &step);
	if (state)
		apply(state, &i, &step);
	*ret = step;
	return true;
}
