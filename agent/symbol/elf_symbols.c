// SPDX-License-Identifier: Apache-2.0
/*
 * Symbol index of one image. Built in three steps:
 *   1. the symbols of all tables that are functions, 12 bytes each, sorted by address;
 *   2. a sweep over them that leaves pieces which do not overlap, so that a look-up is one binary
 *      search: nested symbols interrupt the outer one, unsized symbols fill what is left;
 *   3. names that lie in no file (unpacked tables, PLT stubs) are copied into a blob.
 * Only ties need names while building.
 *
 * Invariants: pieces are sorted, disjoint and not empty; addresses are relative to the first
 * executable section and fit 32 bits. Any thread.
 */
#include "agent/symbol/elf_symbols.h"

#include <elf.h>

#include "agent/symbol/demangle.h"
#include "agent/symbol/elf_read.h"
#include "agent/symbol/plt.h"
#include "lib/buf.h"
#include "lib/metrics.h"
#include "lib/pace.h"

enum {
	RANGES_MAX = 256,   /* executable sections */
	SAME_START_MAX = 4, /* sizes at one address */
	NESTING_MAX = 32,   /* sized symbols within each other */
	TIE_MAX = 4096,	    /* names compared at one address: linkers fold equal functions */
	TIE_NAME_MAX = 512,
	TIE_STRINGS_MAX = 1 << 20, /* a string table up to this is read at once, at the first tie */
	SOURCE_BLOB = ELF_SYMBOLS_INPUTS_MAX,
	NAME_BITS = 30,
	NAME_MASK = (1 << NAME_BITS) - 1,
	SIZE_BITS = 29,
	SIZE_MASK = (1 << SIZE_BITS) - 1,
};

/* While building, SIZE has the rank in its upper bits: 0 local .. 2 global, + 4 when typed. */
struct entry {
	uint32_t start, size;
	uint32_t name; /* source << NAME_BITS | offset */
};

struct range {
	uint32_t start, end;
};

struct elf_symbols {
	struct image *files[ELF_SYMBOLS_INPUTS_MAX]; /* images whose string tables hold the names */
	struct elf_source strings[ELF_SYMBOLS_INPUTS_MAX];
	uint64_t base;
	struct entry *entries, *plt;
	size_t n_entries, n_plt;
	struct buf blob;
};

struct builder {
	struct elf_symbols *t;
	struct range ranges[RANGES_MAX];
	size_t n_ranges;
	struct entry *in, *out;
	size_t n_in, cap_in, n_out, cap_out;
	size_t dropped;
	struct {
		uint32_t end, name;
	} stack[NESTING_MAX];
	size_t depth;
	uint32_t pos; /* pieces of lower addresses are complete */
	/* String tables of the inputs, loaded when two symbols at one address have to be compared
	 * by name; IMAGE is NULL until then. */
	struct elf_source ties[ELF_SYMBOLS_INPUTS_MAX];
};

static void builder_done(struct builder *b)
{
	free(b->in);
	free(b->out);
}

/* ---- executable ranges ------------------------------------------------------------------------
 */

static int compare_ranges(const void *a, const void *b)
{
	const struct range *x = a, *y = b;

	return x->start < y->start ? -1 : x->start > y->start;
}

static void add_range(struct builder *b, uint64_t vaddr, uint64_t size)
{
	uint64_t start = vaddr - b->t->base;

	if (vaddr < b->t->base || start > UINT32_MAX || size == 0 || b->n_ranges == RANGES_MAX)
		return;
	size = MIN(size, UINT32_MAX - start);
	b->ranges[b->n_ranges++] = (struct range){(uint32_t)start, (uint32_t)(start + size)};
}

static bool section_is_code(const struct image_section *s)
{
	return (s->flags & (SHF_ALLOC | SHF_EXECINSTR)) == (SHF_ALLOC | SHF_EXECINSTR) && s->size;
}

