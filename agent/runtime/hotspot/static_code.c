/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes unwind rules for the JVM's own code, from its instructions (agent/elf/code_flow.h). Most
 * stubs are functions. A stub that compiled code jumps to is in that code's frame: no return
 * address was pushed, it is in rdx. The frame size that the JVM gives for a stub tells which of the
 * two it is.
 *
 * The interpreter's frame is left by its frame pointer, but for two moments (src/hotspot/cpu/x86/
 * templateInterpreterGenerator_x86.cpp, generate_normal_entry(), generate_fixed_frame();
 * interp_masm_x86.cpp, remove_activation()). A method is entered with its Method in rbx and its
 * caller's stack pointer in r13; the return address is popped while the locals are made, and pushed
 * again. The frame's first slot, at rbp - 8, holds the caller's stack pointer. While a method
 * returns, rbx holds the caller's stack pointer, and another register the return address.
 *
 * Each piece of code is analysed on its own. Which registers hold what at its entries follows from
 * the kind of code that it is. Loop thread; no state is kept between calls.
 */
#include "agent/runtime/hotspot/hotspot.h"

#include <elf.h>

#include "agent/elf/code_flow.h"
#include "agent/elf/rows.h"
#include "bpf/arch.h"

enum {
	RUNS_MAX = 16, /* entries of a piece that are followed */
	STEPS_PER_BYTE = 4,
	FRAME_SAVED = 16, /* rbp and the return address */
	DWARF_RDX = 1,
	DWARF_RBX = 3,
	DWARF_R13 = 13,
	LEAVE = 0xc9,
	PUSH_RBP = 0x55,
	NAME_BYTES = 64,
	PAGE = 4096, /* the smallest there is */
};

struct builder {
	const struct hotspot_process *p;
	const struct target_memory *memory;
	struct rows rows;
	struct code_flow flow;
	struct image image;
	struct image_segment segment;
	uint8_t *bytes;		/* of the current piece */
	struct kiln_rule *rule; /* by offset; kind KILN_RULE_INVALID: none */
	uint8_t *reached;	/* by offset: an instruction begins there */
	size_t cap, size;
};

/* Adds to RULE what the walker has to know of the code: CODE (enum kiln_hotspot_code) and FLAGS. */
static struct kiln_rule of_runtime(struct kiln_rule rule, uint32_t code, uint32_t flags)
{
	rule.flags |= KILN_RULE_RUNTIME;
	rule.deref_off =
	    (int32_t)(KILN_RUNTIME_HOTSPOT | code << KILN_HOTSPOT_RULE_CODE_SHIFT | flags);
	return rule;
}

/* The rule of code that is in no piece: the walker looks at the blob. */
static struct kiln_rule other_rule(void)
{
	return of_runtime((struct kiln_rule){.kind = KILN_RULE_FP, .flags = KILN_RULE_GUESS}, 0, 0);
}

static struct kiln_rule stub_rule(struct kiln_rule rule)
{
	return of_runtime(rule, KILN_HOTSPOT_CODE_STUB, 0);
}

static bool is_known(int32_t value)
{
	return value < CODE_RETURN_ADDRESS;
}

/* ---- reading ----------------------------------------------------------------------------------
 */

static int read_piece(struct builder *b, const struct hotspot_piece *piece)
{
	size_t size = (size_t)MIN(piece->end - piece->start, (uint64_t)CODE_FUNCTION_MAX);

	if (size > b->cap) {
		free(b->bytes);
		free(b->rule);
		free(b->reached);
		b->bytes = malloc(size);
		b->rule = malloc(size * sizeof(*b->rule));
		b->reached = malloc(size);
		b->cap = b->bytes && b->rule && b->reached ? size : 0;
		if (!b->cap)
			return -ENOMEM;
	}
	b->size = size;
	memset(b->rule, 0, size * sizeof(*b->rule));
	memset(b->reached, 0, size);
	if (target_read(b->memory, piece->start, b->bytes, size) < 0)
		return -EFAULT;
	b->segment = (struct image_segment){
	    .vaddr = piece->start, .memsz = size, .filesz = size, .flags = PF_R | PF_X};
	b->image = (struct image){
	    .data = b->bytes, .size = size, .segments = &b->segment, .n_segments = 1, .fd = -1};
	b->flow.image = &b->image;
	b->flow.n_seeds = 0;
	b->flow.budget = (uint64_t)size * STEPS_PER_BYTE + 4096;
	return 0;
}

