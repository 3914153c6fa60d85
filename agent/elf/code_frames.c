// SPDX-License-Identifier: Apache-2.0
/*
 * Code without unwind information: finds the gaps that other sources left, the functions in them,
 * and turns the states that code_flow.c finds into rows.
 *
 * Where the code contradicts itself, or the bytes are no code, the rows are invalid. A guessed
 * start yields rows only when nothing in its code contradicts itself. All work is in proportion to
 * the bytes of the gaps. When those are more than CODE_BYTES_MAX nothing is read here; functions in
 * which samples are taken are read later (code_places.h). Any thread; nothing is shared.
 */
#include "agent/elf/code_frames.h"
#include "lib/pace.h"

#include <elf.h>

enum {
	PADDING_MAX = 4096,
	WRONG_GUESSES_MAX = 16, /* so many in a row: the stretch is data */
	TAIL_ROUNDS = 4,
};

void code_frames_done(struct code_frames *c)
{
	code_starts_done(&c->starts);
	code_flow_done(&c->flow);
	free(c->functions);
	free(c->rows);
	free(c->tails);
	*c = (struct code_frames){0};
}

/* ---- gaps -------------------------------------------------------------------------------------
 */

/* Linkers fill with zeros too. */
static bool is_zero(const struct cursor *c)
{
	static const uint8_t zeros[ARCH_CODE_UNIT];

	return cursor_left(c) >= sizeof(zeros) &&
	       memcmp(c->data + c->pos, zeros, sizeof(zeros)) == 0;
}

/* Bytes of padding at START, up to END. */
static uint64_t padding(const struct image *image, uint64_t start, uint64_t end)
{
	struct cursor c = image_at_vaddr(image, start);
	struct code_insn insn;

	if (c.bad)
		return end - start;
	c.size = MIN(c.size, end - start);
	while (cursor_left(&c)) {
		if (is_zero(&c))
			insn.size = ARCH_CODE_UNIT;
		else if (!code_decode(c, start + c.pos, true, &insn) || !insn.is_padding)
			break;
		cursor_skip(&c, insn.size);
	}
	return c.pos;
}

static int add_gap(struct code_frames *c, const struct image *image, uint64_t start, uint64_t end)
{
	struct code_starts *s = &c->starts;
	int r;

	if (end - start < PADDING_MAX && padding(image, start, end) == end - start)
		return 0;
	r = grow_array((void **)&s->gaps, &s->gaps_cap, s->n_gaps + 1, sizeof(*s->gaps),
		       CODE_STARTS_MAX);
	if (r < 0)
		return r == -E2BIG ? 0 : r;
	s->gaps[s->n_gaps++] = (struct code_gap){.start = start, .end = end};
	c->bytes += end - start;
	return 0;
}

/*
 * Adds the parts of [AT, END) that COVERED leaves. *NEXT: the first span of COVERED to look at;
 * moves on.
 */
static int add_gaps(struct code_frames *c, const struct image *image, const struct spans *covered,
		    size_t *next, uint64_t at, uint64_t end)
{
	uint64_t first = at;
	int r = 0;

	while (r == 0 && at < end) {
		pace_point();
		while (*next < covered->n && span_end(&covered->v[*next]) <= at)
			(*next)++;
		if (*next == covered->n)
			return at > first && end - at < CODE_GAP_MIN ? 0
								     : add_gap(c, image, at, end);
		/* Short gaps between functions are padding. */
		if (covered->v[*next].start > at &&
		    (at == first || covered->v[*next].start - at >= CODE_GAP_MIN))
			r = add_gap(c, image, at, MIN(end, covered->v[*next].start));
		at = span_end(&covered->v[*next]);
	}
	return r;
}

static int compare_gaps(const void *a, const void *b)
{
	const struct code_gap *x = a, *y = b;

	return x->start < y->start ? -1 : x->start > y->start;
}

/*
 * The ranges that hold instructions, sorted and without overlaps: executable sections, or
 * executable segments when there are no sections. The caller frees *RET.
 */