static void find_ranges(struct builder *b, const struct image *image)
{
	uint64_t base = UINT64_MAX;

	for (size_t i = 0; i < image->n_sections; i++) {
		if (section_is_code(&image->sections[i]))
			base = MIN(base, image->sections[i].vaddr);
	}
	b->t->base = base;
	for (size_t i = 0; i < image->n_sections; i++) {
		if (section_is_code(&image->sections[i]))
			add_range(b, image->sections[i].vaddr, image->sections[i].size);
	}
	if (!b->n_ranges) { /* no section headers */
		for (size_t i = 0; i < image->n_segments; i++) {
			if (image->segments[i].flags & PF_X)
				base = MIN(base, image->segments[i].vaddr);
		}
		b->t->base = base;
		for (size_t i = 0; i < image->n_segments; i++) {
			if (image->segments[i].flags & PF_X)
				add_range(b, image->segments[i].vaddr, image->segments[i].memsz);
		}
	}
	qsort(b->ranges, b->n_ranges, sizeof(b->ranges[0]), compare_ranges);
}

static const struct range *range_at(const struct builder *b, uint32_t at)
{
	size_t lo = 0, hi = b->n_ranges;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (b->ranges[mid].start <= at)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo && at < b->ranges[lo - 1].end ? &b->ranges[lo - 1] : NULL;
}

/* ---- reading tables ---------------------------------------------------------------------------
 */

/*
 * The rank of SYM: 0 local .. 2 global, + 4 when its type is a function's. -1: it is no function.
 */
static int symbol_rank(const Elf64_Sym *sym)
{
	unsigned int type = ELF64_ST_TYPE(sym->st_info), bind = ELF64_ST_BIND(sym->st_info);
	int rank = type == STT_FUNC || type == STT_GNU_IFUNC ? 4 : 0;

	if ((!rank && type != STT_NOTYPE) || sym->st_shndx == SHN_UNDEF || sym->st_name == 0)
		return -1;
	return rank + (bind == STB_LOCAL ? 0 : bind == STB_WEAK ? 1 : 2);
}

/* arm64 mapping symbols ($x, $d) mark code and data, they are no functions. */
static bool is_mapping_symbol(const struct builder *b, const Elf64_Sym *sym, size_t source)
{
	char name[4];

	return elf_source_read(&b->t->strings[source], sym->st_name, name, 3) == 3 &&
	       name[0] == '$' && (name[1] == 'x' || name[1] == 'd') && (!name[2] || name[2] == '.');
}

static int add_symbol(struct builder *b, const Elf64_Sym *sym, const struct image *image,
		      size_t source)
{
	const struct range *range;
	int r, rank = symbol_rank(sym);
	uint64_t start = sym->st_value - b->t->base;
	uint32_t size;

	if (rank < 0 || sym->st_value < b->t->base || start > UINT32_MAX ||
	    sym->st_name > NAME_MASK)
		return 0;
	range = range_at(b, (uint32_t)start);
	if (!range ||
	    (rank == 0 && image->machine == EM_AARCH64 && is_mapping_symbol(b, sym, source)))
		return 0;
	size = (uint32_t)MIN(sym->st_size,
			     (uint64_t)MIN(range->end - (uint32_t)start, (uint32_t)SIZE_MASK));
	r = grow_array((void **)&b->in, &b->cap_in, b->n_in + 1, sizeof(*b->in), ELF_SYMBOLS_MAX);
	if (r == -E2BIG) {
		b->dropped++;
		return 0;
	}
	if (r < 0)
		return r;
	b->in[b->n_in++] = (struct entry){
	    .start = (uint32_t)start,
	    .size = size | (uint32_t)rank << SIZE_BITS,
	    .name = sym->st_name | (uint32_t)source << NAME_BITS,
	};
	return 0;
}

static const struct image_section *table_section(const struct image *image, bool dynamic)
{
	const struct image_section *s =
	    elf_section_by_type(image, dynamic ? SHT_DYNSYM : SHT_SYMTAB);

	return s && s->link < image->n_sections && image->sections[s->link].type == SHT_STRTAB
		   ? s
		   : NULL;
}

