// SPDX-License-Identifier: Apache-2.0
/*
 * x86-64: what one instruction does to the frame. Zydis decodes. Only instructions that move or
 * copy the stack pointer, or save and restore rbp and rbx, are modelled. Any other instruction that
 * writes a register makes it unknown, which can make a rule invalid, but not wrong. Stateless; any
 * thread.
 */
#include "agent/elf/code_state.h"

#include <pthread.h>

#include <Zydis/Zydis.h>

#include "agent/elf/arch.h"

enum {
	ENTRY_DEPTH = ARCH_ENTRY_CFA, /* bytes of rsp below the CFA: the return address */
	INSTRUCTION_MAX = 15,
	STACK_ALIGN = 16,
};

static ZydisDecoder decoder;
static pthread_once_t decoder_once = PTHREAD_ONCE_INIT;

static void decoder_init(void)
{
	/* Fails only for an unknown machine mode. */
	(void)ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
}

/* ---- effects ----------------------------------------------------------------------------------
 */

static void move_sp(struct code_state *s, int64_t deeper)
{
	if (code_is_known(s->reg[ARCH_REG_SP]))
		code_state_set(s, ARCH_REG_SP, s->reg[ARCH_REG_SP] + deeper);
}

/*
 * V8's builtins pop the return address, change what lies below it on the stack, and push it again.
 * From there on the state is that of a function's entry.
 */
static void put_back(struct code_state *s)
{
	bool is_callers = s->reg[ARCH_REG_FP] == CODE_CALLER;

	for (int i = 0; i < CODE_REGS; i++)
		if (code_is_known(s->reg[i]))
			s->reg[i] = CODE_UNKNOWN;
	s->saved[CODE_FP] = s->saved[CODE_EXTRA] = 0;
	if (is_callers)
		s->reg[ARCH_REG_SP] = ENTRY_DEPTH;
}

static void push(struct code_state *s, int reg, int64_t size)
{
	if (reg >= 0 && size == CODE_WORD && s->reg[reg] == CODE_RETURN_ADDRESS) {
		put_back(s);
		return;
	}
	move_sp(s, size);
	if (code_is_known(s->reg[ARCH_REG_SP]))
		code_state_store(s, reg, s->reg[ARCH_REG_SP]);
}

static void pop(struct code_state *s, int reg, int64_t size)
{
	if (s->reg[ARCH_REG_SP] == ENTRY_DEPTH) {
		s->reg[ARCH_REG_SP] = CODE_UNKNOWN;
		if (reg >= 0 && reg != ARCH_REG_SP)
			s->reg[reg] = size == CODE_WORD ? CODE_RETURN_ADDRESS : CODE_UNKNOWN;
		return;
	}
	if (reg >= 0)
		code_state_load(s, reg, size == CODE_WORD ? s->reg[ARCH_REG_SP] : 0);
	if (reg != ARCH_REG_SP)
		move_sp(s, -size);
}

static void leave(struct code_state *s)
{
	int64_t slot = s->reg[ARCH_REG_FP];

	s->reg[ARCH_REG_SP] = CODE_UNKNOWN;
	if (!code_is_known(s->reg[ARCH_REG_FP])) {
		s->reg[ARCH_REG_FP] = CODE_UNKNOWN;
		return;
	}
	code_state_load(s, ARCH_REG_FP, slot);
	code_state_set(s, ARCH_REG_SP, slot - CODE_WORD);
}

static void enter(struct code_state *s, int64_t size)
{
	push(s, ARCH_REG_FP, CODE_WORD);
	s->reg[ARCH_REG_FP] = s->reg[ARCH_REG_SP];
	move_sp(s, size);
}

/*
 * xor %ebp,%ebp with rsp as at a function's entry, and the caller's rbp not saved, marks an
 * outermost frame.
 */
static void clear(struct code_state *s, int reg)
{
	if (reg == ARCH_REG_FP && s->reg[reg] == CODE_CALLER && !s->saved[CODE_FP] &&
	    s->reg[ARCH_REG_SP] == ENTRY_DEPTH)
		s->is_outermost = 1;
	s->reg[reg] = CODE_UNKNOWN;
}

