// SPDX-License-Identifier: Apache-2.0
/*
 * Executes call frame instructions (DWARF 5 §6.4.2) into unwind rows.
 *
 * Of all columns only the CFA, the return address and the two registers that later frames may need
 * as a base, fp and extra, are kept. What a struct kiln_rule cannot express becomes an invalid row
 * and is counted: a walk that stops is better than one that goes astray.
 */
#include "agent/elf/cfi.h"

#include "agent/elf/arch.h"

enum { /* DWARF 5 table 7.29; GNU: gcc, include/dwarf2.def */
       CFA_ADVANCE_LOC = 0x40,
       CFA_OFFSET = 0x80,
       CFA_RESTORE = 0xc0,
       CFA_NOP = 0x00,
       CFA_SET_LOC = 0x01,
       CFA_ADVANCE_LOC1 = 0x02,
       CFA_ADVANCE_LOC2 = 0x03,
       CFA_ADVANCE_LOC4 = 0x04,
       CFA_OFFSET_EXTENDED = 0x05,
       CFA_RESTORE_EXTENDED = 0x06,
       CFA_UNDEFINED = 0x07,
       CFA_SAME_VALUE = 0x08,
       CFA_REGISTER = 0x09,
       CFA_REMEMBER_STATE = 0x0a,
       CFA_RESTORE_STATE = 0x0b,
       CFA_DEF_CFA = 0x0c,
       CFA_DEF_CFA_REGISTER = 0x0d,
       CFA_DEF_CFA_OFFSET = 0x0e,
       CFA_DEF_CFA_EXPRESSION = 0x0f,
       CFA_EXPRESSION = 0x10,
       CFA_OFFSET_EXTENDED_SF = 0x11,
       CFA_DEF_CFA_SF = 0x12,
       CFA_DEF_CFA_OFFSET_SF = 0x13,
       CFA_VAL_OFFSET = 0x14,
       CFA_VAL_OFFSET_SF = 0x15,
       CFA_VAL_EXPRESSION = 0x16,
       /* Pointer authentication: these change whether the return address is signed. Not tracked,
	* because arch_code_address() works for signed and unsigned addresses. */
       CFA_AARCH64_NEGATE_RA_STATE_WITH_PC = 0x2c,
       CFA_AARCH64_NEGATE_RA_STATE = 0x2d,
       CFA_GNU_ARGS_SIZE = 0x2e,
       CFA_GNU_NEGATIVE_OFFSET_EXTENDED = 0x2f,
};

enum { /* DWARF 5 table 7.9 */
       OP_DEREF = 0x06,
       OP_PLUS = 0x22,
       OP_PLUS_UCONST = 0x23,
       OP_LIT0 = 0x30,
       OP_LIT31 = 0x4f,
       OP_BREG0 = 0x70,
       OP_BREG31 = 0x8f,
       OP_BREGX = 0x92,
};

/* Where the rows of one FDE are added. */
struct output {
	struct cfi *cfi;
	const struct cfi_cie *cie;
	const struct span *span;
	struct rows *rows;
};

/* ---- expressions ------------------------------------------------------------------------------
 */

static bool read_base(struct cursor *c, uint8_t *ret_reg, int64_t *ret_off)
{
	uint8_t op = cursor_u8(c);
	uint64_t reg;

	if (op >= OP_BREG0 && op <= OP_BREG31)
		reg = op - OP_BREG0;
	else if (op == OP_BREGX)
		reg = cursor_uleb(c);
	else
		return false;
	if (reg >= ARCH_GENERAL_REGS)
		return false;
	*ret_reg = (uint8_t)reg;
	*ret_off = cursor_sleb(c);
	return !c->bad;
}

/*
 * Understands the expression of .plt, register + offset, and *(register + offset) + constant; any
 * other expression becomes CFI_CFA_OTHER.
 */
