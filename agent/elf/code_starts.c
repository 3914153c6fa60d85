// SPDX-License-Identifier: Apache-2.0
/*
 * Finds function starts in code without unwind information: symbols, header entries, and, in one
 * sweep over the code, the targets of calls and the addresses that are taken. Every candidate is
 * checked to lie inside of a gap. A candidate inside of a function whose symbol has a size is
 * dropped.
 */
#include "agent/elf/code_starts.h"

#include <elf.h>

#include "agent/elf/code_state.h"
#include "lib/pace.h"

void code_starts_done(struct code_starts *s)
{
	free(s->gaps);
	free(s->v);
	free(s->tables);
	*s = (struct code_starts){0};
}

const struct code_gap *code_starts_gap(const struct code_starts *s, uint64_t vaddr)
{
	size_t low = 0, high = s->n_gaps;

	while (low < high) { /* the first gap that ends behind VADDR */
		size_t middle = low + (high - low) / 2;

		if (s->gaps[middle].end <= vaddr)
			low = middle + 1;
		else
			high = middle;
	}
	return low < s->n_gaps && s->gaps[low].start <= vaddr ? &s->gaps[low] : NULL;
}

static int add(struct code_starts *s, uint64_t vaddr, uint64_t size, enum code_start_from from)
{
	const struct code_gap *gap = code_starts_gap(s, vaddr);
	int r;

	if (!gap || vaddr % ARCH_CODE_UNIT)
		return 0;
	r = grow_array((void **)&s->v, &s->cap, s->n + 1, sizeof(*s->v), CODE_STARTS_MAX);
	if (r < 0)
		return r == -E2BIG ? 0 : r;
	s->v[s->n++] = (struct code_start){
	    .vaddr = vaddr, .size = (uint32_t)MIN(size, gap->end - vaddr), .from = (uint8_t)from};
	return 0;
}

/* ---- symbols ----------------------------------------------------------------------------------
 */

static int from_symbols(struct code_starts *s, const struct image *image, uint32_t type)
{
	uint64_t low = s->gaps[0].start, high = s->gaps[s->n_gaps - 1].end;
	size_t left = CODE_SYMBOLS_MAX;

	for (size_t i = 0; i < image->n_sections; i++) {
		struct cursor c;
		size_t n;

		if (image->sections[i].type != type)
			continue;
		c = image_section_data(image, &image->sections[i]);
		if (c.bad)
			continue;
		n = MIN(c.size / sizeof(Elf64_Sym), left);
		left -= n;
		for (size_t k = 0; k < n; k++) {
			Elf64_Sym sym;
			int r;

			memcpy(&sym, c.data + k * sizeof(sym), sizeof(sym));
			if (sym.st_value < low || sym.st_value >= high ||
			    (ELF64_ST_TYPE(sym.st_info) != STT_FUNC &&
			     ELF64_ST_TYPE(sym.st_info) != STT_GNU_IFUNC) ||
			    sym.st_shndx == SHN_UNDEF)
				continue;
			r = add(s, sym.st_value, sym.st_size, CODE_FROM_SYMBOL);
			if (r < 0)
				return r;
		}
	}
	return 0;
}

/* ---- headers ----------------------------------------------------------------------------------
 */

static int from_array(struct code_starts *s, const struct image *image, const char *name)
{
	const struct image_section *section = image_section(image, name);
	struct cursor c;
	int r = 0;

	if (!section)
		return 0;
	c = image_section_data(image, section);
	while (r == 0 && cursor_left(&c) >= 8)
		r = add(s, cursor_u64(&c), 0, CODE_FROM_HEADER);
	return r;
}

static int from_headers(struct code_starts *s, const struct image *image)
{
	const struct image_section *dynamic = image_section(image, ".dynamic");
	struct cursor c = {.bad = true};
	int r = add(s, image->entry, 0, CODE_FROM_ENTRY);

	if (dynamic)
		c = image_section_data(image, dynamic);
	while (r == 0 && cursor_left(&c) >= sizeof(Elf64_Dyn)) {
		uint64_t tag = cursor_u64(&c), value = cursor_u64(&c);

		if (tag == DT_NULL)
			break;
		if (tag == DT_INIT || tag == DT_FINI)
			r = add(s, value, 0, CODE_FROM_HEADER);
	}
	if (r == 0)
		r = from_array(s, image, ".init_array");
	return r == 0 ? from_array(s, image, ".fini_array") : r;
}

/* ---- code -------------------------------------------------------------------------------------
 */

static int add_table(struct code_starts *s, uint64_t vaddr)
{
	int r = grow_array((void **)&s->tables, &s->tables_cap, s->n_tables + 1, sizeof(*s->tables),
			   CODE_STARTS_MAX);

	if (r == 0)
		s->tables[s->n_tables++] = vaddr;
	return r == -E2BIG ? 0 : r;
}

