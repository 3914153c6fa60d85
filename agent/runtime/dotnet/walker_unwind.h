/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Makes the rule for stepping out of a function; a part of walker.h. Each function, and each
 * exception handler in one, has UNWIND_INFO: what its prologue does, and from which instruction on
 * it is done (Microsoft, "x64 exception handling"; CoreCLR's own codes: v8.0.4,
 * src/coreclr/inc/win64unwind.h). Epilogues are recognized by their instructions: code that is
 * compiled for .NET frees its frame and pops registers nowhere else.
 */
#pragma once

/* UNWIND_CODE.UnwindOp */
enum {
	DOTNET_PUSH_NONVOL = 0,
	DOTNET_ALLOC_LARGE = 1,
	DOTNET_ALLOC_SMALL = 2,
	DOTNET_SET_FPREG = 3,
	DOTNET_SAVE_NONVOL = 4,
	DOTNET_SAVE_NONVOL_FAR = 5,
	DOTNET_SAVE_XMM128 = 8,
	DOTNET_SAVE_XMM128_FAR = 9,
	DOTNET_SET_FPREG_LARGE = 11,
};

enum {
	DOTNET_RBX = 3, /* as instructions number registers */
	DOTNET_RBP = 5,
	DOTNET_CODES = 32, /* unwind codes of one function, at most: any prologue takes fewer */
	DOTNET_CHAINED = 4,
	DOTNET_BYTES = 32,
	DOTNET_POPS = 9,
};

/* The distance from the CFA to the register that dotnet_saved() has noted as AT, in words. */
KILN_INLINE int16_t dotnet_words(uint64_t at, int32_t cfa)
{
	return (int16_t)(((int64_t)(int32_t)at - 1 - cfa) >> 3);
}

/*
 * Writes the rule that w->scratch describes to the cache entry of PC. The return address is at
 * DOTNET_POSITION.
 */
KILN_INLINE void dotnet_write_rule(struct kiln_walk *w, uint64_t pc, uint32_t more)
{
	struct kiln_cache_entry *entry = env_cache(w, pc);
	int32_t cfa = (int32_t)((uint32_t)w->scratch[DOTNET_POSITION] + 8);
	struct kiln_rule rule = {
	    .kind = KILN_RULE_CFA,
	    .reg = w->scratch[DOTNET_BY_FP] ? ARCH_REG_FP : ARCH_REG_SP,
	    .flags = KILN_RULE_RUNTIME,
	    .ra_off = ARCH_RA_OFFSET,
	    .cfa_off = cfa,
	    .deref_off = (int32_t)(more << 5 | KILN_RUNTIME_DOTNET),
	};

	if (!entry)
		return;
	if (w->scratch[DOTNET_FP_AT]) {
		rule.flags |= KILN_RULE_SAVED_FP;
		rule.fp_off = dotnet_words(w->scratch[DOTNET_FP_AT], cfa);
	}
	if (w->scratch[DOTNET_RBX_AT]) {
		rule.flags |= KILN_RULE_SAVED_EXTRA;
		rule.extra_off = dotnet_words(w->scratch[DOTNET_RBX_AT], cfa);
	}
	entry->rule = rule;
}

KILN_INLINE void dotnet_begin_rule(struct kiln_walk *w)
{
	w->scratch[DOTNET_POSITION] = w->scratch[DOTNET_AT] = 0;
	w->scratch[DOTNET_FP_AT] = w->scratch[DOTNET_RBX_AT] = w->scratch[DOTNET_BY_FP] = 0;
}

/*
 * Notes that the register REG, as instructions number it, is saved at POSITION. It is noted plus 1:
 * 0 is not saved.
 */
KILN_INLINE void dotnet_saved(struct kiln_walk *w, uint32_t reg, uint32_t position)
{
	if (reg == DOTNET_RBP)
		w->scratch[DOTNET_FP_AT] = position + 1;
	else if (reg == DOTNET_RBX)
		w->scratch[DOTNET_RBX_AT] = position + 1;
}

/* Returns slot I of the unwind codes in w->scratch: two bytes. */
KILN_INLINE uint32_t dotnet_code(const struct kiln_walk *w, uint64_t i)
{
	uint64_t at = i >> 2 & 7;

	asm volatile("" : "+r"(at));
	return (uint32_t)(w->scratch[DOTNET_NIBBLES + (at & 7)] >> (i & 3) * 16) & 0xffff;
}

