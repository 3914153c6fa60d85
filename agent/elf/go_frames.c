// SPDX-License-Identifier: Apache-2.0
/*
 * Unwind rows of Go functions.
 *
 * The pc-SP table tells how many bytes lie between SP and the return address, so CFA = rsp + that
 * + 8. The caller's rbp is at CFA - 16 once the prologue has stored it; which instruction does so
 * differs (push since Go 1.21, a store behind the sub before) and is looked up in the code, because
 * rows are wrong for the leaf frame otherwise.
 *
 * Functions that move to another stack: Go: src/runtime/asm_amd64.s, sys_linux_amd64.s
 * - systemstack, asmcgocall, cgocallback and the callers of the vDSO (nanotime1, walltime) store
 * rbp like any function and leave it alone while SP changes, so from then on rbp leads to the
 * caller, on whatever stack that is: KILN_RULE_FP with KILN_RULE_SWITCH.
 * - mcall, morestack, gogo and clone do not come back: once SP has changed, the stack ends there.
 * - goexit, mstart, rt0_go and the entry point are the outermost functions.
 * - sigtramp is called by the signal trampoline, which has the kernel's frame: the walk goes on.
 * Stateless; any thread.
 */
#include "agent/elf/go_frames.h"

#include "agent/elf/arch.h"

enum {
	PROLOGUE_MAX = 192,  /* bytes in which rbp is stored, the stack check included */
	FUNCTION_ALIGN = 32, /* Go: cmd/link/internal/amd64/l.go, funcAlign */
	BP_OFFSET = -16,     /* of the saved rbp from the CFA */
};

enum go_kind {
	GO_PLAIN,
	GO_OUTERMOST, /* KILN_RULE_STOP everywhere */
	GO_SWITCHES,  /* rbp leads across the stacks */
	GO_WRITES_SP, /* some other function that loads SP: so does rbp, if it was saved */
	GO_LEAVES,    /* no way back once SP is loaded */
	GO_TRAMPOLINE,
};

static const struct {
	const char *name; /* behind "runtime." */
	enum go_kind kind;
} special[] = {
    {"goexit", GO_OUTERMOST},
    {"goexit.abi0", GO_OUTERMOST},
    {"mstart", GO_OUTERMOST},
    {"mstart.abi0", GO_OUTERMOST},
    {"rt0_go", GO_OUTERMOST},
    {"rt0_go.abi0", GO_OUTERMOST},
    {"systemstack", GO_SWITCHES},
    {"systemstack.abi0", GO_SWITCHES},
    {"asmcgocall", GO_SWITCHES},
    {"asmcgocall.abi0", GO_SWITCHES},
    {"asmcgocall_no_g", GO_SWITCHES},
    {"cgocallback", GO_SWITCHES},
    {"cgocallback.abi0", GO_SWITCHES},
    {"cgocallback_gofunc", GO_SWITCHES},
    {"nanotime1", GO_SWITCHES},
    {"walltime1", GO_SWITCHES},
    {"walltime", GO_SWITCHES},
    {"mcall", GO_LEAVES},
    {"morestack", GO_LEAVES},
    {"gogo", GO_LEAVES},
    {"clone", GO_LEAVES},
    {"switchToCrashStack0", GO_LEAVES},
    {"sigreturn", GO_TRAMPOLINE},
    {"sigreturn__sigaction", GO_TRAMPOLINE},
};

static enum go_kind kind_of(const struct gopclntab_func *f)
{
	const char *name = f->name;

	if (has_prefix(name, "_rt0_"))
		return GO_OUTERMOST;
	if (has_prefix(name, "runtime.")) {
		for (size_t i = 0; i < ARRAY_SIZE(special); i++)
			if (streq(name + 8, special[i].name))
				return special[i].kind;
	} else if (streq(name, "gogo")) { /* file-local since Go 1.17 */
		return GO_LEAVES;
	}
	return f->flags & GOPCLNTAB_SPWRITE ? GO_WRITES_SP : GO_PLAIN;
}

