// SPDX-License-Identifier: Apache-2.0
/*
 * The state of a frame, whatever the architecture: which registers hold an address in it, which of
 * the caller's registers are saved where, and the rule that this amounts to. An instruction that is
 * not modelled can make a rule invalid, but not wrong. Stateless; any thread.
 */
#include "agent/elf/code_state.h"

enum {
	ENTRY_DEPTH = ARCH_ENTRY_CFA, /* bytes of sp below the CFA at a function's entry */
	ROLES = ARCH_RA_IN_REGISTER ? CODE_RA + 1 : CODE_RA,
};

static const uint8_t role_register[CODE_ROLES] = {ARCH_REG_FP, ARCH_REG_EXTRA, ARCH_REG_RA};

/* The role of REG; -1 when it has none. */
static int role_of(int reg)
{
	for (int i = 0; i < ROLES; i++)
		if (reg == role_register[i])
			return i;
	return -1;
}

struct code_state code_state_at_entry(void)
{
	struct code_state s = {0};

	for (int i = 0; i < CODE_REGS; i++)
		s.reg[i] = CODE_UNKNOWN;
	for (int i = 0; i < ROLES; i++)
		s.reg[role_register[i]] = CODE_CALLER;
	s.reg[ARCH_REG_SP] = ENTRY_DEPTH;
	return s;
}

bool code_state_is_entry(const struct code_state *s)
{
	for (int i = 0; i < ROLES; i++)
		if (s->saved[i])
			return false;
	return s->reg[ARCH_REG_SP] == ENTRY_DEPTH &&
	       (!ARCH_RA_IN_REGISTER || s->reg[ARCH_REG_RA % CODE_REGS] == CODE_CALLER);
}

bool code_state_has_frame(const struct code_state *s)
{
	return s->saved[CODE_FP] && s->reg[ARCH_REG_FP] == s->saved[CODE_FP];
}

/* ---- rules ------------------------------------------------------------------------------------
 */

/* The register to count the CFA from; -1 when there is none. */
static int base_register(const struct code_state *s)
{
	if (code_state_has_frame(s) && s->saved[CODE_FP] == CODE_STANDARD_FRAME)
		return ARCH_REG_FP;
	if (code_is_known(s->reg[ARCH_REG_SP]))
		return s->reg[ARCH_REG_SP] >= ENTRY_DEPTH ? ARCH_REG_SP : -1;
	if (code_is_known(s->reg[ARCH_REG_FP]))
		return ARCH_REG_FP;
	for (int i = 0; i < CODE_REGS; i++)
		if (code_is_known(s->reg[i]))
			return i;
	return -1;
}

/*
 * Writes into RULE that the return address is at CFA - SLOT. False when a rule cannot express that.
 */
static bool set_saved_address(int32_t slot, struct kiln_rule *rule)
{
	if (slot % ARCH_RA_UNIT)
		return false;
	if (slot / ARCH_RA_UNIT > -INT8_MIN) {
		slot -= rule->cfa_off;
		rule->flags |= KILN_RULE_AT_BASE;
	}
	if (slot / ARCH_RA_UNIT > -INT8_MIN || slot / ARCH_RA_UNIT < -INT8_MAX)
		return false;
	rule->ra_off = (int8_t)(-slot / ARCH_RA_UNIT);
	return true;
}

/*
 * Writes into RULE where the return address is. If it is both on the stack and in its register, the
 * rule uses the stack: the rule of a call instruction is also used while the callee runs, when the
 * register holds another address. False when a rule cannot express it.
 */
static bool set_return_address(const struct code_state *s, struct kiln_rule *rule)
{
	if (!ARCH_RA_IN_REGISTER) {
		rule->ra_off = ARCH_RA_OFFSET;
		return true;
	}
	if (s->saved[CODE_RA])
		return set_saved_address(s->saved[CODE_RA], rule);
	if (s->reg[ARCH_REG_RA % CODE_REGS] != CODE_CALLER)
		return false;
	rule->kind = KILN_RULE_RA_REG;
	rule->ra_off = ARCH_REG_RA;
	return true;
}

