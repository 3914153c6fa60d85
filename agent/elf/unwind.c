// SPDX-License-Identifier: Apache-2.0
/*
 * Compiles an image's unwind table. Every source yields spans. The gaps of a better source are
 * filled from the next one (.eh_frame, Go's table, .debug_frame, known code, the code itself); then
 * one pass over the merged spans executes each and writes the rows in order. A gap of at most
 * PADDING_MAX bytes between two spans is padding and belongs to the span before it; a longer one is
 * invalid. Any thread; nothing is shared.
 */
#include "agent/elf/unwind.h"

#include <elf.h>

#include "agent/elf/arch.h"
#include "agent/elf/cfi.h"
#include "agent/elf/code_frames.h"
#include "agent/elf/go_frames.h"
#include "agent/elf/rows.h"
#include "agent/elf/span.h"
#include "lib/pace.h"

enum {
	PADDING_MAX = 15, /* functions are aligned to 16 */
	AHEAD = 8,	  /* spans; how far ahead code is prefetched */
};

struct compiler {
	const struct image *image;
	struct cfi eh_frame, debug_frame;
	struct gopclntab *go;
	struct code_rule code[ARCH_CODE_RULES_MAX];
	struct code_frames flow;
	struct spans spans; /* merged */
	uint32_t malformed;
};

static void compiler_done(struct compiler *c)
{
	cfi_done(&c->eh_frame);
	cfi_done(&c->debug_frame);
	gopclntab_free(c->go);
	code_frames_done(&c->flow);
	spans_done(&c->spans);
}

/* ---- sources ----------------------------------------------------------------------------------
 */

static int merge(struct compiler *c, struct spans *low)
{
	int r = spans_sort(low);

	if (r < 0)
		return r;
	r = spans_fill(&c->spans, low);
	if (r > 0)
		c->malformed += (uint32_t)r;
	return MIN(r, 0);
}

static int add_cfi(struct compiler *c, struct cfi *cfi)
{
	_cleanup_(spans_done) struct spans low = {0};
	int r = cfi_collect(cfi, &low);

	return r < 0 ? r : merge(c, &low);
}

static int add_go(struct compiler *c)
{
	_cleanup_(spans_done) struct spans low = {0};
	int r;

	r = gopclntab_open(c->image, &c->go, NULL);
	if (r == -EBADMSG)
		c->malformed++;
	if (r < 0)
		return r == -ENOMEM ? r : 0;
	r = go_frames_collect(c->image, c->go, &low);
	return r < 0 ? r : merge(c, &low);
}

static int add_known_code(struct compiler *c)
{
	_cleanup_(spans_done) struct spans low = {0};
	size_t n = arch_known_code(c->image, &c->spans, c->code, ARCH_CODE_RULES_MAX);
	int r;

	for (size_t i = 0; i < n; i++) {
		if (c->code[i].end - c->code[i].start > SPAN_SIZE_MAX)
			continue;
		r = spans_add(&low,
			      &(struct span){.start = c->code[i].start,
					     .size = (uint32_t)(c->code[i].end - c->code[i].start),
					     .source = SPAN_CODE,
					     .item = (uint32_t)i});
		if (r < 0)
			return r;
	}
	return merge(c, &low);
}

static int add_code_frames(struct compiler *c)
{
	_cleanup_(spans_done) struct spans low = {0};
	int r = code_frames_collect(&c->flow, c->image, &c->spans, &low);

	return r < 0 ? r : merge(c, &low);
}

static int collect(struct compiler *c)
{
	int r = cfi_open_eh_frame(&c->eh_frame, c->image);

	if (r == 0)
		r = add_cfi(c, &c->eh_frame);
	if (r == 0 || r == -ENOENT)
		r = add_go(c);
	if (r < 0)
		return r;
	/* Go's own .debug_frame repeats the function table without fp. */
	if (!c->go) {
		r = cfi_open_debug_frame(&c->debug_frame, c->image);
		if (r == 0)
			r = add_cfi(c, &c->debug_frame);
		if (r == -ENOMEM || r == -E2BIG)
			return r;
		c->malformed += r < 0 && r != -ENOENT;
	}
	r = add_known_code(c);
	return r < 0 ? r : add_code_frames(c);
}

/* ---- rows -------------------------------------------------------------------------------------
 */

static bool code_range(const struct image *image, uint64_t *ret_start, uint64_t *ret_end)
{
	uint64_t start = UINT64_MAX, end = 0;

	for (size_t i = 0; i < image->n_segments; i++) {
		const struct image_segment *s = &image->segments[i];

		if (!(s->flags & PF_X))
			continue;
		start = MIN(start, s->vaddr);
		end = MAX(end, s->vaddr + s->memsz);
	}
	*ret_start = start;
	*ret_end = end;
	return start < end;
}

