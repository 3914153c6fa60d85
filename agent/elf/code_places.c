// SPDX-License-Identifier: Apache-2.0
/*
 * Finds the function that holds a place. Going backwards from the place, every address is tried
 * that a compiler or linker has aligned behind padding, or that has a prologue, the nearest first.
 * From each such start, function after function is followed until one reaches the place.
 *
 * A wrong start must not become a rule. Two kinds of start are certain: a prologue that sets up rbp
 * (push %rbp; mov %rsp,%rbp), because no code does so within a frame, and an address behind int3
 * bytes, with which linkers fill. Any other start could be a block within a function. If that
 * function has a frame there, its epilogue removes what the wrong start has not pushed, and the
 * state at the return contradicts that of an entry. So such a start needs a return, or a jump to
 * another function's start, and no contradiction. But behind a call that never returns lies another
 * function, which may contradict nothing: so functions that call without a frame are not believed.
 * Code with frame pointers has no such functions. Any thread; nothing is shared.
 */
#include "agent/elf/code_places.h"

#include <elf.h>

#include "agent/elf/code_bytes.h"
#include "agent/elf/code_flow.h"

enum {
	ALIGN = ARCH_CODE_ALIGN,
	/* Bytes around a place that get an INVALID rule when its function is not found */
	UNKNOWN = 16,
	STARTS_MAX = 64,	   /* possible starts tried for one place */
	FUNCTIONS_MAX = 64,	   /* functions followed from one start */
	STEPS_PER_PLACE = 1 << 16, /* instructions */
	STEPS_TO_LOOK = 16,	   /* the least that a place costs: its search */
	INSTRUCTION_MAX = 15,	   /* bytes */
};

struct reader {
	const struct image *image;
	struct code_flow flow;
	struct code_bytes code; /* the section or segment that holds the place */
	uint64_t room_end;	/* functions around the place end here at the latest */
	size_t begun;		/* the first piece of the last function that was read */
	struct code_pieces *pieces;
	struct code_pieces unknown; /* around places whose function was not found */
};

void code_pieces_done(struct code_pieces *p)
{
	free(p->v);
	*p = (struct code_pieces){0};
}

int code_pieces_add(struct code_pieces *p, const struct code_piece *piece)
{
	struct code_piece *last = p->n ? &p->v[p->n - 1] : NULL;
	int r;

	if (last && last->end == piece->start &&
	    memcmp(&last->rule, &piece->rule, sizeof(piece->rule)) == 0) {
		last->end = piece->end;
		return 0;
	}
	r = grow_array((void **)&p->v, &p->cap, p->n + 1, sizeof(*p->v), CODE_PIECES_MAX);
	if (r == 0)
		p->v[p->n++] = *piece;
	return r;
}

/* ---- what the bytes tell ----------------------------------------------------------------------
 */

/*
 * Sets r->code to the executable section that holds VADDR, or to the segment when there are no
 * sections. False when there is none.
 */
static bool find_section(struct reader *r, uint64_t vaddr)
{
	const struct image *image = r->image;
	struct cursor c;

	if (vaddr >= r->code.first && vaddr < r->code.end)
		return true;
	r->code.first = r->code.end = 0;
	for (size_t i = 0; i < image->n_sections; i++) {
		const struct image_section *s = &image->sections[i];

		if ((s->flags & SHF_EXECINSTR) && s->type != SHT_NOBITS && vaddr >= s->vaddr &&
		    vaddr - s->vaddr < s->size) {
			r->code.first = s->vaddr;
			r->code.end = s->vaddr + s->size;
		}
	}
	for (size_t i = 0; image->n_sections == 0 && i < image->n_segments; i++) {
		const struct image_segment *s = &image->segments[i];

		if ((s->flags & PF_X) && vaddr >= s->vaddr && vaddr - s->vaddr < s->filesz) {
			r->code.first = s->vaddr;
			r->code.end = s->vaddr + s->filesz;
		}
	}
	c = image_at_vaddr(image, r->code.first);
	if (r->code.first == r->code.end || c.bad || !image_is_code(image, vaddr) ||
	    vaddr - r->code.first >= c.size - c.pos) {
		r->code.first = r->code.end = 0;
		return false;
	}
	r->code.end = r->code.first + MIN(r->code.end - r->code.first, (uint64_t)(c.size - c.pos));
	r->code.data = c.data + c.pos;
	return true;
}