/*
 * Writes into RULE (FLAG and *RET) where the register of ROLE is saved; leaves RULE as it is when
 * the register is not saved or a rule cannot express the place.
 */
static void set_saved(const struct code_state *s, enum code_role role, uint8_t flag,
		      struct kiln_rule *rule, int16_t *ret)
{
	int32_t slot = s->saved[role];

	if (!slot || slot % CODE_WORD)
		return;
	if (rule->flags & KILN_RULE_AT_BASE)
		slot -= rule->cfa_off;
	if (slot / CODE_WORD > INT16_MAX || slot / CODE_WORD < -INT16_MAX)
		return;
	rule->flags |= flag;
	*ret = (int16_t)(-slot / CODE_WORD);
}

struct kiln_rule code_state_rule(const struct code_state *s)
{
	struct kiln_rule rule;
	int base = base_register(s);

	if (s->is_outermost)
		return (struct kiln_rule){.kind = KILN_RULE_STOP};
	if (base < 0)
		return (struct kiln_rule){.kind = KILN_RULE_INVALID};
	rule = (struct kiln_rule){
	    .kind = KILN_RULE_CFA, .reg = (uint8_t)base, .cfa_off = s->reg[base]};
	if (!set_return_address(s, &rule))
		return (struct kiln_rule){.kind = KILN_RULE_INVALID};
	set_saved(s, CODE_FP, KILN_RULE_SAVED_FP, &rule, &rule.fp_off);
	set_saved(s, CODE_EXTRA, KILN_RULE_SAVED_EXTRA, &rule, &rule.extra_off);
	return rule;
}

/* ---- paths that meet --------------------------------------------------------------------------
 */

/*
 * Where the register of ROLE is saved when the paths with the states A and B meet. A path that does
 * not need a register does not save it. If only one path saved it and has not changed it since, the
 * register itself is right on both paths: not saved (0). Otherwise the slot of the path that saved
 * it.
 */
static int32_t join_saved(const struct code_state *a, const struct code_state *b, int role)
{
	int32_t in_a = a->saved[role], in_b = b->saved[role];
	int reg = role_register[role];

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
	for (int i = 0; i < ROLES; i++)
		to->saved[i] = join_saved(&old, from, i);
	to->is_outermost &= from->is_outermost;
	to->is_aligned &= from->is_aligned;
	return memcmp(&old, to, sizeof(old)) != 0;
}

/* ---- effects ----------------------------------------------------------------------------------
 */

void code_state_set(struct code_state *s, int reg, int64_t value)
{
	if (value < -CODE_OFFSET_MAX || value > CODE_OFFSET_MAX)
		value = CODE_UNKNOWN;
	s->reg[reg] = (int32_t)value;
	if (reg != ARCH_REG_SP || !code_is_known(s->reg[reg]))
		return;
	/* Slots below the stack pointer are not valid any more. */
	for (int i = 0; i < ROLES; i++)
		if (s->saved[i] > value)
			s->saved[i] = 0;
}

void code_state_store(struct code_state *s, int reg, int64_t slot)
{
	int role = role_of(reg);

	if (slot < ENTRY_DEPTH + CODE_WORD || slot > CODE_OFFSET_MAX || role < 0)
		return;
	if (s->reg[reg] == CODE_CALLER && !s->saved[role])
		s->saved[role] = (int32_t)slot;
}

void code_state_load(struct code_state *s, int reg, int64_t slot)
{
	int role = role_of(reg);

	s->reg[reg] = role >= 0 && slot && slot == s->saved[role] ? CODE_CALLER : CODE_UNKNOWN;
}

void code_state_clobber(struct code_state *s, const struct code_insn *insn)
{
	for (unsigned int w = insn->writes; w; w &= w - 1)
		s->reg[__builtin_ctz(w)] = CODE_UNKNOWN;
}