static int sweep(struct code_starts *s, const struct image *image, uint64_t start, uint64_t end)
{
	struct cursor c = image_at_vaddr(image, start);
	struct code_insn insn;
	int r = 0;

	if (c.bad)
		return 0;
	c.size = MIN(c.size, end - start);
	while (r == 0 && cursor_left(&c)) {
		if (!code_decode(c, start + c.pos, true, &insn)) {
			cursor_skip(&c, MIN((size_t)ARCH_CODE_UNIT, cursor_left(&c)));
			continue;
		}
		cursor_skip(&c, insn.size);
		if (insn.target == 0)
			continue;
		if (insn.flow == CODE_CALL) {
			r = add(s, insn.target, 0, CODE_FROM_CALL);
		} else if (insn.flow == CODE_NEXT || insn.flow == CODE_INDIRECT) {
			r = add_table(s, insn.target);
			if (r == 0 && insn.flow == CODE_NEXT)
				r = add(s, insn.target, 0, CODE_FROM_GUESS);
		}
	}
	return r;
}

/* Is VADDR in a gap, but in none of the N functions of known size? */
static bool is_open(const struct code_starts *s, size_t n, uint64_t vaddr)
{
	size_t low = 0, high = n;

	if (!code_starts_gap(s, vaddr))
		return false;
	while (low < high) { /* the first that begins behind VADDR */
		size_t middle = low + (high - low) / 2;

		if (s->v[middle].vaddr <= vaddr)
			low = middle + 1;
		else
			high = middle;
	}
	return low == 0 || vaddr - s->v[low - 1].vaddr >= s->v[low - 1].size;
}

/*
 * Functions of known size are not decoded, only searched for bytes that look like a call or like
 * taking an address. A false match adds a guess, which the code at that address has to confirm.
 */
static int scan(struct code_starts *s, size_t n, const struct image *image, uint64_t start,
		uint64_t end)
{
	struct cursor c = image_at_vaddr(image, start);
	int r = 0;

	if (c.bad)
		return 0;
	c.size = MIN(c.size, end - start);
	for (size_t i = 0; r == 0 && i + CODE_REFERENCE_MAX <= c.size; i += ARCH_CODE_UNIT) {
		uint64_t target;

		if (!code_reference(c.data + i, start + i, &target))
			continue;
		if (is_open(s, n, target))
			r = add(s, target, 0, CODE_FROM_GUESS);
		else if (!image_is_code(image, target) && !image_at_vaddr(image, target).bad)
			r = add_table(s, target);
	}
	return r;
}

static int read_gap(struct code_starts *s, size_t n, const struct image *image,
		    const struct code_gap *gap, size_t *next)
{
	uint64_t at = gap->start;
	int r = 0;

	for (; r == 0 && *next < n && s->v[*next].vaddr < gap->end; (*next)++) {
		struct code_start v = s->v[*next];
		uint64_t end = MIN(v.vaddr + v.size, gap->end);

		pace_point();
		if (v.vaddr > at)
			r = sweep(s, image, at, v.vaddr);
		at = MAX(at, v.vaddr);
		if (r == 0 && end > at)
			r = scan(s, n, image, at, end);
		at = MAX(at, end);
	}
	return r == 0 && at < gap->end ? sweep(s, image, at, gap->end) : r;
}

/* ---- all together -----------------------------------------------------------------------------
 */

static int compare_starts(const void *a, const void *b)
{
	const struct code_start *x = a, *y = b;

	if (x->vaddr != y->vaddr)
		return x->vaddr < y->vaddr ? -1 : 1;
	return (int)y->from - (int)x->from;
}

static int compare_addresses(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/*
 * Sorts the starts and keeps one for each address, with the best source and the largest size of all
 * at that address. Drops starts of unknown size inside of a function of known size. Sorts the
 * tables and drops duplicates.
 */
static void unify(struct code_starts *s)
{
	uint64_t busy = 0; /* end of the last function of known size */
	size_t n = 0;

	if (s->n)
		qsort(s->v, s->n, sizeof(*s->v), compare_starts);
	for (size_t i = 0; i < s->n; i++) {
		struct code_start *v = &s->v[i];

		if (n && s->v[n - 1].vaddr == v->vaddr) {
			s->v[n - 1].size = MAX(s->v[n - 1].size, v->size);
			busy = MAX(busy, v->vaddr + v->size);
			continue;
		}
		if (v->vaddr < busy && v->size == 0)
			continue;
		busy = MAX(busy, v->vaddr + v->size);
		s->v[n++] = *v;
	}
	s->n = n;
	n = 0;
	if (s->n_tables)
		qsort(s->tables, s->n_tables, sizeof(*s->tables), compare_addresses);
	for (size_t i = 0; i < s->n_tables; i++)
		if (n == 0 || s->tables[n - 1] != s->tables[i])
			s->tables[n++] = s->tables[i];
	s->n_tables = n;
}

int code_starts_find(struct code_starts *s, const struct image *image)
{
	size_t n, next = 0;
	int r;

	if (s->n_gaps == 0)
		return 0;
	r = from_symbols(s, image, SHT_SYMTAB);
	if (r == 0)
		r = from_symbols(s, image, SHT_DYNSYM);
	if (r == 0)
		r = from_headers(s, image);
	if (r < 0)
		return r;
	unify(s);
	n = s->n; /* the sorted starts; read_gap() appends more behind them */
	for (size_t i = 0; r == 0 && i < s->n_gaps; i++)
		r = read_gap(s, n, image, &s->gaps[i], &next);
	if (r == 0)
		unify(s);
	return r;
}
