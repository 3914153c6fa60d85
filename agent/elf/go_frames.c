// SPDX-License-Identifier: Apache-2.0
/*
 * Unwind rows of Go functions.
 *
 * The pc-SP table tells how far SP is below the caller's frame. Where the prologue saves the frame
 * pointer is looked up in the code, because rows are wrong for the leaf frame otherwise; which
 * instruction does so depends on the architecture and the Go version (go_arch.h).
 *
 * Functions that move to another stack: Go: src/runtime/asm_amd64.s, asm_arm64.s, sys_linux_*.s
 * - systemstack, asmcgocall, cgocallback and the callers of the vDSO (nanotime1, walltime) save fp
 * like any function and leave it alone while SP changes, so from then on fp leads to the caller, on
 * whatever stack that is: KILN_RULE_SWITCH. (asmcgocall on arm64 loads the fp of the other stack.)
 * - mcall, morestack, gogo and clone do not come back: once SP has changed, the stack ends there.
 * - goexit, mstart, rt0_go and the entry point are the outermost functions.
 * - sigtramp is called by the signal trampoline, which has the kernel's frame: the walk goes on.
 * Stateless; any thread.
 */
#include "agent/elf/go_frames.h"

#include "agent/elf/arch.h"
#include "agent/elf/go_arch.h"
#include "lib/pace.h"

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

/* By the function's name. Only its first bytes are looked at, unless these are "gogo" or
 * "runtime.". */
static enum go_kind kind_of(const struct gopclntab *t, const struct gopclntab_func *f)
{
	uint64_t head = gopclntab_name_head(t, f);
	const char *name;

	if (gopclntab_head_begins(head, "_rt0_"))
		return GO_OUTERMOST;
	if (gopclntab_head_begins(head, "gogo") && streq(gopclntab_name(t, f), "gogo"))
		return GO_LEAVES; /* file-local since Go 1.17 */
	if (gopclntab_head_begins(head, "runtime.")) {
		name = gopclntab_name(t, f);
		name += MIN(strlen(name), strlen("runtime."));
		if (streq(name, "asmcgocall") || streq(name, "asmcgocall.abi0"))
			return go_arch_asmcgocall();
		for (size_t i = 0; i < ARRAY_SIZE(special); i++)
			if (streq(name, special[i].name))
				return special[i].kind;
	}
	return f->flags & GOPCLNTAB_SPWRITE ? GO_WRITES_SP : GO_PLAIN;
}