/* Is VADDR certainly the border between two functions? */
static bool is_border(const struct reader *r, uint64_t vaddr)
{
	return vaddr % ALIGN == 0 && (code_traps_before(&r->code, vaddr) >= CODE_TRAPS_BETWEEN ||
				      code_sets_frame(&r->code, vaddr));
}

static bool may_start(const struct reader *r, uint64_t vaddr)
{
	if (vaddr % ARCH_CODE_UNIT || code_is_trap(&r->code, vaddr))
		return false;
	if (vaddr == r->code.first || vaddr == r->image->entry || is_border(r, vaddr))
		return true;
	if (vaddr % ALIGN == 0)
		return code_traps_before(&r->code, vaddr) || code_padding_before(&r->code, vaddr);
	return code_ends_before(&r->code, vaddr) &&
	       (code_is_entry(&r->code, vaddr) || code_sets_frame(&r->code, vaddr));
}

/* ---- one function -----------------------------------------------------------------------------
 */

static bool leads_to_start(const struct reader *r, uint64_t vaddr)
{
	if (vaddr < r->code.first || vaddr >= r->code.end)
		return image_is_code(r->image, vaddr); /* .plt, or another section's */
	return code_sets_frame(&r->code, vaddr) || is_border(r, vaddr);
}

/* Does the function jump to another function's start while its own frame is still there? */
static bool leaves_frame(const struct reader *r)
{
	const struct code_flow *f = &r->flow;

	for (size_t i = 0; i < f->n_seeds; i++)
		if (leads_to_start(r, f->seeds[i].target))
			return true;
	return false;
}

/*
 * Is it proven that a function begins at START, or does STATE lie in a frame that the code has set
 * up?
 */
static bool is_proven(const struct reader *r, uint64_t start, const struct code_state *state)
{
	const struct kiln_rule rule = code_state_rule(state);
	const struct code_flow *f = &r->flow;

	if (is_border(r, start) && code_traps_before(&r->code, start) >= CODE_TRAPS_BETWEEN &&
	    !f->is_outermost)
		return true;
	if (start == r->image->entry)
		return true;
	/* A contradiction: behind a call, a path has run into another function. */
	if (f->is_contradictory || leaves_frame(r))
		return false;
	if (code_sets_frame(&r->code, start) ||
	    (rule.kind == KILN_RULE_CFA && rule.reg == ARCH_REG_FP &&
	     rule.cfa_off == CODE_STANDARD_FRAME))
		return true;
	if (f->cuts || f->is_outermost)
		return false;
	/* Code behind a call may be another function. Indirect jumps prove nothing: they may be
	 * switches. */
	if (f->bare_calls || f->n_outs == CODE_OUTS_MAX)
		return false;
	for (size_t i = 0; i < f->n_outs; i++)
		if (!leads_to_start(r, f->outs[i]))
			return false;
	return f->returns || f->n_outs;
}

/* The state at the instruction that VADDR lies in; NULL when no path leads there. */
static const struct code_state *state_at(struct reader *r, uint64_t vaddr)
{
	struct code_flow *f = &r->flow;
	struct code_insn insn;

	for (uint64_t n = 0; n <= INSTRUCTION_MAX && vaddr - n >= f->start; n++) {
		uint32_t offset = (uint32_t)(vaddr - n - f->start);

		if (offset < f->end && code_flow_at(f, offset) &&
		    code_flow_insn(f, offset, &insn) && insn.size > n)
			return code_flow_at(f, offset);
	}
	return NULL;
}

/*
 * Adds the rules of the function that was just followed, for all instructions that a path reaches.
 */
static int add_pieces(struct reader *r)
{
	struct code_flow *f = &r->flow;
	bool is_entry = f->start == r->image->entry;
	int e = 0;

	r->begun = r->pieces->n;
	for (uint32_t offset = 0, size; e == 0 && offset < f->end; offset += size) {
		const struct code_state *state = code_flow_at(f, offset);
		struct code_piece piece = {.start = f->start + offset,
					   .rule = {.kind = KILN_RULE_STOP}};
		struct code_insn insn;

		size = 1;
		if (!state || !code_flow_insn(f, offset, &insn))
			continue;
		size = insn.size;
		piece.end = piece.start + size;
		if (!is_entry)
			piece.rule = code_state_rule(state);
		e = code_pieces_add(r->pieces, &piece);
	}
	return e;
}

