// SPDX-License-Identifier: Apache-2.0
/*
 * Finds the interpreter's loop, vm_exec_core(), in files without symbols. The loop jumps from the
 * handler of one instruction to the next by a table of addresses: some 200 of them in a row, all in
 * one function. No other table of the file is like it (the next largest, of the regular
 * expressions, has 98). In a shared object each address is a relocation. rb_vm_exec() is the
 * function that calls the loop. The place where the loop keeps the execution context is read from
 * the loop's first instructions. Any thread.
 */
#include "agent/runtime/ruby/ruby.h"

#include <elf.h>

#include "agent/elf/cfi.h"
#include "agent/elf/code_state.h"
#include "agent/runtime/pieces.h"

enum {
	LABELS_MIN = 150,
	LABELS_MAX = 1024,
	PROLOGUE_MAX = 256,
	CALL_SIZE = 5,
};

struct finder {
	const struct image *image;
	struct cfi cfi;
	struct spans spans;
	/* The function of the current run of labels, and that of the longest run. */
	const struct span *span, *best;
	uint64_t next;		/* address of the next label of the current run */
	uint64_t low, best_low; /* lowest address that a label of the run points to */
	size_t n, best_n;
};

static void finder_done(struct finder *f)
{
	cfi_done(&f->cfi);
	spans_done(&f->spans);
}

static const struct span *span_of(const struct finder *f, uint64_t vaddr)
{
	size_t lo = 0, hi = f->spans.n;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (f->spans.v[mid].start <= vaddr)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo == 0 || vaddr >= span_end(&f->spans.v[lo - 1]))
		return NULL;
	return &f->spans.v[lo - 1];
}

/* ---- labels ---------------------------------------------------------------------------------- */

/* Adds the address TARGET, which is at AT, to the current run, or begins a new one. */
static void add_label(struct finder *f, uint64_t at, uint64_t target)
{
	bool more = f->span && at == f->next && target >= f->span->start &&
		    target < span_end(f->span) && f->n < LABELS_MAX;

	if (!more) {
		f->span = span_of(f, target);
		f->n = 0;
		f->low = UINT64_MAX;
	}
	f->next = at + 8;
	f->n++;
	f->low = MIN(f->low, target);
	if (f->span && f->n > f->best_n) {
		f->best = f->span;
		f->best_n = f->n;
		f->best_low = f->low;
	}
}

static void read_relocations(struct finder *f, const struct image_section *section)
{
	struct cursor c = image_section_data(f->image, section);

	while (cursor_left(&c) >= sizeof(Elf64_Rela)) {
		Elf64_Rela r;

		memcpy(&r, cursor_bytes(&c, sizeof(r)), sizeof(r));
		if (ELF64_R_TYPE(r.r_info) == R_X86_64_RELATIVE)
			add_label(f, r.r_offset, (uint64_t)r.r_addend);
	}
}

/* Reads addresses directly: for a program that is not relocated, or has packed relocations. */
static void read_words(struct finder *f, const struct image_section *section)
{
	struct cursor c = image_section_data(f->image, section);
	uint64_t at = section->vaddr;

	for (; cursor_left(&c) >= 8; at += 8) {
		uint64_t word = cursor_u64(&c);

		if (word && image_is_code(f->image, word))
			add_label(f, at, word);
	}
}

static void find_labels(struct finder *f)
{
	static const char *const tables[] = {".data.rel.ro", ".data.rel.ro.local", ".rodata"};
	const struct image_section *section = image_section(f->image, ".rela.dyn");

	if (section)
		read_relocations(f, section);
	for (size_t i = 0; f->best_n < LABELS_MIN && i < ARRAY_SIZE(tables); i++) {
		section = image_section(f->image, tables[i]);
		if (section)
			read_words(f, section);
	}
}

/* ---- the caller ------------------------------------------------------------------------------ */