static int code_ranges(const struct image *image, struct code_gap **ret, size_t *ret_n)
{
	size_t n = 0, kept = 0, max = MAX(image->n_sections, image->n_segments);
	_cleanup_free_ struct code_gap *v = calloc(max + 1, sizeof(*v));

	if (!v)
		return -ENOMEM;
	for (size_t i = 0; i < image->n_sections; i++) {
		const struct image_section *s = &image->sections[i];

		if ((s->flags & SHF_EXECINSTR) && s->type != SHT_NOBITS && s->size &&
		    s->vaddr + s->size > s->vaddr)
			v[n++] = (struct code_gap){s->vaddr, s->vaddr + s->size};
	}
	for (size_t i = 0; n == 0 && i < image->n_segments; i++) {
		const struct image_segment *s = &image->segments[i];

		if ((s->flags & PF_X) && s->filesz)
			v[kept++] = (struct code_gap){s->vaddr, s->vaddr + s->filesz};
	}
	n += kept;
	kept = 0;
	qsort(v, n, sizeof(*v), compare_gaps);
	for (size_t i = 0; i < n; i++) {
		if (kept && v[kept - 1].end > v[i].start)
			v[i].start = v[kept - 1].end;
		if (v[i].start < v[i].end)
			v[kept++] = v[i];
	}
	*ret = TAKE_PTR(v);
	*ret_n = kept;
	return 0;
}

static int find_gaps(struct code_frames *c, const struct image *image, const struct spans *covered)
{
	_cleanup_free_ struct code_gap *ranges = NULL;
	size_t n, next = 0;
	int r = code_ranges(image, &ranges, &n);

	for (size_t i = 0; r == 0 && i < n; i++) {
		uint64_t end = ranges[i].end;
		struct cursor c_at = image_at_vaddr(image, ranges[i].start);

		if (c_at.bad || !image_is_code(image, ranges[i].start))
			continue;
		end = MIN(end, ranges[i].start + c_at.size);
		r = add_gaps(c, image, covered, &next, ranges[i].start, end);
	}
	return r;
}

/* ---- rows -------------------------------------------------------------------------------------
 */

static int add_row(struct code_frames *c, struct code_function *f, uint64_t vaddr,
		   const struct kiln_rule *rule)
{
	int r;

	if (f->n_rows && memcmp(&c->rows[c->n_rows - 1].rule, rule, sizeof(*rule)) == 0)
		return 0;
	r = grow_array((void **)&c->rows, &c->rows_cap, c->n_rows + 1, sizeof(*c->rows),
		       CODE_ROWS_MAX);
	if (r < 0)
		return r;
	c->rows[c->n_rows++] = (struct code_row){.vaddr = vaddr, .rule = *rule};
	f->n_rows++;
	return 0;
}

/*
 * Adds the rows of F from the states that c->flow has just found. Code that it did not reach is
 * invalid.
 */
static int write_rows(struct code_frames *c, struct code_function *f)
{
	static const struct kiln_rule invalid = {.kind = KILN_RULE_INVALID},
				      stop = {.kind = KILN_RULE_STOP};
	bool incomplete = false;
	uint32_t offset = 0;
	int r = 0;

	f->first_row = (uint32_t)c->n_rows;
	f->n_rows = 0;
	f->size = c->flow.end;
	while (r == 0 && offset < f->size) {
		const struct code_state *state = code_flow_at(&c->flow, offset);
		struct kiln_rule rule = invalid;
		struct code_insn insn;

		if (!code_flow_insn(&c->flow, offset, &insn))
			insn = (struct code_insn){.size = 1};
		if (state)
			rule = f->from == CODE_FROM_ENTRY ? stop : code_state_rule(state);
		/* Padding that is not reached keeps the rule before it. */
		if (state || !insn.is_padding) {
			r = add_row(c, f, f->start + offset, &rule);
			incomplete |= rule.kind == KILN_RULE_INVALID;
		}
		offset += insn.size;
	}
	c->unsupported += incomplete || f->size == 0;
	return r;
}

/* ---- functions --------------------------------------------------------------------------------
 */

static int add_function(struct code_frames *c, uint64_t start, uint64_t room, uint8_t from)
{
	int r = grow_array((void **)&c->functions, &c->functions_cap, c->n_functions + 1,
			   sizeof(*c->functions), CODE_STARTS_MAX);

	if (r < 0)
		return r == -E2BIG ? 0 : r;
	c->functions[c->n_functions++] = (struct code_function){
	    .start = start, .room = (uint32_t)MIN(room, (uint64_t)SPAN_SIZE_MAX), .from = from};
	return 0;
}

static int remember_tails(struct code_frames *c)
{
	for (size_t i = 0; i < c->flow.n_outs; i++) {
		int r = grow_array((void **)&c->tails, &c->tails_cap, c->n_tails + 1,
				   sizeof(*c->tails), CODE_STARTS_MAX);

		if (r < 0)
			return r == -E2BIG ? 0 : r;
		c->tails[c->n_tails++] = c->flow.outs[i];
	}
	return 0;
}