static void cfa_expression(struct cursor c, struct cfi_state *s)
{
	int64_t add = 0;
	uint8_t op;

	if (arch_plt_expression(c, &s->plt)) {
		s->cfa = CFI_CFA_PLT;
		return;
	}
	s->cfa = CFI_CFA_OTHER;
	if (!read_base(&c, &s->reg, &s->off))
		return;
	if (cursor_left(&c) == 0) {
		s->cfa = CFI_CFA_REG;
		return;
	}
	if (cursor_u8(&c) != OP_DEREF)
		return;
	if (cursor_left(&c)) {
		op = cursor_u8(&c);
		if (op == OP_PLUS_UCONST)
			add = (int64_t)cursor_uleb(&c);
		else if (op >= OP_LIT0 && op <= OP_LIT31 && cursor_u8(&c) == OP_PLUS)
			add = op - OP_LIT0;
		else
			return;
	}
	if (c.bad || cursor_left(&c))
		return;
	s->cfa = CFI_CFA_DEREF;
	s->deref_off = add;
}

static struct cfi_location location_expression(struct cursor c)
{
	struct cfi_location l = {.where = CFI_AT_REG};

	if (!read_base(&c, &l.reg, &l.off) || cursor_left(&c))
		l = (struct cfi_location){.where = CFI_OTHER};
	return l;
}

/* ---- rules ------------------------------------------------------------------------------------
 */

/*
 * Writes into RULE where the caller's register is saved: sets FLAG and *RET, an offset in units of
 * 8 bytes, from CFA - BASE or, if saved relative to fp, from fp. A register that is not saved
 * leaves RULE as it is. False when a rule cannot express the location.
 */
static bool saved_register(const struct cfi_location *l, int64_t base, uint8_t flag,
			   struct kiln_rule *rule, int16_t *ret)
{
	bool at_fp = l->where == CFI_AT_REG;
	int64_t off = (int64_t)((uint64_t)l->off + (uint64_t)(at_fp ? 0 : base));

	if (l->where == CFI_SAME || l->where == CFI_UNDEFINED)
		return true;
	if (l->where != CFI_AT_CFA && !(at_fp && l->reg == ARCH_REG_FP))
		return false;
	if (off % 8 || off / 8 < INT16_MIN || off / 8 > INT16_MAX)
		return false;
	/* KILN_RULE_SAVED_AT_FP applies to fp and extra alike. */
	if ((rule->flags & (KILN_RULE_SAVED_FP | KILN_RULE_SAVED_EXTRA)) &&
	    at_fp != !!(rule->flags & KILN_RULE_SAVED_AT_FP))
		return false;
	rule->flags |= flag | (at_fp ? KILN_RULE_SAVED_AT_FP : 0);
	*ret = (int16_t)(off / 8);
	return true;
}

static bool return_address(const struct cfi_location *l, int64_t base, struct kiln_rule *rule)
{
	int64_t off = (int64_t)((uint64_t)l->off + (uint64_t)base);

	if (rule->kind == KILN_RULE_CFA &&
	    (l->where == CFI_IN_REG || (ARCH_RA_IN_REGISTER && l->where == CFI_SAME))) {
		rule->kind = KILN_RULE_RA_REG;
		rule->ra_off = (int8_t)(l->where == CFI_IN_REG ? l->reg : ARCH_REG_RA);
		return true;
	}
	if (l->where != CFI_AT_CFA || off % ARCH_RA_UNIT || off / ARCH_RA_UNIT < INT8_MIN ||
	    off / ARCH_RA_UNIT > INT8_MAX)
		return false;
	rule->ra_off = (int8_t)(off / ARCH_RA_UNIT);
	return true;
}

/*
 * Adds the locations of return address, fp and extra to RULE, whose CFA is set. Their offsets count
 * from CFA - BASE. False, with RULE unchanged, when a rule cannot express them.
 */
static bool saved_registers(const struct cfi_state *s, int64_t base, struct kiln_rule *rule)
{
	struct kiln_rule r = *rule;

	if (base)
		r.flags |= KILN_RULE_AT_BASE;
	if (!return_address(&s->ra, base, &r) ||
	    !saved_register(&s->fp, base, KILN_RULE_SAVED_FP, &r, &r.fp_off) ||
	    !saved_register(&s->extra, base, KILN_RULE_SAVED_EXTRA, &r, &r.extra_off))
		return false;
	*rule = r;
	return true;
}