/* The function that calls LOOP, other than LOOP itself; NULL: none. */
static const struct span *find_caller(const struct finder *f, const struct runtime_range *loop)
{
	const struct image_section *section = image_section(f->image, ".text");
	const uint8_t *p, *end;
	struct cursor c;

	if (!section)
		return NULL;
	c = image_section_data(f->image, section);
	if (c.bad || c.size < CALL_SIZE)
		return NULL;
	end = c.data + c.size - CALL_SIZE;
	for (p = c.data; p <= end && (p = memchr(p, 0xe8, (size_t)(end - p) + 1)); p++) {
		uint64_t at = section->vaddr + (uint64_t)(p - c.data);
		const struct span *span;
		int32_t distance;

		memcpy(&distance, p + 1, sizeof(distance));
		if (at + CALL_SIZE + (uint64_t)(int64_t)distance != loop->start)
			continue;
		span = span_of(f, at);
		if (span && span->start != loop->start)
			return span;
	}
	return NULL;
}

/* ---- where the context is -------------------------------------------------------------------- */

/* Finds where the loop keeps its argument (rdi), the context: in rbx, or on the stack. */
static void find_place(const struct image *image, struct ruby_code *code)
{
	static const uint8_t to_rbx[] = {0x48, 0x89, 0xfb};	    /* mov %rdi,%rbx */
	static const uint8_t to_stack[] = {0x48, 0x89, 0x7c, 0x24}; /* mov %rdi,d(%rsp) */
	struct cursor c = image_at_vaddr(image, code->loop.start);
	size_t size = MIN(cursor_left(&c), (size_t)code->prologue);
	const uint8_t *p = c.bad ? NULL : cursor_bytes(&c, size), *at;

	code->place = KILN_RUBY_NOWHERE;
	if (!p || size < 8)
		return;
	at = memmem(p, size, to_rbx, sizeof(to_rbx));
	if (at) {
		code->place = KILN_RUBY_RBX;
		return;
	}
	at = memmem(p, size - 1, to_stack, sizeof(to_stack));
	if (at) {
		code->place = KILN_RUBY_STACK;
		code->place_offset = (int8_t)at[sizeof(to_stack)];
	}
}

/* Finds the offset of the loop's only return instruction: gcc emits one. 0: there are several. */
static void find_return(const struct image *image, struct ruby_code *code)
{
	struct cursor c = image_at_vaddr(image, code->loop.start);
	uint64_t at = code->loop.start;
	struct code_insn insn;

	code->returns = 0;
	while (at < code->loop.end && cursor_left(&c) && code_decode(c, at, true, &insn) &&
	       insn.size) {
		if (insn.flow == CODE_RETURN) {
			if (code->returns) {
				code->returns = 0;
				return;
			}
			code->returns = (uint32_t)(at - code->loop.start);
		}
		cursor_skip(&c, insn.size);
		at += insn.size;
	}
}

/* ---- all together ---------------------------------------------------------------------------- */

static struct runtime_range range_of(const struct span *span)
{
	return (struct runtime_range){.start = span->start, .end = span_end(span)};
}

int ruby_find_code(const struct image *image, struct ruby_code *code, struct error *err)
{
	_cleanup_(finder_done) struct finder f = {.image = image};
	const struct span *span;
	uint64_t low;

	if (cfi_open_eh_frame(&f.cfi, image) < 0 || cfi_collect(&f.cfi, &f.spans) < 0 ||
	    spans_sort(&f.spans) < 0)
		return error_set(err, -ENOTSUP, "Ruby without unwind information");
	find_labels(&f);
	low = f.best_n >= LABELS_MIN ? f.best_low : 0;
	if (!code->loop.start) {
		if (f.best_n < LABELS_MIN)
			return error_set(err, -ENOTSUP,
					 "Ruby without a table of instructions: the longest has "
					 "%zu of at least %d",
					 f.best_n, LABELS_MIN);
		code->loop = range_of(f.best);
	}
	if (low > code->loop.start && low < code->loop.end)
		code->prologue = (uint32_t)MIN(low - code->loop.start, PROLOGUE_MAX);
	find_place(image, code);
	find_return(image, code);
	span = code->exec.start ? span_of(&f, code->exec.start) : find_caller(&f, &code->loop);
	if (span)
		code->exec = range_of(span);
	if (span && !code->cold.start)
		(void)runtime_find_pieces(image, code->exec.start, code->exec.end, &code->cold, 1);
	return 0;
}