/*
 * Follows the function that was added last, and adds its rows. A guess that contradicts itself is
 * removed again.
 */
static int follow(struct code_frames *c, bool is_sized, const struct code_state *state)
{
	struct code_function *f = &c->functions[c->n_functions - 1];
	int r;

	f->is_sized = is_sized;
	r = code_flow_run(&c->flow, f->start, f->room, is_sized, state);

	if (r < 0)
		return r;
	if (f->from == CODE_FROM_GUESS && c->flow.is_contradictory) {
		c->n_functions--;
		return 0;
	}
	r = remember_tails(c);
	return r < 0 ? r : write_rows(c, f);
}

/*
 * Follows the functions in [START, END), one after the other. FROM and SIZE (0: not known) describe
 * the first one; the others are guesses.
 */
static int follow_stretch(struct code_frames *c, const struct image *image, uint64_t start,
			  uint64_t end, uint32_t size, uint8_t from)
{
	struct code_state entry = code_state_at_entry();
	unsigned int wrong = 0;

	while (start < end && wrong < WRONG_GUESSES_MAX && c->flow.budget) {
		uint64_t room = size ? MIN(size, end - start) : end - start;
		size_t n = c->n_functions;
		int r = add_function(c, start, room, from);

		if (r == 0 && c->n_functions > n)
			r = follow(c, size != 0, &entry);
		if (r < 0)
			return r;
		if (c->n_functions == n) {
			/* The guess was wrong, so where it ends means nothing. */
			c->unsupported += wrong++ == 0;
			start = ALIGN_UP(start + 1, ARCH_CODE_ALIGN);
		} else {
			wrong = 0;
			start += size ? room : MAX(c->functions[n].size, 1u);
		}
		if (start < end)
			start += padding(image, start, end);
		from = CODE_FROM_GUESS;
		size = 0;
	}
	return 0;
}

static int follow_gap(struct code_frames *c, const struct image *image, const struct code_gap *gap,
		      size_t *next)
{
	const struct code_starts *s = &c->starts;
	uint64_t at = gap->start + padding(image, gap->start, gap->end);
	uint64_t until = *next < s->n ? MIN(s->v[*next].vaddr, gap->end) : gap->end;
	int r = follow_stretch(c, image, at, until, 0, CODE_FROM_GUESS);

	for (; r == 0 && *next < s->n && s->v[*next].vaddr < gap->end; (*next)++) {
		const struct code_start *v = &s->v[*next];

		until = *next + 1 < s->n ? MIN(v[1].vaddr, gap->end) : gap->end;
		r = follow_stretch(c, image, v->vaddr, until, v->size, v->from);
	}
	return r;
}

static int compare_functions(const void *a, const void *b)
{
	const struct code_function *x = a, *y = b;

	return x->start < y->start ? -1 : x->start > y->start;
}