/* Does the text at ADDRESS contain PART? */
static bool says(const struct builder *b, uint64_t address, const char *part)
{
	char text[NAME_BYTES + 1] = "";
	/* The text may end right before a page that is not there. */
	size_t n = MIN((size_t)NAME_BYTES, (size_t)(PAGE - address % PAGE));

	if (target_read(b->memory, address, text, n) == 0 && n < NAME_BYTES &&
	    !memchr(text, 0, n) &&
	    target_read(b->memory, address + n, text + n, NAME_BYTES - n) < 0)
		text[n] = 0;
	return strstr(text, part) != NULL;
}

/* Finds the first instruction from OFFSET on that was not reached yet and is no padding. */
static bool next_unreached(struct builder *b, uint32_t offset, uint32_t *ret)
{
	while (offset < b->size) {
		struct code_insn insn;
		struct cursor c = cursor_of(b->bytes, b->size);

		cursor_seek(&c, offset);
		if (!code_decode(c, b->segment.vaddr + offset, true, &insn))
			return false;
		if (!b->reached[offset] && !insn.is_padding && insn.flow != CODE_HALT) {
			*ret = offset;
			return true;
		}
		offset += insn.size;
	}
	return false;
}

/* ---- stubs ------------------------------------------------------------------------------------
 */

/* The state at an entry. JUMPED: the stub is jumped to, so no return address was pushed. */
static struct code_state entry_state(bool jumped)
{
	struct code_state s = code_state_at_entry();

	s.is_aligned = 1;
	if (jumped)
		s.reg[ARCH_REG_SP] = 0;
	return s;
}

static struct kiln_rule rule_of(const struct code_state *s)
{
	if (s->reg[ARCH_REG_SP] == 0)
		return (struct kiln_rule){
		    .kind = KILN_RULE_RA_REG, .reg = ARCH_REG_SP, .ra_off = DWARF_RDX};
	return code_state_rule(s);
}

/* Is the stub at FROM jumped to? It was followed as a function: where it calls, its stack is then
 * deeper than the FRAME words that the JVM says, by a return address and what aligns that. */
static bool is_jumped_to(struct builder *b, uint32_t from, uint32_t frame)
{
	for (uint32_t i = from; frame && i < b->size; i++) {
		const struct code_state *s = code_flow_at(&b->flow, i - from);
		struct code_insn insn;

		if (!s || !code_flow_insn(&b->flow, i - from, &insn) || insn.flow != CODE_CALL ||
		    !is_known(s->reg[ARCH_REG_SP]))
			continue;
		return s->reg[ARCH_REG_SP] > (int32_t)frame * 8 &&
		       s->reg[ARCH_REG_SP] <= (int32_t)frame * 8 + FRAME_SAVED;
	}
	return false;
}

static int follow(struct builder *b, uint32_t from, const struct code_state *state)
{
	return code_flow_run(&b->flow, b->segment.vaddr + from, (uint32_t)b->size - from, true,
			     state);
}

static void keep_stub(struct builder *b, uint32_t from)
{
	for (uint32_t i = from; i < b->size; i++) {
		const struct code_state *s = code_flow_at(&b->flow, i - from);

		if (!s || b->reached[i])
			continue;
		b->reached[i] = 1;
		b->rule[i] = rule_of(s);
	}
}

/*
 * The stub generic_arraycopy does not begin with its entry but with a jump to its error exit. Code
 * behind the entry branches to that jump, with a short instruction (generate_generic_copy(),
 * src/hotspot/cpu/x86/stubGenerator_x86_64_arraycopy.cpp). If the code of B begins so, returns
 * true: the jump is *JUMP at offset *AT, the entry at offset *ENTRY.
 */
static bool jump_before_entry(struct builder *b, struct code_insn *jump, uint32_t *at,
			      uint32_t *entry)
{
	struct cursor c = cursor_of(b->bytes, b->size);

	if (!next_unreached(b, 0, at))
		return false;
	cursor_seek(&c, *at);
	if (!code_decode(c, b->segment.vaddr + *at, true, jump) || jump->flow != CODE_JUMP)
		return false;
	*entry = *at + jump->size;
	return *entry < b->size && b->bytes[*entry] == PUSH_RBP;
}