size_t elf_symbols_listed(const struct image *image, bool dynamic)
{
	const struct image_section *s = table_section(image, dynamic);

	return s ? s->size / sizeof(Elf64_Sym) : 0;
}

static int read_table(struct builder *b, const struct elf_symbols_input *input, size_t source)
{
	const struct image_section *section = table_section(input->image, input->dynamic);
	_cleanup_(elf_source_done) struct elf_source symbols = {0};
	_cleanup_free_ Elf64_Sym *chunk = NULL;
	const size_t step = 1024;
	size_t n;
	int r = 0;

	if (!section ||
	    elf_source_init(&symbols, input->image, section, ELF_SYMBOLS_UNPACKED_MAX, NULL) < 0)
		return 0;
	if (elf_source_init(&b->t->strings[source], input->image,
			    &input->image->sections[section->link], ELF_SYMBOLS_UNPACKED_MAX,
			    NULL) < 0)
		return 0;
	chunk = malloc(step * sizeof(*chunk));
	if (!chunk)
		return -ENOMEM;
	for (uint64_t at = 0; at < ELF_SYMBOLS_LOOKED_AT; at += step) {
		pace_wait();
		n = elf_source_read(&symbols, at * sizeof(*chunk), chunk, step * sizeof(*chunk)) /
		    sizeof(*chunk);
		for (size_t i = 0; r == 0 && i < n; i++)
			r = add_symbol(b, &chunk[i], input->image, source);
		if (r < 0 || n < step)
			return r;
	}
	b->dropped++; /* there are more, it is not known how many */
	return 0;
}

/* ---- which of several names -------------------------------------------------------------------
 */

static size_t read_name(const struct elf_symbols *t, uint32_t name, char *out, size_t size)
{
	uint32_t source = name >> NAME_BITS, offset = name & NAME_MASK;
	size_t n;

	if (source < SOURCE_BLOB)
		return elf_source_string(&t->strings[source], offset, out, size);
	out[0] = 0;
	if (offset >= t->blob.len)
		return 0;
	n = strnlen(t->blob.data + offset, size - 1);
	memcpy(out, t->blob.data + offset, n);
	out[n] = 0;
	return n;
}

static size_t read_tie(struct builder *b, uint32_t name, char *out, size_t size)
{
	uint32_t source = name >> NAME_BITS;
	struct elf_source *tie = &b->ties[source];

	if (b->t->strings[source].unpacked)
		return read_name(b->t, name, out, size);
	if (!tie->image) {
		*tie = b->t->strings[source];
		if (elf_source_load(tie, TIE_STRINGS_MAX) < 0)
			tie->unpacked = NULL; /* so each name is read from the file */
	}
	return elf_source_string(tie, name & NAME_MASK, out, size);
}

static void forget_ties(struct builder *b)
{
	for (size_t i = 0; i < ELF_SYMBOLS_INPUTS_MAX; i++)
		elf_source_done(&b->ties[i]);
}

static size_t underscores(const char *s)
{
	return strspn(s, "_");
}

/* True when X is the better name. */
static bool name_is_better(const char *x, size_t x_len, const char *y, size_t y_len)
{
	if (!x_len || !y_len)
		return x_len > y_len;
	if (underscores(x) != underscores(y))
		return underscores(x) < underscores(y);
	if (x_len != y_len)
		return x_len < y_len;
	return strcmp(x, y) < 0;
}

static uint32_t size_of(const struct entry *e)
{
	return e->size & SIZE_MASK;
}

/*
 * The best symbol of a group that starts at one address, of those with a size greater than ABOVE,
 * or (ABOVE < 0) without a size. NULL when there is none.
 */