/*
 * Applies the next unwind code. OFFSET: how far into its function the pc is. FRAME: frame register
 * and its offset. Returns how many slots the code has; 0: it is not known.
 */
KILN_GLOBAL int dotnet_undo(uint32_t slot, uint32_t offset, uint32_t frame)
{
	struct kiln_walk *w = env_walk(slot);
	uint32_t code, op, info, next, position, slots = 1, size = 0;
	uint64_t at;

	if (!w)
		return 0;
	at = w->scratch[DOTNET_AT];
	code = dotnet_code(w, at);
	next = dotnet_code(w, at + 1);
	op = code >> 8 & 15;
	info = code >> 12;
	position = (uint32_t)w->scratch[DOTNET_POSITION];
	switch (op) {
	case DOTNET_PUSH_NONVOL:
		size = 8;
		break;
	case DOTNET_ALLOC_SMALL:
		size = info * 8 + 8;
		break;
	case DOTNET_ALLOC_LARGE:
		slots = info ? 3 : 2;
		size = info ? next | dotnet_code(w, at + 2) << 16 : next * 8;
		break;
	case DOTNET_SET_FPREG:
		break;
	case DOTNET_SET_FPREG_LARGE:
		slots = 3;
		break;
	case DOTNET_SAVE_NONVOL:
	case DOTNET_SAVE_XMM128:
		slots = 2;
		break;
	case DOTNET_SAVE_NONVOL_FAR:
	case DOTNET_SAVE_XMM128_FAR:
		slots = 3;
		break;
	default:
		return 0;
	}
	if ((code & 0xff) > offset)
		return (int)slots;
	if (op == DOTNET_SET_FPREG || op == DOTNET_SET_FPREG_LARGE) {
		if ((frame & 15) != DOTNET_RBP)
			return 0;
		position = op == DOTNET_SET_FPREG ? (frame >> 4) * 16
						  : (next | dotnet_code(w, at + 2) << 16) * 16;
		position = 0 - position;
		w->scratch[DOTNET_BY_FP] = 1;
		/* What was saved after this counts from rsp: make it count from rbp. */
		if (w->scratch[DOTNET_FP_AT])
			w->scratch[DOTNET_FP_AT] += (uint64_t)(int64_t)(int32_t)position;
		if (w->scratch[DOTNET_RBX_AT])
			w->scratch[DOTNET_RBX_AT] += (uint64_t)(int64_t)(int32_t)position;
	} else if (op == DOTNET_PUSH_NONVOL) {
		dotnet_saved(w, info, position);
	} else if (op == DOTNET_SAVE_NONVOL) {
		dotnet_saved(w, info, next * 8);
	} else if (op == DOTNET_SAVE_NONVOL_FAR) {
		dotnet_saved(w, info, next | dotnet_code(w, at + 2) << 16);
	}
	w->scratch[DOTNET_POSITION] = position + size;
	return (int)slots;
}

/* Makes the rule for PC from the unwind information of its function in w->scratch. 0; 1: it makes
 * no sense; -1: it cannot be read. */
KILN_GLOBAL int dotnet_by_codes(uint32_t slot, uint64_t pc, uint32_t more)
{
	struct kiln_walk *w = env_walk(slot);
	const struct kiln_dotnet_function *f;
	uint8_t head[4] = {};
	uint64_t at;
	uint32_t size, offset;

	if (!w)
		return -1;
	f = (const struct kiln_dotnet_function *)(w->scratch + DOTNET_FUNCTION);
	at = w->scratch[DOTNET_BASE] + f->unwind;
	offset = (uint32_t)(pc - w->scratch[DOTNET_BASE]) - f->begin;
	/* Version and flags, bytes of the prologue, number of codes, frame register and its offset.
	 */
	if (env_read(head, 4, at))
		return -1;
	if ((head[0] & 7) != 1 || head[0] >> 3 & DOTNET_CHAINED || head[2] > DOTNET_CODES)
		return 1;
	size = head[2] * 2;
	asm volatile("" : "+r"(size));
	if (size > DOTNET_CODES * 2 ||
	    (size && env_read(w->scratch + DOTNET_NIBBLES, size, at + 4)))
		return -1;
	dotnet_begin_rule(w);
	for (int i = 0; i < DOTNET_CODES && w->scratch[DOTNET_AT] < head[2]; i++) {
		int slots = dotnet_undo(slot, offset, head[3]);

		if (!slots)
			return 1;
		w->scratch[DOTNET_AT] += (uint32_t)slots;
	}
	dotnet_write_rule(w, pc, more);
	return 0;
}