static int compare_addresses(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/*
 * The index of the first function that begins behind VADDR, among the first N; N when there is
 * none.
 */
static size_t function_behind(const struct code_frames *c, size_t n, uint64_t vaddr)
{
	size_t low = 0, high = n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (c->functions[middle].start <= vaddr)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/*
 * Follows the code at VADDR, to which another function jumps, as a function: unless it lies inside
 * of one of the first N functions, or below LAST, the end of the one that was added last.
 */
static int follow_tail(struct code_frames *c, size_t n, uint64_t vaddr, uint64_t last)
{
	const struct code_gap *gap = code_starts_gap(&c->starts, vaddr);
	struct code_state entry = code_state_at_entry();
	size_t behind = function_behind(c, n, vaddr);
	uint64_t end;
	int r;

	if (!gap || vaddr % ARCH_CODE_UNIT || vaddr < last)
		return 0;
	if (behind > 0 && vaddr - c->functions[behind - 1].start < c->functions[behind - 1].size)
		return 0;
	end = behind < n ? MIN(gap->end, c->functions[behind].start) : gap->end;
	n = c->n_functions;
	r = add_function(c, vaddr, end - vaddr, CODE_FROM_CALL);
	return r == 0 && c->n_functions > n ? follow(c, false, &entry) : r;
}

/*
 * Follows functions that are only jumped to, as assembler has them. They may jump to others in
 * turn: hence rounds.
 */
static int follow_tails(struct code_frames *c)
{
	for (int round = 0; round < TAIL_ROUNDS && c->n_tails; round++) {
		_cleanup_free_ uint64_t *tails = TAKE_PTR(c->tails);
		size_t n_tails = c->n_tails, n = c->n_functions;
		uint64_t last = 0;

		c->n_tails = c->tails_cap = 0;
		qsort(tails, n_tails, sizeof(*tails), compare_addresses);
		for (size_t i = 0; i < n_tails && c->flow.budget; i++) {
			int r = follow_tail(c, n, tails[i], last);

			if (r < 0)
				return r;
			if (c->n_functions > n) {
				const struct code_function *f = &c->functions[c->n_functions - 1];

				last = MAX(last, f->start + MAX(f->size, 1u));
			}
		}
		qsort(c->functions, c->n_functions, sizeof(*c->functions), compare_functions);
	}
	return 0;
}

static int compare_seeds(const void *a, const void *b)
{
	const struct code_seed *x = a, *y = b;

	return x->target < y->target ? -1 : x->target > y->target;
}

/*
 * A function that is only jumped to from within the frame of another one is a part of that one
 * (gcc's .cold). Follows such functions again, with the state of the jump.
 */
static int follow_parts(struct code_frames *c)
{
	struct code_flow *flow = &c->flow;
	size_t n = flow->n_seeds, next = 0;
	int r = 0;

	if (n)
		qsort(flow->seeds, n, sizeof(*flow->seeds), compare_seeds);
	for (size_t i = 0; r == 0 && i < c->n_functions && next < n; i++) {
		struct code_function *f = &c->functions[i];
		struct code_state state;

		while (next < n && flow->seeds[next].target < f->start)
			next++;
		if (next == n || flow->seeds[next].target != f->start || f->from >= CODE_FROM_CALL)
			continue;
		state = flow->seeds[next].state;
		if (i + 1 < c->n_functions)
			f->room = (uint32_t)MIN(f->room, f[1].start - f->start);
		r = code_flow_run(flow, f->start, f->room, f->is_sized, &state);
		if (r == 0)
			r = write_rows(c, f);
	}
	return r;
}

static int leave_unread(const struct code_frames *c, struct spans *spans)
{
	int r = 0;

	for (size_t i = 0; i < c->starts.n_gaps; i++) {
		uint64_t at = c->starts.gaps[i].start, end = c->starts.gaps[i].end;

		for (uint64_t size; r == 0 && at < end; at += size) {
			size = MIN(end - at, (uint64_t)SPAN_SIZE_MAX);
			r = spans_add(spans, &(struct span){.start = at,
							    .size = (uint32_t)size & SPAN_SIZE_MAX,
							    .source = SPAN_UNREAD});
		}
	}
	return r;
}

int code_frames_collect(struct code_frames *c, const struct image *image,
			const struct spans *covered, struct spans *spans)
{
	size_t next = 0;
	int r = find_gaps(c, image, covered);

	if (r == 0 && c->bytes > CODE_BYTES_MAX)
		return leave_unread(c, spans);
	if (r == 0)
		r = code_starts_find(&c->starts, image);
	c->flow.image = image;
	c->flow.budget = c->bytes * CODE_STEPS_PER_BYTE;
	c->flow.tables = c->starts.tables;
	c->flow.n_tables = c->starts.n_tables;
	for (size_t i = 0; r == 0 && i < c->starts.n_gaps; i++)
		r = follow_gap(c, image, &c->starts.gaps[i], &next);
	if (r == 0)
		r = follow_tails(c);
	if (r == 0)
		r = follow_parts(c);
	if (r == -E2BIG) /* too many rows: those that fit are used */
		r = 0;
	for (size_t i = 0; r == 0 && i < c->n_functions; i++) {
		const struct code_function *f = &c->functions[i];

		pace_point();
		if (f->size && f->n_rows)
			r = spans_add(spans, &(struct span){.start = f->start,
							    .size = f->size,
							    .source = SPAN_FLOW,
							    .item = (uint32_t)i});
	}
	return r;
}

void code_frames_execute(const struct code_frames *c, const struct span *span, struct rows *rows)
{
	const struct code_function *f = &c->functions[span->item];

	for (uint32_t i = 0; i < f->n_rows; i++) {
		const struct code_row *row = &c->rows[f->first_row + i];

		if (row->vaddr >= span_end(span))
			break;
		if (i + 1 < f->n_rows && row[1].vaddr <= span->start)
			continue;
		rows_add(rows, MAX(row->vaddr, span->start), &row->rule);
	}
}