void code_apply(const struct code_insn *insn, struct code_state *s)
{
	int to = insn->to, from = insn->from;

	switch ((enum code_op)insn->op) {
	case CODE_OP_PUSH:
		push(s, from, insn->value);
		return;
	case CODE_OP_POP:
		pop(s, to, insn->value);
		return;
	case CODE_OP_LEAVE:
		leave(s);
		return;
	case CODE_OP_ENTER:
		enter(s, insn->value);
		return;
	case CODE_OP_CLEAR:
		clear(s, to);
		return;
	case CODE_OP_STORE:
		if (code_is_known(s->reg[to]))
			code_state_store(s, from, (int64_t)s->reg[to] - insn->value);
		return;
	case CODE_OP_COPY:
	case CODE_OP_LEA:
		if (!code_is_known(s->reg[from]))
			break;
		code_state_set(s, to, (int64_t)s->reg[from] - insn->value);
		return;
	case CODE_OP_LOAD:
		if (!code_is_known(s->reg[from]))
			break;
		code_state_load(s, to, (int64_t)s->reg[from] - insn->value);
		return;
	case CODE_OP_ADD:
		if (!code_is_known(s->reg[to]))
			break;
		code_state_set(s, to, (int64_t)s->reg[to] - insn->value);
		return;
	case CODE_OP_ALIGN:
		if (!code_is_known(s->reg[to]) || !s->is_aligned)
			break;
		code_state_set(s, to, ALIGN_UP(s->reg[to], STACK_ALIGN));
		return;
	case CODE_OP_CALL:
	case CODE_OP_NONE:
		break;
	}
	code_state_clobber(s, insn);
}