/* Follows the code of PIECE from all places that are entered from elsewhere. */
static int follow_stub(struct builder *b, const struct hotspot_piece *piece)
{
	int runs = piece->kind == HOTSPOT_PIECE_STUB ? 1 : RUNS_MAX;
	uint32_t from = 0, jump_at = 0;
	struct code_insn jump = {};
	bool jumps =
	    piece->kind == HOTSPOT_PIECE_STUB && jump_before_entry(b, &jump, &jump_at, &from);

	if (!jumps)
		from = 0;

	for (int i = 0; i < runs && from < b->size; i++) {
		struct code_state state = entry_state(false);
		int r = follow(b, from, &state);

		if (r == 0 && is_jumped_to(b, from, piece->frame)) {
			state = entry_state(true);
			r = follow(b, from, &state);
		}
		if (r < 0)
			return r;
		keep_stub(b, from);
		b->reached[from] = 1;
		if (!next_unreached(b, from, &from))
			break;
	}
	if (jumps && jump.target - piece->start < b->size) {
		b->rule[jump_at] = b->rule[jump.target - piece->start];
		b->reached[jump_at] = b->reached[jump.target - piece->start];
	}
	return 0;
}

/*
 * Makes rules for a stub that takes the frame of compiled code off the stack and builds frames of
 * the interpreter: there the analysis knows no frame. rbp leads from one new frame to the next.
 * Before the first of them is pushed, the return address is at the stack pointer, and then right
 * below it.
 */
static void bridge_frames(struct builder *b)
{
	static const uint8_t drop[] = {0x48, 0x03, 0xe1}, /* add %rcx,%rsp */
	    pop[] = {0x48, 0x83, 0xc4, 0x08},		  /* add $8,%rsp */
	    grow[] = {0x48, 0x2b, 0xe3};		  /* sub %rbx,%rsp */
	const struct kiln_rule top = {
	    .kind = KILN_RULE_CFA, .reg = ARCH_REG_SP, .cfa_off = 8, .ra_off = ARCH_RA_OFFSET};
	struct kiln_rule rule = {.kind = KILN_RULE_INVALID};

	for (size_t i = 0; i + 4 < b->size; i++) {
		struct code_insn insn;
		struct cursor c = cursor_of(b->bytes, b->size);

		if (!b->reached[i])
			continue;
		if (rule.kind && b->rule[i].kind == KILN_RULE_INVALID)
			b->rule[i] = rule;
		cursor_seek(&c, i);
		if (!code_decode(c, b->segment.vaddr + i, true, &insn))
			continue;
		if (same_bytes(b->bytes + i, drop, sizeof(drop))) {
			/* the next instruction loads rbp from elsewhere */
			rule = top;
		} else if (rule.kind && same_bytes(b->bytes + i, pop, sizeof(pop))) {
			rule.cfa_off = 0;
			rule.flags = KILN_RULE_SWITCH;
		} else if (same_bytes(b->bytes + i, grow, sizeof(grow))) {
			rule = (struct kiln_rule){.kind = KILN_RULE_FP};
		} else if (rule.kind == KILN_RULE_FP && b->bytes[i] == LEAVE) {
			rule = top;
		}
	}
}

/*
 * A stub that thaws a virtual thread's frames (generate_cont_thaw(),
 * src/hotspot/cpu/x86/stubGenerator_x86_64.cpp). It calls the JVM twice: first for the size of the
 * frames, and, after it has lowered rsp by that, to copy them from the heap to the stack.
 * The stub cont_preempt (JDK 24 and later) never lowers rsp: the first rule holds in all of it.
 */