static bool base_rule(const struct cfi_state *s, struct kiln_rule *rule)
{
	if (s->cfa == CFI_CFA_PLT) {
		*rule = (struct kiln_rule){
		    .kind = KILN_RULE_PLT, .reg = ARCH_REG_SP, .cfa_off = s->plt};
		return true;
	}
	if ((s->cfa != CFI_CFA_REG && s->cfa != CFI_CFA_DEREF) || s->off < INT32_MIN ||
	    s->off > INT32_MAX)
		return false;
	*rule =
	    (struct kiln_rule){.kind = KILN_RULE_CFA, .reg = s->reg, .cfa_off = (int32_t)s->off};
	if (s->cfa == CFI_CFA_DEREF) {
		if (s->deref_off < INT32_MIN || s->deref_off > INT32_MAX)
			return false;
		rule->kind = KILN_RULE_DEREF;
		rule->deref_off = (int32_t)s->deref_off;
	}
	return true;
}

static bool make_rule(const struct cfi_cie *cie, const struct cfi_state *s, struct kiln_rule *ret)
{
	struct kiln_rule rule;
	int32_t ucontext;

	if (s->ra.where == CFI_UNDEFINED) {
		*ret = (struct kiln_rule){.kind = KILN_RULE_STOP};
		return true;
	}
	if (cie->is_signal && arch_signal_frame(s, &ucontext)) {
		*ret = (struct kiln_rule){
		    .kind = KILN_RULE_SIGNAL, .reg = ARCH_REG_SP, .cfa_off = ucontext};
		return true;
	}
	if (!base_rule(s, &rule))
		return false;
	if (!saved_registers(s, 0, &rule) && !(ARCH_HAS_BASE && rule.kind == KILN_RULE_CFA &&
					       s->off && saved_registers(s, s->off, &rule)))
		return false;
	*ret = rule;
	return true;
}

/* Adds a row: the rule of [PC, END) is that of STATE. */
static void emit(const struct output *o, uint64_t pc, uint64_t end, const struct cfi_state *state)
{
	struct kiln_rule rule = {.kind = KILN_RULE_INVALID};

	if (!o->rows || end <= pc || end <= o->span->start || pc >= span_end(o->span))
		return;
	if (!make_rule(o->cie, state, &rule))
		o->cfi->unsupported++;
	rows_add(o->rows, MAX(pc, o->span->start), &rule);
}

/* ---- instructions -----------------------------------------------------------------------------
 */

struct machine {
	struct output out;
	struct cursor c;
	uint64_t pc, end;
	struct cfi_state now;
	struct cfi_state stack[CFI_STACK_MAX];
	unsigned int depth;
};

static struct cfi_location *column(struct cfi_state *s, uint64_t reg)
{
	switch (reg) {
	case ARCH_REG_RA:
		return &s->ra;
	case ARCH_REG_FP:
		return &s->fp;
	case ARCH_REG_EXTRA:
		return &s->extra;
	}
	return NULL;
}

static void set(struct machine *m, uint64_t reg, uint8_t where, uint8_t in, int64_t off)
{
	struct cfi_location *l = column(&m->now, reg);

	if (l)
		*l = (struct cfi_location){.where = where, .reg = in, .off = off};
}

static int64_t scaled(const struct machine *m, int64_t n)
{
	return (int64_t)((uint64_t)n * (uint64_t)m->out.cie->data_align);
}

static void restore(struct machine *m, uint64_t reg)
{
	struct cfi_state initial = m->out.cie->initial;
	struct cfi_location *l = column(&m->now, reg);

	if (l)
		*l = *column(&initial, reg);
}

static void advance_to(struct machine *m, uint64_t pc)
{
	if (pc < m->pc) { /* backwards, or around 2^64 */
		m->c.bad = true;
		return;
	}
	emit(&m->out, m->pc, pc, &m->now);
	m->pc = pc;
}

