// SPDX-License-Identifier: Apache-2.0
/*
 * Finds the pieces of a function that the compiler has put elsewhere (gcc's .cold), without
 * symbols. The function jumps to them. The unwind information of a piece begins with the frame that
 * the function has built already; that of another function, which is called by a jump, begins
 * without a frame. Any thread.
 */
#include "agent/runtime/pieces.h"

#include "agent/elf/cfi.h"
#include "agent/elf/code_state.h"
#include "agent/elf/rows.h"

enum {
	FUNCTION_MAX = 1 << 20,
	TARGETS_MAX = 256,
};

struct finder {
	const struct image *image;
	uint64_t start, end;
	uint64_t targets[TARGETS_MAX];
	size_t n_targets;
	struct cfi cfi;
	struct spans spans;
};

static void finder_done(struct finder *f)
{
	cfi_done(&f->cfi);
	spans_done(&f->spans);
}

static void add_target(struct finder *f, uint64_t target)
{
	for (size_t i = 0; i < f->n_targets; i++) {
		if (f->targets[i] == target)
			return;
	}
	if (f->n_targets < TARGETS_MAX)
		f->targets[f->n_targets++] = target;
}

/* Collects the targets of jumps that leave [start, end). */
static void find_targets(struct finder *f)
{
	struct cursor c = image_at_vaddr(f->image, f->start);
	uint64_t at = f->start;
	struct code_insn insn;

	while (at < f->end && cursor_left(&c)) {
		if (!code_decode(c, at, true, &insn) || !insn.size)
			return;
		if ((insn.flow == CODE_JUMP || insn.flow == CODE_BRANCH) && insn.target &&
		    (insn.target < f->start || insn.target >= f->end) &&
		    image_is_code(f->image, insn.target))
			add_target(f, insn.target);
		cursor_skip(&c, insn.size);
		at += insn.size;
	}
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

/* Does the code of SPAN begin with a frame that is built already? */
static bool begins_within(struct finder *f, const struct span *span)
{
	_cleanup_(unwind_table_freep) struct unwind_table *t = NULL;
	_cleanup_(rows_done) struct rows rows = {0};
	const struct kiln_rule *rule;

	if (rows_init(&rows, span->start, span_end(span)) < 0)
		return false;
	cfi_execute(&f->cfi, span, &rows);
	if (rows_finish(&rows, &t) < 0)
		return false;
	rule = unwind_lookup(t, span->start);
	return rule->kind == KILN_RULE_CFA && rule->cfa_off != ARCH_ENTRY_CFA;
}

size_t runtime_find_pieces(const struct image *image, uint64_t start, uint64_t end,
			   struct runtime_range *pieces, size_t max)
{
	_cleanup_(finder_done) struct finder f = {.image = image, .start = start, .end = end};
	size_t n = 0;

	if (end <= start || end - start > FUNCTION_MAX)
		return 0;
	find_targets(&f);
	if (!f.n_targets || cfi_open_eh_frame(&f.cfi, image) < 0 ||
	    cfi_collect(&f.cfi, &f.spans) < 0 || spans_sort(&f.spans) < 0)
		return 0;
	for (size_t i = 0; i < f.n_targets && n < max; i++) {
		const struct span *span = span_of(&f, f.targets[i]);
		bool known = false;

		if (!span || (span->start < end && span_end(span) > start))
			continue;
		for (size_t k = 0; k < n; k++)
			known |= pieces[k].start == span->start;
		if (!known && begins_within(&f, span))
			pieces[n++] =
			    (struct runtime_range){.start = span->start, .end = span_end(span)};
	}
	return n;
}