/* Does a jump of SIZE bytes at PC, by DISTANCE, leave the function in w->scratch? */
KILN_INLINE int dotnet_jumps_out(const struct kiln_walk *w, uint64_t pc, int64_t distance)
{
	const struct kiln_dotnet_function *f =
	    (const struct kiln_dotnet_function *)(w->scratch + DOTNET_FUNCTION);
	uint64_t to = pc + (uint64_t)distance - w->scratch[DOTNET_BASE];

	return to < f->begin || to >= f->end;
}

KILN_INLINE int32_t dotnet_int(const uint8_t *p)
{
	return (int32_t)((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
			 (uint32_t)p[3] << 24);
}

/* Is the instruction P, at PC, one that an epilogue ends with? */
KILN_INLINE int dotnet_is_end(const struct kiln_walk *w, uint64_t pc, const uint8_t *p)
{
	/* ret; rep ret */
	if (p[0] == 0xc3 || (p[0] == 0xf3 && p[1] == 0xc3))
		return 1;
	/* A tail call: jmp rel8, jmp rel32, jmp *n(%rip), and jmp *%reg with a REX.W prefix. */
	if (p[0] == 0xeb)
		return dotnet_jumps_out(w, pc, 2 + (int8_t)p[1]);
	if (p[0] == 0xe9)
		return dotnet_jumps_out(w, pc, 5 + (int64_t)dotnet_int(p + 1));
	if (p[0] == 0xff && p[1] == 0x25)
		return 1;
	return p[0] == 0x48 && p[1] == 0xff && (p[2] & 0xf8) == 0xe0;
}

/*
 * Makes the rule for PC, which is where execution is, if that is in an epilogue: the frame is freed
 * (add to rsp, or lea from rbp), registers are popped, and the function ends. Returns 0: it is in
 * none.
 */
KILN_GLOBAL int dotnet_by_epilogue(uint32_t slot, uint64_t pc, uint32_t more)
{
	struct kiln_walk *w = env_walk(slot);
	uint8_t code[DOTNET_BYTES + 8] = {};
	uint64_t at = 0;
	const uint8_t *p = code;
	uint32_t position = 0;

	if (!w || env_read(code, DOTNET_BYTES, pc))
		return 0;
	dotnet_begin_rule(w);
	if (p[0] == 0x48 && p[1] == 0x83 && p[2] == 0xc4) {
		position = (uint32_t)(int8_t)p[3];
		at = 4;
	} else if (p[0] == 0x48 && p[1] == 0x81 && p[2] == 0xc4) {
		position = (uint32_t)dotnet_int(p + 3);
		at = 7;
	} else if (p[0] == 0x48 && p[1] == 0x8d && p[2] == 0x65) {
		position = (uint32_t)(int8_t)p[3];
		w->scratch[DOTNET_BY_FP] = 1;
		at = 4;
	} else if (p[0] == 0x48 && p[1] == 0x8d && p[2] == 0xa5) {
		position = (uint32_t)dotnet_int(p + 3);
		w->scratch[DOTNET_BY_FP] = 1;
		at = 7;
	}
	for (int i = 0; i < DOTNET_POPS; i++) {
		uint32_t reg;

		asm volatile("" : "+r"(at));
		at &= DOTNET_BYTES - 1;
		reg = code[at] == 0x41 ? 8 : 0;
		if ((code[at + (reg ? 1 : 0)] & 0xf8) != 0x58)
			break;
		reg += code[at + (reg ? 1 : 0)] & 7;
		dotnet_saved(w, reg, position);
		position += 8;
		at += reg & 8 ? 2 : 1;
	}
	asm volatile("" : "+r"(at));
	at &= DOTNET_BYTES - 1;
	if (!dotnet_is_end(w, pc + at, code + at))
		return 0;
	w->scratch[DOTNET_POSITION] = position;
	dotnet_write_rule(w, pc, more);
	return 1;
}

/* Makes the rule for PC in code without a frame: the return address is SKIP bytes above rsp. */
KILN_INLINE void dotnet_bare(struct kiln_walk *w, uint64_t pc, uint32_t skip, uint32_t more)
{
	dotnet_begin_rule(w);
	w->scratch[DOTNET_POSITION] = skip;
	dotnet_write_rule(w, pc, more);
}