static const struct entry *pick(struct builder *b, const struct entry *group, size_t n,
				int64_t above)
{
	char best_name[TIE_NAME_MAX], name[TIE_NAME_MAX];
	size_t best_len = 0, len, compared = 0;
	const struct entry *best = NULL;
	bool has_name = false;

	for (size_t i = 0; i < n; i++) {
		const struct entry *e = &group[i];

		if (above < 0 ? size_of(e) != 0 : size_of(e) <= above)
			continue;
		if (!best || e->size >> SIZE_BITS > best->size >> SIZE_BITS) {
			best = e;
			has_name = false;
			continue;
		}
		if (e->size >> SIZE_BITS < best->size >> SIZE_BITS || e->name == best->name ||
		    ++compared > TIE_MAX)
			continue;
		if (!has_name)
			best_len = read_tie(b, best->name, best_name, sizeof(best_name));
		has_name = true;
		len = read_tie(b, e->name, name, sizeof(name));
		if (!name_is_better(name, len, best_name, best_len))
			continue;
		best = e;
		best_len = len;
		memcpy(best_name, name, len + 1);
	}
	return best;
}

/* ---- from symbols to pieces -------------------------------------------------------------------
 */

static int compare_entries(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	pace_point(); /* a large table takes long to sort */
	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	return x->name < y->name ? -1 : x->name > y->name;
}

/* Adds the piece up to END, which the innermost symbol covers. */
static int emit(struct builder *b, uint32_t end)
{
	uint32_t name = b->stack[b->depth - 1].name;
	struct entry *last = b->n_out ? &b->out[b->n_out - 1] : NULL;
	int r;

	if (b->pos >= end)
		return 0;
	if (last && last->name == name && last->start + last->size == b->pos) {
		last->size += end - b->pos;
	} else {
		r = grow_array((void **)&b->out, &b->cap_out, b->n_out + 1, sizeof(*b->out),
			       2 * ELF_SYMBOLS_MAX);
		if (r < 0)
			return r;
		b->out[b->n_out++] = (struct entry){b->pos, end - b->pos, name};
	}
	b->pos = end;
	return 0;
}

static void push(struct builder *b, uint32_t end, uint32_t name)
{
	/* The new symbol covers all that is left of symbols that do not reach beyond it. */
	while (b->depth && b->stack[b->depth - 1].end <= end)
		b->depth--;
	if (b->depth == NESTING_MAX)
		b->depth--;
	b->stack[b->depth].end = end;
	b->stack[b->depth].name = name;
	b->depth++;
}

/* Settles everything before START. */
static int advance(struct builder *b, uint32_t start)
{
	int r;

	while (b->depth && b->stack[b->depth - 1].end <= start) {
		r = emit(b, b->stack[b->depth - 1].end);
		if (r < 0)
			return r;
		b->depth--;
	}
	r = b->depth ? emit(b, start) : 0;
	b->pos = MAX(b->pos, start);
	return r;
}

static void push_group(struct builder *b, const struct entry *group, size_t n, uint32_t next)
{
	const struct entry *chain[SAME_START_MAX], *best;
	uint32_t start = group[0].start;
	size_t links = 0;

	/* The best name, then the best of those that reach further, and so on. */
	best = pick(b, group, n, 0);
	while (best && links < SAME_START_MAX) {
		chain[links++] = best;
		best = pick(b, group, n, size_of(best));
	}
	for (size_t i = links; i-- > 0;)
		push(b, start + size_of(chain[i]), chain[i]->name);
	if (!links && !b->depth) {
		best = pick(b, group, n, -1);
		push(b, MIN(range_at(b, start)->end, next), best->name);
	}
}

static int make_pieces(struct builder *b)
{
	size_t j;
	int r;

	if (b->n_in)
		qsort(b->in, b->n_in, sizeof(*b->in), compare_entries);
	for (size_t i = 0; i < b->n_in; i = j) {
		for (j = i + 1; j < b->n_in && b->in[j].start == b->in[i].start;)
			j++;
		pace_point();
		r = advance(b, b->in[i].start);
		if (r < 0)
			return r;
		push_group(b, b->in + i, j - i, j < b->n_in ? b->in[j].start : UINT32_MAX);
	}
	return advance(b, UINT32_MAX);
}