int go_frames_collect(const struct image *image, const struct gopclntab *t, struct spans *spans)
{
	for (size_t i = 0; i < gopclntab_count(t); i++) {
		struct gopclntab_func f;
		int r;

		if (!gopclntab_at(t, i, &f) || f.end - f.entry > SPAN_SIZE_MAX)
			continue;
		if (!image_is_code(image, f.entry))
			continue;
		/* The trampoline is only returned to, and a return address is looked up a byte
		 * before. */
		if (kind_of(&f) == GO_TRAMPOLINE)
			f.entry--;
		r = spans_add(spans, &(struct span){.start = f.entry,
						    .size = (uint32_t)(f.end - f.entry),
						    .source = SPAN_GO,
						    .item = (uint32_t)i});
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- code --------------------------------------------------------------------------------------
 */

struct code {
	struct cursor bytes; /* of the function */
	uint64_t entry;
};

static const uint8_t *bytes_at(const struct code *code, uint64_t vaddr, size_t n)
{
	uint64_t at = vaddr - code->entry;

	if (code->bytes.bad || at > code->bytes.size || n > code->bytes.size - at)
		return NULL;
	return code->bytes.data + at;
}

/* mov %rbp, disp(%rsp): its length and displacement; 0 when it is something else. */
static size_t stores_bp(const uint8_t *p, int32_t *ret_disp)
{
	if (!p || p[0] != 0x48 || p[1] != 0x89)
		return 0;
	if (p[2] == 0x2c && p[3] == 0x24) {
		*ret_disp = 0;
		return 4;
	}
	if (p[2] == 0x6c && p[3] == 0x24) {
		*ret_disp = (int8_t)p[4];
		return 5;
	}
	if (p[2] == 0xac && p[3] == 0x24) {
		memcpy(ret_disp, p + 4, 4);
		return 8;
	}
	return 0;
}

/* The first instruction that moves SP elsewhere: mov something, %rsp or and $n, %rsp; or the end.
 */
static uint64_t first_sp_load(const struct code *code, uint64_t end)
{
	for (uint64_t at = code->entry; at < end; at++) {
		const uint8_t *p = bytes_at(code, at, 3);

		if (!p)
			break;
		if ((p[0] == 0x48 || p[0] == 0x49) &&
		    ((p[1] == 0x8b && (p[2] & 0x38) == 0x20) || /* mov r/m, %rsp */
		     (p[1] == 0x89 && (p[2] & 0xc7) == 0xc4) || /* mov r, %rsp */
		     (p[1] == 0x83 && p[2] == 0xe4)))		/* and $n, %rsp */
			return at;
	}
	return end;
}

/* ---- rows --------------------------------------------------------------------------------------
 */

struct writer {
	const struct span *span;
	struct rows *rows;
	struct code code;
	enum go_kind kind;
	uint64_t sp_load; /* from here on SP is another stack's (kinds that move) */
	int32_t before;	  /* SP delta of the run before */
	bool has_bp;	  /* the prologue's store is behind us */
};

static void add_row(const struct writer *w, uint64_t start, uint64_t end, struct kiln_rule rule)
{
	start = MAX(start, w->span->start);
	if (start < MIN(end, span_end(w->span)))
		rows_add(w->rows, start, &rule);
}

static struct kiln_rule rule_of(const struct writer *w, int32_t delta)
{
	struct kiln_rule rule = {.kind = KILN_RULE_CFA,
				 .reg = ARCH_REG_SP,
				 .ra_off = ARCH_RA_OFFSET,
				 .cfa_off = delta + 8};

	if (delta < 0 || delta > INT32_MAX - 8)
		return (struct kiln_rule){.kind = KILN_RULE_INVALID};
	if (w->has_bp && delta >= 8) {
		rule.flags = KILN_RULE_SAVED_FP;
		rule.fp_off = BP_OFFSET / 8;
	}
	return rule;
}

/* Rows of a function that may run on another stack than its caller. */
static struct kiln_rule rule_elsewhere(const struct writer *w, int32_t delta)
{
	if (w->kind == GO_LEAVES)
		return (struct kiln_rule){.kind = KILN_RULE_STOP};
	/* Frameless before Go 1.21: rbp is the caller's, and the walk skips just that caller. */
	if (!w->has_bp && w->kind != GO_SWITCHES)
		return (struct kiln_rule){.kind = KILN_RULE_INVALID};
	if (w->has_bp && delta < 8) /* behind the pop */
		return rule_of(w, delta);
	return (struct kiln_rule){.kind = KILN_RULE_FP,
				  .reg = ARCH_REG_FP,
				  .flags = KILN_RULE_SAVED_FP | KILN_RULE_SWITCH,
				  .ra_off = ARCH_RA_OFFSET,
				  .cfa_off = 16,
				  .fp_off = BP_OFFSET / 8};
}

static void add_rows(const struct writer *w, uint64_t start, uint64_t end, int32_t delta)
{
	bool moves = w->kind >= GO_SWITCHES && w->kind <= GO_LEAVES;

	if (!moves || start < w->sp_load)
		add_row(w, start, moves ? MIN(end, w->sp_load) : end, rule_of(w, delta));
	if (moves && end > w->sp_load)
		add_row(w, MAX(start, w->sp_load), end, rule_elsewhere(w, delta));
}

/* Finds the store of rbp inside of RUN; before it the register still is the caller's. */
static void add_run(struct writer *w, const struct gopclntab_run *run)
{
	uint64_t start = run->start, limit = MIN(run->end, w->code.entry + PROLOGUE_MAX);
	const uint8_t *p;
	int32_t disp = 0;

	if (!w->has_bp && run->value >= 8) {
		p = start > w->code.entry ? bytes_at(&w->code, start - 1, 1) : NULL;
		if (w->before == 0 && run->value == 8 && p && *p == 0x55) /* push %rbp */
			w->has_bp = true;
		for (uint64_t at = start; !w->has_bp && at < limit; at++) {
			size_t n = stores_bp(bytes_at(&w->code, at, 8), &disp);

			if (n == 0 || disp != run->value + 8 + BP_OFFSET)
				continue;
			add_rows(w, start, at + n, run->value);
			start = at + n;
			w->has_bp = true;
		}
	}
	w->before = run->value;
	add_rows(w, start, run->end, run->value);
}

bool go_frames_execute(const struct image *image, const struct gopclntab *t,
		       const struct span *span, struct rows *rows)
{
	struct writer w = {.span = span, .rows = rows, .sp_load = UINT64_MAX};
	struct gopclntab_iter it;
	struct gopclntab_func f;
	struct gopclntab_run run;
	bool has_table;
	uint64_t end;

	if (!gopclntab_at(t, span->item, &f)) {
		rows_add(rows, span->start, &(struct kiln_rule){.kind = KILN_RULE_INVALID});
		return false;
	}
	w.kind = kind_of(&f);
	if (w.kind == GO_OUTERMOST || w.kind == GO_TRAMPOLINE) {
		add_row(&w, span->start, f.end,
			(struct kiln_rule){.kind = w.kind == GO_OUTERMOST ? KILN_RULE_STOP
									  : KILN_RULE_SIGNAL,
					   .reg = w.kind == GO_OUTERMOST ? 0 : ARCH_REG_SP});
		return true;
	}
	w.code.entry = end = f.entry;
	w.code.bytes = image_at_vaddr(image, f.entry);
	w.code.bytes.size = MIN(w.code.bytes.size, f.end - f.entry);
	if (w.kind != GO_PLAIN)
		w.sp_load = first_sp_load(&w.code, f.end);
	it = gopclntab_sp(t, &f);
	has_table = !it.c.bad; /* markers such as go:buildid have none */
	while (gopclntab_next(&it, &run)) {
		if (run.start < run.end)
			add_run(&w, &run);
		end = run.end;
	}
	/* Padding behind the last instruction is in none of the function's tables. */
	if (f.end - end > FUNCTION_ALIGN - 1)
		add_row(&w, end, f.end, (struct kiln_rule){.kind = KILN_RULE_INVALID});
	return !has_table || !it.c.bad;
}