static uint64_t skip_padding(struct reader *r, uint64_t vaddr, uint64_t until)
{
	struct code_insn insn;

	for (; vaddr < until && r->flow.budget; r->flow.budget--) {
		if (!code_bytes_decode(&r->code, vaddr, true, &insn) || !insn.is_padding)
			break;
		vaddr += insn.size;
	}
	return vaddr;
}

static int compare_addresses(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/*
 * Follows the function at START. A switch table ends where the next one begins, which is known only
 * after all were seen: so a function with several tables is followed a second time.
 */
static int run(struct reader *r, uint64_t start, uint32_t room, const struct code_state *state)
{
	struct code_flow *f = &r->flow;
	uint64_t tables[CODE_LEAS_MAX];
	int e;

	f->n_seeds = f->n_tables = 0;
	e = code_flow_run(f, start, room, false, state);
	if (e < 0 || !f->switches || f->n_leas < 2)
		return e;
	memcpy(tables, f->lea_targets, f->n_leas * sizeof(*tables));
	qsort(tables, f->n_leas, sizeof(*tables), compare_addresses);
	f->tables = tables;
	f->n_tables = f->n_leas;
	f->n_seeds = 0;
	e = code_flow_run(f, start, room, false, state);
	f->tables = NULL;
	f->n_tables = 0;
	return e;
}

/*
 * Follows the function at START; *RET is the state at VADDR, or NULL when no path leads there.
 * Behind a call that is followed by padding, the function has ended or a loop begins. First it is
 * taken to end there. If VADDR is not reached so, the function is followed once more beyond such
 * calls, and the result counts only when nothing contradicts it.
 */
static int reach(struct reader *r, uint64_t start, uint64_t vaddr, uint32_t room,
		 const struct code_state **ret)
{
	struct code_state entry = code_state_at_entry();
	struct code_flow *f = &r->flow;
	int e;

	f->ends_at_gaps = true;
	e = run(r, start, room, &entry);
	*ret = e < 0 ? NULL : state_at(r, vaddr);
	if (e < 0 || *ret || !f->calls || !code_sets_frame(&r->code, start))
		return e;
	f->ends_at_gaps = false;
	e = run(r, start, room, &entry);
	if (e == 0 && !f->is_contradictory && !f->cuts && !f->n_seeds)
		*ret = state_at(r, vaddr);
	if (e < 0 || *ret)
		return e;
	f->ends_at_gaps = true; /* the caller uses the function's end */
	return run(r, start, room, &entry);
}

/*
 * Follows one function after the other from START on. 1: one of them reaches VADDR and has a rule
 * there, and its pieces are added; 0: none does.
 */
static int follow_from(struct reader *r, uint64_t start, uint64_t vaddr)
{
	for (int i = 0; i < FUNCTIONS_MAX && start <= vaddr && r->flow.budget; i++) {
		uint64_t room = MIN(r->room_end - start, (uint64_t)CODE_PLACE_ROOM);
		const struct code_state *state;
		int e;

		e = reach(r, start, vaddr, (uint32_t)room, &state);
		if (e < 0)
			return e;
		if (state) {
			if (!is_proven(r, start, state) ||
			    (code_state_rule(state).kind == KILN_RULE_INVALID &&
			     start != r->image->entry))
				return 0;
			e = add_pieces(r);
			return e < 0 ? e : 1;
		}
		if (r->flow.end == 0 ||
		    (r->flow.is_contradictory && !code_sets_frame(&r->code, start)))
			return 0;
		start = skip_padding(r, start + r->flow.end, vaddr + 1);
	}
	return 0;
}

/* ---- places -----------------------------------------------------------------------------------
 */

static void find_room(struct reader *r, uint64_t vaddr)
{
	uint64_t limit = MIN(r->code.end, vaddr + CODE_PLACE_ROOM);

	r->room_end = ALIGN_UP(vaddr + 1, (uint64_t)ALIGN);
	while (r->room_end < limit && !is_border(r, r->room_end))
		r->room_end += ALIGN;
	r->room_end = MIN(r->room_end, limit);
}

/* Tries all possible starts of the function that holds VADDR. Returns as follow_from(). */
static int read_place(struct reader *r, uint64_t vaddr)
{
	uint64_t back = MIN(vaddr - r->code.first, (uint64_t)CODE_PLACE_BACK);
	int tried = 0, e = 0;

	find_room(r, vaddr);
	for (uint64_t n = 0; e == 0 && n <= back && tried < STARTS_MAX && r->flow.budget; n++) {
		uint64_t start = vaddr - n;

		if (!may_start(r, start))
			continue;
		tried++;
		e = follow_from(r, start, vaddr);
		/* Everything before START belongs to other functions. */
		if (is_border(r, start))
			break;
	}
	return e;
}

static bool is_read(const struct reader *r, uint64_t vaddr)
{
	for (size_t i = r->begun; i < r->pieces->n; i++)
		if (vaddr >= r->pieces->v[i].start && vaddr < r->pieces->v[i].end)
			return true;
	return false;
}

static int add_place(struct reader *r, const struct code_place *place, uint64_t *bytes)
{
	struct code_piece unknown = {.start = place->vaddr / UNKNOWN * UNKNOWN,
				     .end = place->vaddr / UNKNOWN * UNKNOWN + UNKNOWN,
				     .rule = {.kind = KILN_RULE_INVALID}};
	int e = 0;

	if (is_read(r, place->vaddr))
		return 0;
	if (find_section(r, place->vaddr)) {
		if (place->is_guess && !code_is_behind_call(&r->code, place->vaddr + 1))
			return 0;
		r->flow.budget = STEPS_PER_PLACE;
		e = read_place(r, place->vaddr);
		*bytes += (STEPS_PER_PLACE - r->flow.budget) * CODE_BYTES_PER_STEP;
	}
	*bytes += STEPS_TO_LOOK * CODE_BYTES_PER_STEP;
	if (e == 0 && !place->is_guess)
		e = code_pieces_add(&r->unknown, &unknown);
	return MIN(e, 0);
}

static int compare_places(const void *a, const void *b)
{
	const struct code_place *x = a, *y = b;

	if (x->vaddr != y->vaddr)
		return x->vaddr < y->vaddr ? -1 : 1;
	return x->is_guess - y->is_guess;
}

static int compare_pieces(const void *a, const void *b)
{
	const struct code_piece *x = a, *y = b;

	return x->start < y->start ? -1 : x->start > y->start;
}

/*
 * Sorts the pieces and removes overlaps. Functions may share code: the piece that begins first is
 * kept.
 */
static void unify(struct code_pieces *p)
{
	uint64_t end = 0;
	size_t n = 0;

	if (p->n)
		qsort(p->v, p->n, sizeof(*p->v), compare_pieces);
	for (size_t i = 0; i < p->n; i++) {
		struct code_piece piece = p->v[i];

		piece.start = MAX(piece.start, end);
		if (piece.start >= piece.end)
			continue;
		end = piece.end;
		p->v[n++] = piece;
	}
	p->n = n;
}

/* Adds to P the parts of UNKNOWN that no piece of P covers. */
static int add_unknown(struct code_pieces *p, struct code_pieces *unknown)
{
	size_t n = p->n, k = 0;
	int e = 0;

	unify(unknown);
	for (size_t i = 0; i < unknown->n; i++) {
		struct code_piece rest = unknown->v[i], part;

		while (k < n && p->v[k].end <= rest.start)
			k++;
		for (size_t j = k; e == 0 && rest.start < rest.end; j++) {
			part = rest;
			if (j < n && p->v[j].start < rest.end) {
				part.end = p->v[j].start;
				rest.start = MAX(rest.start, p->v[j].end);
			} else {
				rest.start = rest.end;
			}
			if (part.start < part.end)
				e = code_pieces_add(p, &part);
		}
	}
	unify(p);
	return e;
}

int code_places_read(const struct image *image, struct code_place *places, size_t n,
		     struct code_pieces *ret, uint64_t *ret_bytes)
{
	struct reader r = {.image = image, .pieces = ret};
	uint64_t bytes = 0;
	int e = 0;

	r.flow.image = image;
	if (n)
		qsort(places, n, sizeof(*places), compare_places);
	for (size_t i = 0; e == 0 && i < MIN(n, (size_t)CODE_PLACES_MAX); i++)
		if (i == 0 || places[i].vaddr != places[i - 1].vaddr)
			e = add_place(&r, &places[i], &bytes);
	code_flow_done(&r.flow);
	unify(ret);
	if (e == 0)
		e = add_unknown(ret, &r.unknown);
	code_pieces_done(&r.unknown);
	*ret_bytes = bytes;
	return e;
}