static void advance(struct machine *m, uint64_t n)
{
	uint64_t delta;

	if (__builtin_mul_overflow(n, m->out.cie->code_align, &delta) || m->pc + delta < m->pc)
		m->c.bad = true;
	else
		advance_to(m, m->pc + delta);
}

static void define_cfa(struct machine *m, uint64_t reg, int64_t off)
{
	m->now.cfa = reg < ARCH_GENERAL_REGS ? CFI_CFA_REG : CFI_CFA_OTHER;
	m->now.reg = (uint8_t)reg;
	m->now.off = off;
}

static void define_offset(struct machine *m, int64_t off)
{
	if (m->now.cfa != CFI_CFA_REG)
		m->now.cfa = CFI_CFA_OTHER;
	m->now.off = off;
}

static struct cursor block(struct machine *m)
{
	uint64_t n = cursor_uleb(&m->c);

	return cursor_sub(&m->c, n);
}

static void in_register(struct machine *m)
{
	uint64_t reg = cursor_uleb(&m->c), in = cursor_uleb(&m->c);

	set(m, reg, in < ARCH_GENERAL_REGS ? CFI_IN_REG : CFI_OTHER, (uint8_t)in, 0);
}

static void step_cfa(struct machine *m, uint8_t op)
{
	struct cursor *c = &m->c;
	uint64_t reg;

	switch (op) {
	case CFA_DEF_CFA:
		reg = cursor_uleb(c);
		define_cfa(m, reg, (int64_t)cursor_uleb(c));
		break;
	case CFA_DEF_CFA_SF:
		reg = cursor_uleb(c);
		define_cfa(m, reg, scaled(m, cursor_sleb(c)));
		break;
	case CFA_DEF_CFA_REGISTER:
		reg = cursor_uleb(c);
		if (m->now.cfa == CFI_CFA_REG)
			define_cfa(m, reg, m->now.off);
		else
			m->now.cfa = CFI_CFA_OTHER;
		break;
	case CFA_DEF_CFA_OFFSET:
		define_offset(m, (int64_t)cursor_uleb(c));
		break;
	case CFA_DEF_CFA_OFFSET_SF:
		define_offset(m, scaled(m, cursor_sleb(c)));
		break;
	case CFA_DEF_CFA_EXPRESSION:
		cfa_expression(block(m), &m->now);
		break;
	}
}

static void step_register(struct machine *m, uint8_t op)
{
	struct cursor *c = &m->c;
	uint64_t reg = cursor_uleb(c);

	switch (op) {
	case CFA_OFFSET_EXTENDED:
		set(m, reg, CFI_AT_CFA, 0, scaled(m, (int64_t)cursor_uleb(c)));
		break;
	case CFA_OFFSET_EXTENDED_SF:
		set(m, reg, CFI_AT_CFA, 0, scaled(m, cursor_sleb(c)));
		break;
	case CFA_GNU_NEGATIVE_OFFSET_EXTENDED:
		set(m, reg, CFI_AT_CFA, 0, scaled(m, (int64_t)(0 - cursor_uleb(c))));
		break;
	case CFA_RESTORE_EXTENDED:
		restore(m, reg);
		break;
	case CFA_UNDEFINED:
		set(m, reg, CFI_UNDEFINED, 0, 0);
		break;
	case CFA_SAME_VALUE:
		set(m, reg, CFI_SAME, 0, 0);
		break;
	case CFA_VAL_OFFSET:
	case CFA_VAL_OFFSET_SF:
		(void)cursor_uleb(c);
		set(m, reg, CFI_OTHER, 0, 0);
		break;
	}
}

static void step_expression(struct machine *m, uint8_t op)
{
	uint64_t reg = cursor_uleb(&m->c);
	struct cfi_location l = location_expression(block(m)), *to = column(&m->now, reg);

	if (op == CFA_VAL_EXPRESSION)
		l = (struct cfi_location){.where = CFI_OTHER};
	if (to)
		*to = l;
}

static void step_state(struct machine *m, uint8_t op)
{
	if (op == CFA_REMEMBER_STATE && m->depth < CFI_STACK_MAX)
		m->stack[m->depth++] = m->now;
	else if (op == CFA_RESTORE_STATE && m->depth > 0)
		m->now = m->stack[--m->depth];
	else
		m->c.bad = true;
}