static int add_thaw(struct builder *b, const struct hotspot_piece *piece)
{
	static const uint8_t grow[] = {0x48, 0x2b, 0xe3}; /* sub %rbx,%rsp */
	struct kiln_rule rule;
	int r = read_piece(b, piece);
	size_t room = 0;

	if (r < 0)
		return r == -EFAULT ? 0 : r;
	while (room + sizeof(grow) < b->size && !same_bytes(b->bytes + room, grow, sizeof(grow)))
		room++;
	rule = of_runtime((struct kiln_rule){.kind = KILN_RULE_INVALID}, KILN_HOTSPOT_CODE_THAW,
			  KILN_HOTSPOT_STILL_FROZEN);
	rows_add(&b->rows, piece->start, &rule);
	if (room + sizeof(grow) < b->size) {
		rule = of_runtime((struct kiln_rule){.kind = KILN_RULE_INVALID},
				  KILN_HOTSPOT_CODE_THAW, 0);
		rows_add(&b->rows, piece->start + room + sizeof(grow), &rule);
	}
	rule = other_rule();
	rows_add(&b->rows, piece->end, &rule);
	return 0;
}

static int add_stub(struct builder *b, const struct hotspot_piece *piece)
{
	struct kiln_rule rule = {.kind = KILN_RULE_FP, .flags = KILN_RULE_GUESS};
	int r;

	/* The JVM does not say which stubs are in this blob. */
	if (piece->kind == HOTSPOT_PIECE_BLOB && says(b, piece->name, "StubRoutines"))
		return 0;
	/* A stub for continuations: the walker steps out of it. */
	if (piece->kind == HOTSPOT_PIECE_STUB &&
	    (says(b, piece->name, "cont_") || says(b, piece->name, "Cont ")))
		return add_thaw(b, piece);
	r = read_piece(b, piece);
	if (r == 0)
		r = follow_stub(b, piece);
	if (r < 0)
		return r == -EFAULT ? 0 : r;
	bridge_frames(b);
	for (size_t i = 0; i < b->size; i++) {
		if (!b->reached[i])
			continue;
		rule = b->rule[i];
		if (rule.kind == KILN_RULE_INVALID || rule.kind == KILN_RULE_DEREF)
			rule = (struct kiln_rule){.kind = KILN_RULE_FP, .flags = KILN_RULE_GUESS};
		rule = stub_rule(rule);
		rows_add(&b->rows, piece->start + i, &rule);
	}
	rule = other_rule();
	rows_add(&b->rows, piece->end, &rule);
	return 0;
}

/* ---- the interpreter --------------------------------------------------------------------------
 */

static struct kiln_rule frame_rule(uint32_t flags)
{
	return of_runtime((struct kiln_rule){.kind = KILN_RULE_FP}, KILN_HOTSPOT_CODE_INTERPRETER,
			  flags);
}

/* The state within an interpreted method's frame: only rbp is known. */
static struct code_state frame_state(void)
{
	struct code_state s = code_state_at_entry();

	for (int i = 0; i < CODE_REGS; i++)
		s.reg[i] = CODE_UNKNOWN;
	s.reg[ARCH_REG_FP] = s.saved[CODE_FP] = FRAME_SAVED;
	return s;
}

/*
 * Makes the rule for the state S of the interpreter if the frame is not built yet, or is gone.
 * False: the frame is there. ENTERS: the code enters a method.
 */
static bool bare_rule(const struct builder *b, const struct code_state *s, bool enters,
		      struct kiln_rule *ret)
{
	uint32_t flags = enters ? KILN_HOTSPOT_ENTERS : 0;
	int32_t full = FRAME_SAVED + b->p->kernel.frame_bytecode + 8, sp = s->reg[ARCH_REG_SP];

	if (is_known(sp) && sp >= 8) {
		if (s->reg[ARCH_REG_FP] == FRAME_SAVED && sp >= full)
			return false;
		if (!enters && s->reg[ARCH_REG_FP] == CODE_CALLER)
			flags = KILN_HOTSPOT_LEAVES;
		if (s->reg[ARCH_REG_FP] == FRAME_SAVED && sp > FRAME_SAVED)
			flags |= KILN_HOTSPOT_SENDER_SAVED;
		*ret = (struct kiln_rule){.kind = KILN_RULE_CFA,
					  .reg = ARCH_REG_SP,
					  .ra_off = ARCH_RA_OFFSET,
					  .cfa_off = sp};
		if (s->saved[CODE_FP]) {
			ret->flags = KILN_RULE_SAVED_FP;
			ret->fp_off = (int16_t)(-s->saved[CODE_FP] / 8);
		}
		*ret = of_runtime(*ret, KILN_HOTSPOT_CODE_BARE, flags);
		return true;
	}
	for (int i = 0; i < CODE_REGS && s->reg[ARCH_REG_FP] == CODE_CALLER; i++) {
		if (s->reg[i] != CODE_RETURN_ADDRESS)
			continue;
		*ret = of_runtime((struct kiln_rule){.kind = KILN_RULE_RA_REG,
						     .reg = enters ? DWARF_R13 : DWARF_RBX,
						     .ra_off = (int8_t)i},
				  KILN_HOTSPOT_CODE_BARE, flags);
		return true;
	}
	return false;
}