/* Cannot be told here: push %rbp may also push rbp for its value. */
bool code_saves_again(const struct code_insn *insn, const struct code_state *s)
{
	(void)insn;
	(void)s;
	return false;
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

/* DWARF number of the 64-bit register that OP is; -1 when OP is anything else. */
static int whole(const ZydisDecodedOperand *op)
{
	if (op->type != ZYDIS_OPERAND_TYPE_REGISTER || op->size != 64)
		return -1;
	return number(op->reg.value);
}

/*
 * Is OP memory at a base register plus a displacement, without index and not in fs or gs? *RET:
 * DWARF number of the register. *RET_VALUE: the displacement, bytes.
 */
static bool based(const ZydisDecodedOperand *op, int8_t *ret, int32_t *ret_value)
{
	int base;

	if (op->type != ZYDIS_OPERAND_TYPE_MEMORY || op->mem.index != ZYDIS_REGISTER_NONE ||
	    op->mem.segment == ZYDIS_REGISTER_FS || op->mem.segment == ZYDIS_REGISTER_GS)
		return false;
	base = number(op->mem.base);
	if (base < 0 || op->mem.disp.value != (int32_t)op->mem.disp.value)
		return false;
	*ret = (int8_t)base;
	*ret_value = (int32_t)op->mem.disp.value;
	return true;
}

static uint16_t written(const ZydisDecodedOperand *ops, size_t n)
{
	uint16_t writes = 0;

	for (size_t i = 0; i < n; i++) {
		int reg;

		if (ops[i].type != ZYDIS_OPERAND_TYPE_REGISTER ||
		    !(ops[i].actions & ZYDIS_OPERAND_ACTION_MASK_WRITE))
			continue;
		reg = number(ops[i].reg.value);
		if (reg >= 0)
			writes |= (uint16_t)(1U << reg);
	}
	return writes;
}

/* ---- instructions -----------------------------------------------------------------------------
 */

static void read_mov(const ZydisDecodedOperand *ops, struct code_insn *insn)
{
	int to = whole(&ops[0]), from = whole(&ops[1]);

	if (to >= 0 && from >= 0) {
		insn->op = CODE_OP_COPY;
		insn->from = (int8_t)from;
	} else if (to >= 0 && to != ARCH_REG_SP && based(&ops[1], &insn->from, &insn->value)) {
		insn->op = CODE_OP_LOAD;
	} else if (from >= 0 && based(&ops[0], &insn->to, &insn->value)) {
		insn->op = CODE_OP_STORE;
		insn->from = (int8_t)from;
		return;
	}
	insn->to = (int8_t)to;
}

/* add and sub of a constant */
static void read_add(const ZydisDecodedOperand *ops, int sign, struct code_insn *insn)
{
	int to = whole(&ops[0]);
	int64_t value = ops[1].imm.value.s;

	if (to < 0 || ops[1].type != ZYDIS_OPERAND_TYPE_IMMEDIATE || value < -CODE_OFFSET_MAX ||
	    value > CODE_OFFSET_MAX)
		return;
	insn->op = CODE_OP_ADD;
	insn->to = (int8_t)to;
	insn->value = (int32_t)(sign * value);
}

static void read_operands(const ZydisDecodedInstruction *in, const ZydisDecodedOperand *ops,
			  struct code_insn *insn)
{
	insn->writes = written(ops, in->operand_count);
	switch (in->mnemonic) {
	case ZYDIS_MNEMONIC_PUSH:
	case ZYDIS_MNEMONIC_PUSHFQ:
		insn->op = CODE_OP_PUSH;
		insn->value = in->operand_width == 16 ? 2 : CODE_WORD;
		insn->from = (int8_t)(in->mnemonic == ZYDIS_MNEMONIC_PUSH ? whole(&ops[0]) : -1);
		break;
	case ZYDIS_MNEMONIC_POP:
	case ZYDIS_MNEMONIC_POPFQ:
		insn->op = CODE_OP_POP;
		insn->value = in->operand_width == 16 ? 2 : CODE_WORD;
		insn->to = -1;
		if (in->mnemonic == ZYDIS_MNEMONIC_POP &&
		    ops[0].type == ZYDIS_OPERAND_TYPE_REGISTER)
			insn->to = (int8_t)number(ops[0].reg.value);
		break;
	case ZYDIS_MNEMONIC_LEAVE:
		insn->op = CODE_OP_LEAVE;
		break;
	case ZYDIS_MNEMONIC_ENTER: /* not with nesting levels: unused */
		if (ops[1].imm.value.u & 31)
			break;
		insn->op = CODE_OP_ENTER;
		insn->value = (int32_t)ops[0].imm.value.u & UINT16_MAX;
		break;
	case ZYDIS_MNEMONIC_MOV:
		read_mov(ops, insn);
		break;
	case ZYDIS_MNEMONIC_LEA:
		if (whole(&ops[0]) >= 0 && based(&ops[1], &insn->from, &insn->value)) {
			insn->op = CODE_OP_LEA;
			insn->to = (int8_t)whole(&ops[0]);
		}
		break;
	case ZYDIS_MNEMONIC_ADD:
		read_add(ops, 1, insn);
		break;
	case ZYDIS_MNEMONIC_SUB:
		read_add(ops, -1, insn);
		break;
	case ZYDIS_MNEMONIC_AND:
		if (whole(&ops[0]) >= 0 && ops[1].type == ZYDIS_OPERAND_TYPE_IMMEDIATE &&
		    ops[1].imm.value.s == -STACK_ALIGN) {
			insn->op = CODE_OP_ALIGN;
			insn->to = (int8_t)whole(&ops[0]);
		}
		break;
	case ZYDIS_MNEMONIC_XOR:
		if (ops[0].type == ZYDIS_OPERAND_TYPE_REGISTER &&
		    ops[1].type == ZYDIS_OPERAND_TYPE_REGISTER &&
		    ops[0].reg.value == ops[1].reg.value && number(ops[0].reg.value) >= 0) {
			insn->op = CODE_OP_CLEAR;
			insn->to = (int8_t)number(ops[0].reg.value);
		}
		break;
	default:
		break;
	}
}

/* The table of jmp *table(,%index,8); 0 for any other form. */
static uint64_t table_of(const ZydisDecodedInstruction *in)
{
	if (in->raw.modrm.mod != 0 || in->raw.modrm.rm != 4 || in->raw.sib.base != 5 ||
	    in->raw.sib.scale != 3)
		return 0;
	return (uint64_t)in->raw.disp.value;
}

static void read_jump(const ZydisDecodedInstruction *in, uint64_t vaddr, struct code_insn *insn)
{
	bool direct = in->raw.imm[0].is_relative;

	if (direct)
		insn->target = vaddr + in->length + in->raw.imm[0].value.u;
	if (in->meta.category == ZYDIS_CATEGORY_CALL) {
		/* psABI x86-64, fig. 3.4: what a function may change. */
		insn->flow = CODE_CALL;
		insn->op = CODE_OP_CALL;
		insn->writes = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 4 | 1 << 5 | 0xf << 8;
		/* A call of the next instruction: pushes its address */
		if (direct && in->raw.imm[0].value.u == 0) {
			insn->flow = CODE_NEXT;
			insn->op = CODE_OP_PUSH;
			insn->from = -1;
			insn->value = CODE_WORD;
			insn->writes = 0;
			insn->target = 0;
		}
	} else if (in->meta.category == ZYDIS_CATEGORY_UNCOND_BR) {
		insn->flow = direct ? CODE_JUMP : CODE_INDIRECT;
		if (!direct)
			insn->target = table_of(in);
	} else {
		insn->flow = CODE_BRANCH;
	}
}

/* False when the instruction has no flow of its own. */
static bool read_flow(const ZydisDecodedInstruction *in, uint64_t vaddr, struct code_insn *insn)
{
	switch (in->meta.category) {
	case ZYDIS_CATEGORY_COND_BR:
	case ZYDIS_CATEGORY_UNCOND_BR:
	case ZYDIS_CATEGORY_CALL:
		read_jump(in, vaddr, insn);
		return true;
	case ZYDIS_CATEGORY_RET:
		insn->flow = CODE_RETURN;
		return true;
	default:
		break;
	}
	switch (in->mnemonic) {
	case ZYDIS_MNEMONIC_INT3:
		insn->is_padding = true;
		insn->flow = CODE_END;
		return true;
	case ZYDIS_MNEMONIC_UD0:
	case ZYDIS_MNEMONIC_UD1:
	case ZYDIS_MNEMONIC_UD2:
		insn->flow = CODE_END;
		return true;
	case ZYDIS_MNEMONIC_HLT:
		insn->flow = CODE_HALT;
		return true;
	case ZYDIS_MNEMONIC_NOP:
		insn->is_padding = true;
		return true;
	case ZYDIS_MNEMONIC_ENDBR64:
		insn->is_entry = true;
		return true;
	case ZYDIS_MNEMONIC_XBEGIN:
		read_jump(in, vaddr, insn);
		return true;
	case ZYDIS_MNEMONIC_LEA:
		if (in->raw.modrm.mod == 0 && in->raw.modrm.rm == 5)
			insn->target = vaddr + in->length + (uint64_t)in->raw.disp.value;
		return false;
	default:
		return false;
	}
}

bool code_decode(struct cursor c, uint64_t vaddr, bool only_flow, struct code_insn *ret)
{
	size_t n = MIN(cursor_left(&c), (size_t)INSTRUCTION_MAX);
	const uint8_t *p = cursor_bytes(&c, n);
	struct code_insn insn = {.flow = CODE_NEXT, .second = -1};
	ZydisDecodedOperand ops[ZYDIS_MAX_OPERAND_COUNT];
	ZydisDecoderContext context;
	ZydisDecodedInstruction in;

	pthread_once(&decoder_once, decoder_init);
	if (!p || !ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(&decoder, &context, p, n, &in)))
		return false;
	insn.size = in.length;
	if (!read_flow(&in, vaddr, &insn) && !only_flow) {
		if (!ZYAN_SUCCESS(
			ZydisDecoderDecodeOperands(&decoder, &context, &in, ops, in.operand_count)))
			return false;
		read_operands(&in, ops, &insn);
	}
	*ret = insn;
	return true;
}

/* e8 distance; rex.w 8d modrm (rip) distance */
bool code_reference(const uint8_t *p, uint64_t vaddr, uint64_t *ret_target)
{
	int32_t distance;
	size_t size = 0;

	if (p[0] == 0xe8)
		size = 5;
	else if ((p[0] == 0x48 || p[0] == 0x4c) && p[1] == 0x8d && (p[2] & 0xc7) == 0x05)
		size = 7;
	if (!size)
		return false;
	memcpy(&distance, p + size - sizeof(distance), sizeof(distance));
	*ret_target = vaddr + size + (uint64_t)(int64_t)distance;
	return true;
}