static void step_extended(struct machine *m, uint8_t op)
{
	struct cursor *c = &m->c;

	switch (op) {
	case CFA_NOP:
		break;
	case CFA_SET_LOC:
		advance_to(m, cfi_pointer(m->out.cfi, c, m->out.cie->encoding));
		break;
	case CFA_ADVANCE_LOC1:
		advance(m, cursor_u8(c));
		break;
	case CFA_ADVANCE_LOC2:
		advance(m, cursor_u16(c));
		break;
	case CFA_ADVANCE_LOC4:
		advance(m, cursor_u32(c));
		break;
	case CFA_REGISTER:
		in_register(m);
		break;
	case CFA_REMEMBER_STATE:
	case CFA_RESTORE_STATE:
		step_state(m, op);
		break;
	case CFA_DEF_CFA:
	case CFA_DEF_CFA_SF:
	case CFA_DEF_CFA_REGISTER:
	case CFA_DEF_CFA_OFFSET:
	case CFA_DEF_CFA_OFFSET_SF:
	case CFA_DEF_CFA_EXPRESSION:
		step_cfa(m, op);
		break;
	case CFA_OFFSET_EXTENDED:
	case CFA_OFFSET_EXTENDED_SF:
	case CFA_GNU_NEGATIVE_OFFSET_EXTENDED:
	case CFA_RESTORE_EXTENDED:
	case CFA_UNDEFINED:
	case CFA_SAME_VALUE:
	case CFA_VAL_OFFSET:
	case CFA_VAL_OFFSET_SF:
		step_register(m, op);
		break;
	case CFA_EXPRESSION:
	case CFA_VAL_EXPRESSION:
		step_expression(m, op);
		break;
	case CFA_GNU_ARGS_SIZE:
		(void)cursor_uleb(c);
		break;
	case CFA_AARCH64_NEGATE_RA_STATE:
	case CFA_AARCH64_NEGATE_RA_STATE_WITH_PC:
		c->bad = !ARCH_SIGNS_RA;
		break;
	default:
		c->bad = true;
	}
}

static void step(struct machine *m)
{
	uint8_t op = cursor_u8(&m->c), low = op & 0x3f;

	switch (op & 0xc0) {
	case CFA_ADVANCE_LOC:
		advance(m, low);
		break;
	case CFA_OFFSET:
		set(m, low, CFI_AT_CFA, 0, scaled(m, (int64_t)cursor_uleb(&m->c)));
		break;
	case CFA_RESTORE:
		restore(m, low);
		break;
	default:
		step_extended(m, op);
	}
}

bool cfi_run(struct cfi *cfi, const struct cfi_cie *cie, struct cursor program,
	     struct cfi_state *state, uint64_t pc, const struct span *span, struct rows *rows)
{
	struct machine m;

	/* m.stack stays uninitialized: it is large, and this runs for every function. */
	m.out = (struct output){.cfi = cfi, .cie = cie, .span = span, .rows = rows};
	m.c = program;
	m.pc = pc;
	m.now = *state;
	m.depth = 0;
	while (cursor_left(&m.c) && (!span || m.pc < span_end(span)))
		step(&m);
	if (m.c.bad) {
		/* From here on nothing is known. */
		m.now = (struct cfi_state){0};
		if (rows && m.pc < span_end(span))
			rows_add(rows, MAX(m.pc, span->start),
				 &(struct kiln_rule){.kind = KILN_RULE_INVALID});
		return false;
	}
	if (span)
		emit(&m.out, m.pc, span_end(span), &m.now);
	*state = m.now;
	return true;
}

void cfi_execute(struct cfi *cfi, const struct span *span, struct rows *rows)
{
	struct cfi_state state;
	struct cfi_fde fde;

	if (!cfi_read_fde(cfi, span->item, &fde)) {
		cfi->malformed++;
		return;
	}
	state = fde.cie->initial;
	if (!cfi_run(cfi, fde.cie, fde.program, &state, fde.start, span, rows))
		cfi->malformed++;
}