/* ---- names without a file ---------------------------------------------------------------------
 */

static int add_name(struct elf_symbols *t, const char *name, uint32_t *ret)
{
	size_t at = t->blob.len;
	int r = buf_append(&t->blob, name, strlen(name) + 1);

	if (r < 0)
		return r;
	*ret = (uint32_t)at | (uint32_t)SOURCE_BLOB << NAME_BITS;
	return 0;
}

static bool source_is_transient(const struct elf_symbols *t, size_t source)
{
	return source < SOURCE_BLOB &&
	       (t->strings[source].unpacked || (t->files[source] && t->files[source]->fd < 0));
}

static int copy_names(struct builder *b)
{
	struct elf_symbols *t = b->t;
	char name[DEMANGLE_MAX];
	size_t kept = 0;
	int r;

	for (size_t i = 0; i < b->n_out; i++) {
		struct entry *e = &b->out[i];

		if (source_is_transient(t, e->name >> NAME_BITS)) {
			if (!read_name(t, e->name, name, sizeof(name)))
				continue;
			r = add_name(t, name, &e->name);
			if (r == -ENOMEM)
				return r;
			if (r < 0) {
				b->dropped += b->n_out - i;
				break;
			}
		}
		b->out[kept++] = *e;
	}
	b->n_out = kept;
	for (size_t i = 0; i < ELF_SYMBOLS_INPUTS_MAX; i++) {
		if (source_is_transient(t, i)) {
			elf_source_done(&t->strings[i]);
			t->files[i] = image_unref(t->files[i]);
		}
	}
	return 0;
}

struct plt_builder {
	struct elf_symbols *t;
	size_t cap;
};

static int add_stub(const struct plt_stub *stub, void *arg)
{
	struct plt_builder *b = arg;
	struct elf_symbols *t = b->t;
	char name[DEMANGLE_MAX + 8];
	struct elf_symbol target;
	size_t len;
	uint32_t at;
	int r;

	if (stub->vaddr < t->base || stub->vaddr - t->base > UINT32_MAX - stub->size ||
	    (t->n_plt && stub->vaddr - t->base <
			     (uint64_t)t->plt[t->n_plt - 1].start + t->plt[t->n_plt - 1].size))
		return 0;
	if (stub->name)
		len = strnlen(stub->name, DEMANGLE_MAX);
	else if (elf_symbols_find(t, stub->resolver, &target))
		len = elf_symbols_name(t, &target, name, DEMANGLE_MAX);
	else
		len = (size_t)snprintf(name, sizeof(name), "*ABS*+0x%llx",
				       (unsigned long long)stub->resolver);
	if (stub->name)
		memcpy(name, stub->name, len);
	memcpy(name + len, "@plt", 5);
	r = grow_array((void **)&t->plt, &b->cap, t->n_plt + 1, sizeof(*t->plt), PLT_STUBS_MAX);
	if (r == 0)
		r = add_name(t, name, &at);
	if (r < 0)
		return r;
	t->plt[t->n_plt++] = (struct entry){(uint32_t)(stub->vaddr - t->base), stub->size, at};
	return 0;
}

static int add_plt(struct elf_symbols *t, const struct image *image)
{
	struct plt_builder b = {.t = t};
	int r = plt_stubs(image, add_stub, &b);

	return r == -ENOMEM ? r : 0;
}

/* ---- the table --------------------------------------------------------------------------------
 */

static void *shrink(void *array, size_t size)
{
	void *p = size ? realloc(array, size) : NULL;

	if (!size)
		free(array);
	return p || !size ? p : array;
}

int elf_symbols_build(struct image *image, const struct elf_symbols_input *inputs, size_t n_inputs,
		      struct elf_symbols **ret, struct error *err)
{
	_cleanup_(elf_symbols_freep) struct elf_symbols *t = calloc(1, sizeof(*t));
	_cleanup_free_ struct builder *b = calloc(1, sizeof(*b));
	int r = 0;