static void execute(struct compiler *c, const struct span *span, struct rows *rows)
{
	static const struct kiln_rule unread = {.kind = KILN_RULE_UNREAD};

	switch ((enum span_source)span->source) {
	case SPAN_EH_FRAME:
		cfi_execute(&c->eh_frame, span, rows);
		break;
	case SPAN_DEBUG_FRAME:
		cfi_execute(&c->debug_frame, span, rows);
		break;
	case SPAN_GO:
		c->malformed += !go_frames_execute(c->image, c->go, span, rows);
		break;
	case SPAN_CODE:
		rows_add(rows, span->start, &c->code[span->item].rule);
		break;
	case SPAN_FLOW:
		code_frames_execute(&c->flow, span, rows);
		break;
	case SPAN_UNREAD:
		rows_add(rows, span->start, &unread);
		break;
	}
}

/* Prefetches the code of a Go function, which will be read soon. */
static void fetch(const struct image *image, const struct span *span)
{
	struct cursor c;

	if (span->source != SPAN_GO)
		return;
	c = image_at_vaddr(image, span->start);
	if (!c.bad)
		__builtin_prefetch(c.data + c.pos);
}

static void write_rows(struct compiler *c, struct rows *rows, uint64_t end)
{
	static const struct kiln_rule invalid = {.kind = KILN_RULE_INVALID};

	for (size_t i = 0; i < c->spans.n; i++) {
		const struct span *s = &c->spans.v[i];
		uint64_t next = i + 1 < c->spans.n ? c->spans.v[i + 1].start : end;

		pace_point();
		if (i + AHEAD < c->spans.n)
			fetch(c->image, &c->spans.v[i + AHEAD]);
		execute(c, s, rows);
		if (next > span_end(s) + PADDING_MAX || (i + 1 == c->spans.n && next > span_end(s)))
			rows_add(rows, span_end(s), &invalid);
	}
}

int unwind_compile(const struct image *image, struct unwind_table **ret, struct error *err)
{
	_cleanup_(compiler_done) struct compiler c = {.image = image};
	_cleanup_(rows_done) struct rows rows = {0};
	struct unwind_table *t;
	uint64_t start, end;
	int r;

	if (!code_range(image, &start, &end))
		return error_set(err, -ENOEXEC, "no executable segment");
	r = rows_init(&rows, start, end);
	if (r == 0)
		r = collect(&c);
	if (r == 0) {
		write_rows(&c, &rows, end);
		r = rows_finish(&rows, &t);
	}
	if (r == -E2BIG)
		return error_set(err, r, "unwind information beyond the limits (%d rows, %d bytes)",
				 UNWIND_ROWS_MAX, UNWIND_SPAN_MAX);
	if (r < 0)
		return error_set(err, r, "unwind table: %s", strerror(-r));
	t->malformed += c.malformed + c.eh_frame.malformed + c.debug_frame.malformed;
	t->unsupported += c.eh_frame.unsupported + c.debug_frame.unsupported + c.flow.unsupported;
	image_forget(image);
	*ret = t;
	return 0;
}

/* ---- tables -----------------------------------------------------------------------------------
 */

struct unwind_table *unwind_table_free(struct unwind_table *t)
{
	if (!t)
		return NULL;
	free(t->index);
	free(t->rows);
	free(t->rules);
	free(t);
	return NULL;
}

size_t unwind_table_bytes(const struct unwind_table *t)
{
	size_t words = ALIGN_UP((size_t)t->blocks + 1 + t->n_rows, 4);

	return words * 4 + t->n_rules * sizeof(*t->rules);
}

const struct kiln_rule *unwind_lookup(const struct unwind_table *t, uint64_t vaddr)
{
	uint16_t low = (uint16_t)(vaddr - t->base);
	uint64_t block = (vaddr - t->base) >> KILN_BLOCK_SHIFT;
	uint32_t from, to;

	if (vaddr < t->base || block >= t->blocks)
		return &t->rules[0];
	from = t->index[block];
	to = t->index[block + 1];
	while (from < to) { /* the first row of the block that is beyond VADDR */
		uint32_t middle = from + (to - from) / 2;

		if (t->rows[middle].low <= low)
			from = middle + 1;
		else
			to = middle;
	}
	return from ? &t->rules[t->rows[from - 1].rule] : &t->rules[0];
}