static void keep_codelet(struct builder *b, uint32_t from, bool enters)
{
	for (uint32_t i = from; i < b->size; i++) {
		const struct code_state *s = code_flow_at(&b->flow, i - from);

		if (!s || b->reached[i])
			continue;
		b->reached[i] = 1;
		(void)bare_rule(b, s, enters, &b->rule[i]);
	}
}

static int follow_codelet(struct builder *b, bool enters)
{
	uint32_t from = 0;

	for (int i = 0; i < (enters ? 1 : RUNS_MAX) && from < b->size; i++) {
		struct code_state state = enters ? code_state_at_entry() : frame_state();
		int r = follow(b, from, &state);

		if (r < 0)
			return r;
		keep_codelet(b, from, enters);
		b->reached[from] = 1;
		if (!next_unreached(b, from, &from))
			break;
	}
	return 0;
}

/* Where a method goes on after a call, only its frame has the bytecode pointer. */
static uint32_t codelet_flags(const struct builder *b, const struct hotspot_piece *piece)
{
	return piece->bytecode < 0 && (says(b, piece->name, "return entry points") ||
				       says(b, piece->name, "deoptimization entry points"))
		   ? KILN_HOTSPOT_BYTECODE_SAVED
		   : 0;
}

static int add_codelet(struct builder *b, const struct hotspot_piece *piece)
{
	bool enters = piece->bytecode < 0 && says(b, piece->name, "method entry point");
	struct kiln_rule frame = frame_rule(codelet_flags(b, piece));
	int r = read_piece(b, piece);

	rows_add(&b->rows, piece->start, &frame);
	if (r == 0 && (enters || memchr(b->bytes, LEAVE, b->size)))
		r = follow_codelet(b, enters);
	for (size_t i = 0; r == 0 && i < b->size; i++)
		if (b->reached[i])
			rows_add(&b->rows, piece->start + i,
				 b->rule[i].kind ? &b->rule[i] : &frame);
	frame = frame_rule(0);
	rows_add(&b->rows, piece->end, &frame);
	return r == -EFAULT ? 0 : r;
}

/* ---- all of it --------------------------------------------------------------------------------
 */

static void builder_done(struct builder *b)
{
	rows_done(&b->rows);
	code_flow_done(&b->flow);
	free(b->bytes);
	free(b->rule);
	free(b->reached);
}

int hotspot_static_table(const struct hotspot_process *p, const struct target_memory *memory,
			 const struct hotspot_pieces *pieces, struct unwind_table **ret)
{
	_cleanup_(builder_done) struct builder b = {.p = p, .memory = memory};
	struct kiln_rule rule = other_rule();
	bool inside = false;
	int r;

	if (!pieces->n)
		return -EAGAIN;
	r = rows_init(&b.rows, pieces->v[0].start, pieces->v[pieces->n - 1].end);
	if (r == 0)
		rows_add(&b.rows, pieces->v[0].start & ~1023ULL, &rule);
	for (size_t i = 0; r == 0 && i < pieces->n; i++) {
		const struct hotspot_piece *piece = &pieces->v[i];

		/* The interpreter's blob has only codelets, up to its end. */
		if (inside && piece->kind != HOTSPOT_PIECE_CODELET) {
			rule = other_rule();
			rows_add(&b.rows, pieces->interpreter_end, &rule);
		}
		inside = piece->kind == HOTSPOT_PIECE_CODELET;
		r = inside ? add_codelet(&b, piece) : add_stub(&b, piece);
	}
	return r < 0 ? r : rows_finish(&b.rows, ret);
}