int go_frames_collect(const struct image *image, const struct gopclntab *t, struct spans *spans)
{
	for (size_t i = 0; i < gopclntab_count(t); i++) {
		struct gopclntab_func f;
		int r;

		pace_point();
		if (!gopclntab_place(t, i, &f) || f.end - f.entry > SPAN_SIZE_MAX)
			continue;
		if (!image_is_code(image, f.entry))
			continue;
		/* The trampoline is only returned to, and a return address is looked up a byte
		 * before. */
		if (kind_of(t, &f) == GO_TRAMPOLINE)
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

const uint8_t *go_code_at(const struct go_code *code, uint64_t vaddr, size_t n)
{
	uint64_t at = vaddr - code->entry;

	if (code->bytes.bad || at > code->bytes.size || n > code->bytes.size - at)
		return NULL;
	return code->bytes.data + at;
}

/* ---- rows --------------------------------------------------------------------------------------
 */

struct writer {
	const struct span *span;
	struct rows *rows;
	struct go_code code;
	enum go_kind kind;
	uint64_t sp_load; /* from here on SP may point to another stack */
	int32_t before;	  /* SP delta of the run before */
	bool has_fp;	  /* the prologue's store of fp has been passed */
};

static void add_row(const struct writer *w, uint64_t start, uint64_t end, struct kiln_rule rule)
{
	start = MAX(start, w->span->start);
	if (start < MIN(end, span_end(w->span)))
		rows_add(w->rows, start, &rule);
}

static struct kiln_rule rule_of(const struct writer *w, int32_t delta)
{
	if (delta < 0 || delta > INT32_MAX - 16)
		return (struct kiln_rule){.kind = KILN_RULE_INVALID};
	return go_arch_rule(delta, w->has_fp && delta >= 8);
}

/* The rule of code in which SP may point to another stack than the caller's. */
static struct kiln_rule rule_elsewhere(const struct writer *w, int32_t delta)
{
	if (w->kind == GO_LEAVES)
		return (struct kiln_rule){.kind = KILN_RULE_STOP};
	/* GO_SWITCHES without a saved fp: before Go 1.21 these functions have no frame. fp is
	 * then the caller's, so the walk skips only that caller. */
	if (w->kind == GO_LOSES || (!w->has_fp && w->kind != GO_SWITCHES))
		return (struct kiln_rule){.kind = KILN_RULE_INVALID};
	if (w->has_fp && delta < 8) /* the frame is gone */
		return rule_of(w, delta);
	return go_arch_rule_by_fp(delta, w->has_fp);
}

/* Adds the rows of [START, END), where SP may point to another stack. */
static void add_rows_elsewhere(const struct writer *w, uint64_t start, uint64_t end, int32_t delta)
{
	uint64_t restored = MIN(go_arch_restores_fp(&w->code, start, end), end);

	add_row(w, start, restored, rule_elsewhere(w, delta));
	add_row(w, restored, end, rule_of(w, delta));
}

static void add_rows(const struct writer *w, uint64_t start, uint64_t end, int32_t delta)
{
	bool moves = w->kind >= GO_SWITCHES && w->kind <= GO_LOSES;

	if (!moves || start < w->sp_load)
		add_row(w, start, moves ? MIN(end, w->sp_load) : end, rule_of(w, delta));
	if (moves && end > w->sp_load)
		add_rows_elsewhere(w, MAX(start, w->sp_load), end, delta);
}

/*
 * Adds the rows of RUN. If the prologue stores fp inside of RUN, the register is still the caller's
 * before that store.
 */
static void add_run(struct writer *w, const struct gopclntab_run *run)
{
	uint64_t start = run->start, saved;

	if (!w->has_fp && run->value >= 8) {
		saved = go_arch_saves_fp(&w->code, run, w->before);
		if (saved != UINT64_MAX) {
			add_rows(w, start, saved, run->value);
			start = MAX(start, saved);
			w->has_fp = true;
		}
	}
	w->before = run->value;
	add_rows(w, start, run->end, run->value);
}

bool go_frames_execute(const struct image *image, const struct gopclntab *t,
		       const struct span *span, struct rows *rows)
{
	static const struct kiln_rule stop = {.kind = KILN_RULE_STOP},
				      trampoline = {.kind = KILN_RULE_SIGNAL,
						    .reg = ARCH_REG_SP,
						    .cfa_off = ARCH_SIGNAL_UCONTEXT};
	struct writer w = {.span = span, .rows = rows, .sp_load = UINT64_MAX};
	struct gopclntab_iter it;
	struct gopclntab_func f;
	struct gopclntab_run run;
	bool has_table;
	uint64_t end;

	if (!gopclntab_place(t, span->item, &f)) {
		rows_add(rows, span->start, &(struct kiln_rule){.kind = KILN_RULE_INVALID});
		return false;
	}
	/* Another function may begin inside of this one. */
	f.end = MIN(f.end, span_end(span));
	w.kind = kind_of(t, &f);
	if (w.kind == GO_OUTERMOST || w.kind == GO_TRAMPOLINE) {
		add_row(&w, span->start, f.end, w.kind == GO_OUTERMOST ? stop : trampoline);
		return true;
	}
	w.code.entry = end = f.entry;
	w.code.bytes = image_at_vaddr(image, f.entry);
	w.code.bytes.size = MIN(w.code.bytes.size, f.end - f.entry);
	if (w.kind != GO_PLAIN)
		w.sp_load = go_arch_sp_load(&w.code, f.end);
	it = gopclntab_sp(t, &f);
	has_table = !it.c.bad; /* markers such as go:buildid have none */
	while (gopclntab_next(&it, &run)) {
		if (run.start < run.end)
			add_run(&w, &run);
		end = run.end;
	}
	/* Padding behind the last instruction is in none of the function's tables. */
	if (f.end - end > go_function_align - 1)
		add_row(&w, end, f.end, (struct kiln_rule){.kind = KILN_RULE_INVALID});
	return !has_table || !it.c.bad;
}