	if (!t || !b || n_inputs > ELF_SYMBOLS_INPUTS_MAX)
		return error_set(err, t && b ? -EINVAL : -ENOMEM, "no symbol table");
	buf_init(&t->blob, ELF_SYMBOLS_BLOB_MAX);
	b->t = t;
	find_ranges(b, image);
	for (size_t i = 0; r == 0 && i < n_inputs; i++) {
		t->files[i] = image_ref(inputs[i].image);
		r = read_table(b, &inputs[i], i);
	}
	if (r == 0)
		r = make_pieces(b);
	forget_ties(b);
	free(TAKE_PTR(b->in));
	if (r == 0)
		r = copy_names(b);
	if (r == 0) {
		t->n_entries = b->n_out;
		t->entries = shrink(TAKE_PTR(b->out), t->n_entries * sizeof(*t->entries));
		r = add_plt(t, image);
	}
	if (b->dropped)
		metric_add(M_SYMBOLS_CAPPED_ELF, (int64_t)b->dropped);
	builder_done(b);
	if (r < 0)
		return error_set(err, r, "no memory for a symbol table");
	t->plt = shrink(t->plt, t->n_plt * sizeof(*t->plt));
	if (t->blob.data)
		t->blob.data = shrink(t->blob.data, t->blob.cap = t->blob.len + 1);
	*ret = TAKE_PTR(t);
	return 0;
}

struct elf_symbols *elf_symbols_free(struct elf_symbols *t)
{
	if (!t)
		return NULL;
	for (size_t i = 0; i < ELF_SYMBOLS_INPUTS_MAX; i++) {
		elf_source_done(&t->strings[i]);
		image_unref(t->files[i]);
	}
	free(t->entries);
	free(t->plt);
	buf_done(&t->blob);
	free(t);
	return NULL;
}

static const struct entry *search(const struct entry *e, size_t n, uint32_t at)
{
	size_t lo = 0, hi = n;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (e[mid].start <= at)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo && at - e[lo - 1].start < e[lo - 1].size ? &e[lo - 1] : NULL;
}

static struct elf_symbol symbol_of(const struct elf_symbols *t, const struct entry *e)
{
	return (struct elf_symbol){
	    .start = t->base + e->start,
	    .end = t->base + e->start + e->size,
	    .name = e->name,
	};
}

bool elf_symbols_find(const struct elf_symbols *t, uint64_t vaddr, struct elf_symbol *ret)
{
	const struct entry *e;

	if (vaddr < t->base || vaddr - t->base > UINT32_MAX)
		return false;
	e = search(t->entries, t->n_entries, (uint32_t)(vaddr - t->base));
	if (!e)
		e = search(t->plt, t->n_plt, (uint32_t)(vaddr - t->base));
	if (!e)
		return false;
	*ret = symbol_of(t, e);
	return true;
}

size_t elf_symbols_name(const struct elf_symbols *t, const struct elf_symbol *s, char *out,
			size_t size)
{
	return read_name(t, s->name, out, size);
}

size_t elf_symbols_count(const struct elf_symbols *t)
{
	return t->n_entries + t->n_plt;
}

bool elf_symbols_at(const struct elf_symbols *t, size_t i, struct elf_symbol *ret)
{
	if (i >= elf_symbols_count(t))
		return false;
	*ret = symbol_of(t, i < t->n_entries ? &t->entries[i] : &t->plt[i - t->n_entries]);
	return true;
}

uint32_t elf_symbols_holds(const struct elf_symbols *t, const struct image *image)
{
	uint32_t n = 0;

	for (size_t i = 0; i < ELF_SYMBOLS_INPUTS_MAX; i++)
		n += t->files[i] == image;
	return n;
}

size_t elf_symbols_bytes(const struct elf_symbols *t)
{
	return sizeof(*t) + (t->n_entries + t->n_plt) * sizeof(*t->entries) + t->blob.cap;
}
