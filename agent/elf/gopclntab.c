// SPDX-License-Identifier: Apache-2.0
/*
 * Finds and reads the Go function table; see gopclntab.h. Facts, all from the Go sources:
 * header and function records: src/debug/gosym/pclntab.go and src/runtime/symtab.go, runtime2.go
 * (type _func); inline trees: src/runtime/symtabinl.go (1.20: 16 bytes, 1.18: 20 bytes);
 * moduledata: src/runtime/symtab.go of Go 1.18, 1.20 and 1.26.
 *
 * Two facts are not in the table itself but in `moduledata`: where text starts (the table's own
 * copy is unrelocated in PIE files and gone in Go 1.26) and where inline trees lie. go_module.c
 * finds it. Immutable once open; any thread.
 */
#include "agent/elf/gopclntab.h"

#include "agent/elf/go_module.h"

enum {
	MAGIC_12 = (int)0xfffffffb,
	MAGIC_116 = (int)0xfffffffa,
	MAGIC_118 = (int)0xfffffff0,
	MAGIC_120 = (int)0xfffffff1,
	FUNCTIONS_MAX = 4 << 20,
	RUNS_MAX = 1 << 18, /* runs of one table; a forged one may be as long as its file */
	NAME_BYTES_MAX = 64 << 10,
	INLINE_TREE_INDEX = 2, /* PCDATA_InlTreeIndex */
	INLINE_TREE = 3,       /* FUNCDATA_InlTree */
};

enum version { VERSION_12, VERSION_116, VERSION_118, VERSION_120 };

struct gopclntab {
	struct image *image;
	enum version version;
	uint8_t quantum;
	uint64_t vaddr;	 /* of the table */
	uint64_t text;	 /* added to function entries, from 1.18 on */
	uint64_t gofunc; /* added to funcdata offsets, from 1.18 on; 0 when unknown */
	struct cursor names, cus, files, values, functions; /* each to the end of the table */
	size_t n_functions;
};

/* ---- opening ----------------------------------------------------------------------------------
 */

static bool read_version(uint32_t magic, enum version *ret)
{
	switch ((int)magic) {
	case MAGIC_12:
		*ret = VERSION_12;
		return true;
	case MAGIC_116:
		*ret = VERSION_116;
		return true;
	case MAGIC_118:
		*ret = VERSION_118;
		return true;
	case MAGIC_120:
		*ret = VERSION_120;
		return true;
	}
	return false;
}

static struct cursor part(struct cursor table, uint64_t at)
{
	if (at > table.size)
		return (struct cursor){.bad = true};
	return cursor_of(table.data + at, table.size - at);
}

static bool is_header(struct cursor c)
{
	enum version version;
	uint32_t magic = cursor_u32(&c);
	uint16_t zero = cursor_u16(&c);
	uint8_t quantum = cursor_u8(&c), pointer = cursor_u8(&c);

	return !c.bad && read_version(magic, &version) && zero == 0 &&
	       (quantum == 1 || quantum == 2 || quantum == 4) && pointer == 8;
}

/* Go binaries whose section headers are gone: the table lies 8-aligned in some segment. */
static struct cursor search(const struct image *image, uint64_t *ret_vaddr)
{
	for (size_t i = 0; i < image->n_segments; i++) {
		const struct image_segment *s = &image->segments[i];
		struct cursor c = image_at_vaddr(image, s->vaddr);

		for (size_t at = 0; !c.bad && at + 16 <= c.size; at += 8) {
			/* All magic numbers begin with 0xf. and three 0xff. */
			if (c.data[at + 1] != 0xff || c.data[at + 2] != 0xff ||
			    c.data[at + 3] != 0xff || !is_header(part(c, at)))
				continue;
			*ret_vaddr = s->vaddr + at;
			return part(c, at);
		}
	}
	return (struct cursor){.bad = true};
}

static struct cursor find_table(const struct image *image, uint64_t *ret_vaddr)
{
	static const char *const names[] = {".gopclntab", ".data.rel.ro.gopclntab"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		const struct image_section *s = image_section(image, names[i]);

		if (!s)
			continue;
		*ret_vaddr = s->vaddr;
		return image_section_data(image, s);
	}
	if (!image->is_go)
		return (struct cursor){.bad = true};
	return search(image, ret_vaddr);
}

static bool read_header_12(struct gopclntab *t, struct cursor table, struct cursor c)
{
	struct cursor files;

	t->n_functions = cursor_u64(&c);
	t->functions = part(table, 16);
	t->names = t->values = table;
	if (c.bad || t->n_functions > FUNCTIONS_MAX)
		return false;
	files = t->functions;
	cursor_seek(&files, (t->n_functions * 2 + 1) * 8);
	t->files = part(table, cursor_u32(&files));
	t->cus = table;
	return !files.bad;
}

static bool read_header(struct gopclntab *t, struct cursor table)
{
	struct cursor c = table;
	uint64_t at[5];

	if (!is_header(c) || !read_version(cursor_u32(&c), &t->version))
		return false;
	cursor_skip(&c, 2);
	t->quantum = cursor_u8(&c);
	cursor_skip(&c, 1);
	if (t->version == VERSION_12)
		return read_header_12(t, table, c);
	t->n_functions = cursor_u64(&c);
	cursor_skip(&c, 8); /* number of files */
	if (t->version >= VERSION_118)
		t->text = cursor_u64(&c);
	for (size_t i = 0; i < ARRAY_SIZE(at); i++)
		at[i] = cursor_u64(&c);
	t->names = part(table, at[0]);
	t->cus = part(table, at[1]);
	t->files = part(table, at[2]);
	t->values = part(table, at[3]);
	t->functions = part(table, at[4]);
	return !c.bad && t->n_functions <= FUNCTIONS_MAX;
}

static size_t field_size(const struct gopclntab *t)
{
	return t->version >= VERSION_118 ? 4 : 8;
}

static bool check(const struct gopclntab *t)
{
	if (t->n_functions == 0 || t->names.bad || t->cus.bad || t->files.bad || t->values.bad)
		return false;
	return !t->functions.bad && t->functions.size >= (t->n_functions * 2 + 1) * field_size(t);
}

int gopclntab_open(const struct image *image, struct gopclntab **ret, struct error *err)
{
	_cleanup_(gopclntab_freep) struct gopclntab *t = NULL;
	struct go_module module = {0};
	struct cursor table;
	uint64_t vaddr = 0;

	table = find_table(image, &vaddr);
	if (table.bad)
		return error_set(err, -ENOENT, "no Go function table");
	t = calloc(1, sizeof(*t));
	if (!t)
		return error_set(err, -ENOMEM, "out of memory");
	t->vaddr = vaddr;
	t->image = image_ref((struct image *)image);
	if (!read_header(t, table) || !check(t))
		return error_set(err, -EBADMSG, "damaged Go function table");
	if (t->version >= VERSION_118 &&
	    go_module_find(image, vaddr, t->version >= VERSION_120, &module)) {
		t->text = module.text;
		t->gofunc = module.gofunc;
	}
	if (t->version >= VERSION_118 && t->text == 0)
		return error_set(err, -EBADMSG, "Go function table without its moduledata");
	*ret = TAKE_PTR(t);
	return 0;
}

struct gopclntab *gopclntab_free(struct gopclntab *t)
{
	if (!t)
		return NULL;
	image_unref(t->image);
	free(t);
	return NULL;
}

/* ---- functions --------------------------------------------------------------------------------
 */

size_t gopclntab_count(const struct gopclntab *t)
{
	return t->n_functions;
}

static uint64_t field(const struct gopclntab *t, size_t i)
{
	struct cursor c = t->functions;

	cursor_seek(&c, i * field_size(t));
	return field_size(t) == 4 ? cursor_u32(&c) : cursor_u64(&c);
}

static uint64_t entry_of(const struct gopclntab *t, size_t i)
{
	return t->text + field(t, 2 * i);
}

static struct cursor record_at(const struct gopclntab *t, size_t at)
{
	struct cursor c = t->functions;

	/* In layout 1.2 offsets count from the table's start, which is where names begin too. */
	if (t->version == VERSION_12)
		c = t->names;
	cursor_seek(&c, at);
	if (at > c.size)
		c.bad = true;
	return c;
}

static const char *string_at(struct cursor strings, uint64_t at)
{
	if (at > strings.size)
		return NULL;
	cursor_seek(&strings, at);
	strings.size = MIN(strings.size, at + NAME_BYTES_MAX);
	return cursor_str(&strings);
}

/* The record up to its variable part. */
struct record {
	int32_t name;
	uint32_t sp, file, line, n_pcdata, cu;
	uint32_t start_line;
	uint8_t func_id, flags, n_funcdata;
	struct cursor rest; /* the pcdata and funcdata arrays */
};

static bool read_record(const struct gopclntab *t, size_t at, struct record *ret)
{
	struct cursor c = record_at(t, at);
	struct record r = {0};

	cursor_skip(&c, field_size(t)); /* entry */
	r.name = cursor_i32(&c);
	cursor_skip(&c, 8); /* args, deferreturn */
	r.sp = cursor_u32(&c);
	r.file = cursor_u32(&c);
	r.line = cursor_u32(&c);
	r.n_pcdata = cursor_u32(&c);
	if (t->version >= VERSION_116)
		r.cu = cursor_u32(&c);
	if (t->version >= VERSION_120)
		r.start_line = cursor_u32(&c);
	r.func_id = cursor_u8(&c);
	r.flags = cursor_u8(&c); /* padding, hence 0, before Go 1.17 */
	cursor_skip(&c, 1);
	r.n_funcdata = cursor_u8(&c);
	r.rest = c;
	*ret = r;
	return !c.bad && r.n_pcdata < 1024;
}

bool gopclntab_place(const struct gopclntab *t, size_t i, struct gopclntab_func *ret)
{
	struct gopclntab_func f = {0};
	struct record r;

	if (i >= t->n_functions)
		return false;
	f.entry = entry_of(t, i);
	f.end = entry_of(t, i + 1);
	f.at = field(t, 2 * i + 1);
	if (f.end <= f.entry || !read_record(t, f.at, &r))
		return false;
	f.name_at = r.name;
	f.start_line = r.start_line;
	f.flags = r.flags;
	f.func_id = r.func_id;
	f.sp = r.sp;
	f.index = (uint32_t)i;
	*ret = f;
	return true;
}

const char *gopclntab_name(const struct gopclntab *t, const struct gopclntab_func *f)
{
	const char *name = f->name_at < 0 ? NULL : string_at(t->names, (uint64_t)f->name_at);

	return name ? name : "";
}

uint64_t gopclntab_name_head(const struct gopclntab *t, const struct gopclntab_func *f)
{
	struct cursor c = t->names;

	if (f->name_at < 0)
		return 0;
	c.bad = (size_t)f->name_at > c.size;
	cursor_seek(&c, (size_t)f->name_at);
	return cursor_u64(&c);
}

bool gopclntab_at(const struct gopclntab *t, size_t i, struct gopclntab_func *ret)
{
	if (!gopclntab_place(t, i, ret))
		return false;
	ret->name = gopclntab_name(t, ret);
	return true;
}

bool gopclntab_find(const struct gopclntab *t, uint64_t vaddr, struct gopclntab_func *ret)
{
	size_t low = 0, high = t->n_functions;

	while (low < high) { /* the first function that begins beyond VADDR */
		size_t middle = low + (high - low) / 2;

		if (entry_of(t, middle) <= vaddr)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == 0 || vaddr >= entry_of(t, low))
		return false;
	return gopclntab_at(t, low - 1, ret);
}

/* ---- pc-value tables ---------------------------------------------------------------------------
 */

static struct gopclntab_iter iter_of(const struct gopclntab *t, const struct gopclntab_func *f,
				     uint32_t at)
{
	struct gopclntab_iter it = {
	    .c = t->values, .pc = f->entry, .end = f->end, .value = -1, .first = true};

	if (at == 0 || at > it.c.size)
		it.c.bad = true;
	else
		cursor_seek(&it.c, at);
	it.quantum = t->quantum;
	return it;
}

static uint32_t read_varint(struct cursor *c)
{
	uint8_t b = cursor_u8(c);
	uint32_t v = b & 0x7f;

	for (unsigned int shift = 7; b & 0x80; shift += 7) {
		if (shift > 28) {
			c->bad = true;
			return 0;
		}
		b = cursor_u8(c);
		v |= (uint32_t)(b & 0x7f) << shift;
	}
	return v;
}

bool gopclntab_next(struct gopclntab_iter *it, struct gopclntab_run *ret)
{
	const uint8_t *two;
	uint64_t start = it->pc;
	uint32_t value, pc;

	if (start >= it->end || it->n_runs++ == RUNS_MAX)
		return false;
	two = cursor_left(&it->c) >= 2 ? it->c.data + it->c.pos : NULL;
	if (two && !((two[0] | two[1]) & 0x80)) { /* nearly always: a byte each */
		value = two[0];
		pc = two[1];
		it->c.pos += 2;
	} else {
		value = read_varint(&it->c);
		if (it->c.bad || (value == 0 && !it->first))
			return false;
		pc = read_varint(&it->c);
	}
	/* Go writes no run without an instruction (cmd/link: pcln). */
	if (it->c.bad || (value == 0 && !it->first) || !pc)
		return false;
	it->first = false;
	it->value = (int32_t)((uint32_t)it->value + ((0 - (value & 1)) ^ (value >> 1)));
	it->pc += (uint64_t)pc * it->quantum;
	*ret =
	    (struct gopclntab_run){.start = start, .end = MIN(it->pc, it->end), .value = it->value};
	return true;
}

int32_t gopclntab_value(struct gopclntab_iter it, uint64_t vaddr)
{
	struct gopclntab_run run;

	while (gopclntab_next(&it, &run))
		if (vaddr < run.end)
			return run.value;
	return -1;
}

struct gopclntab_iter gopclntab_sp(const struct gopclntab *t, const struct gopclntab_func *f)
{
	return iter_of(t, f, f->sp);
}

struct gopclntab_iter gopclntab_pcdata(const struct gopclntab *t, const struct gopclntab_func *f,
				       uint32_t table)
{
	struct record r;
	uint32_t at = 0;

	if (read_record(t, f->at, &r) && table < r.n_pcdata) {
		cursor_skip(&r.rest, table * 4);
		at = cursor_u32(&r.rest);
	}
	return iter_of(t, f, at);
}

struct cursor gopclntab_funcdata(const struct gopclntab *t, const struct gopclntab_func *f,
				 uint32_t n)
{
	struct cursor none = {.bad = true};
	struct record r;
	uint64_t off;

	if (!read_record(t, f->at, &r) || n >= r.n_funcdata)
		return none;
	if (t->version < VERSION_118) { /* absolute pointers, 8-aligned */
		cursor_skip(&r.rest, r.n_pcdata * 4);
		cursor_skip(&r.rest,
			    MIN(ALIGN_UP(r.rest.pos, 8) - r.rest.pos, cursor_left(&r.rest)));
		cursor_skip(&r.rest, n * 8);
		off = cursor_u64(&r.rest);
		return r.rest.bad || off == 0 ? none : image_at_vaddr(t->image, off);
	}
	cursor_skip(&r.rest, (r.n_pcdata + n) * 4);
	off = cursor_u32(&r.rest);
	if (r.rest.bad || off == UINT32_MAX || t->gofunc == 0)
		return none;
	return image_at_vaddr(t->image, t->gofunc + off);
}

/* ---- symbols -----------------------------------------------------------------------------------
 */

static const char *file_name(const struct gopclntab *t, const struct record *r, int32_t file)
{
	struct cursor c = t->version == VERSION_12 ? t->files : t->cus;
	uint64_t at = (t->version == VERSION_12 ? 0 : (uint64_t)r->cu) + (uint32_t)file;
	uint32_t off;

	if (file < 0 || at > c.size / 4)
		return NULL;
	cursor_seek(&c, at * 4);
	off = cursor_u32(&c);
	if (c.bad || off == UINT32_MAX)
		return NULL;
	return string_at(t->version == VERSION_12 ? t->names : t->files, off);
}

bool gopclntab_line(const struct gopclntab *t, const struct gopclntab_func *f, uint64_t vaddr,
		    const char **ret_file, uint32_t *ret_line)
{
	const char *file;
	struct record r;
	int32_t line;

	if (!read_record(t, f->at, &r))
		return false;
	line = gopclntab_value(iter_of(t, f, r.line), vaddr);
	file = file_name(t, &r, gopclntab_value(iter_of(t, f, r.file), vaddr));
	if (line < 0 || !file)
		return false;
	*ret_file = file;
	*ret_line = (uint32_t)line;
	return true;
}

struct inlined {
	const char *name;
	uint32_t parent, start_line;
};

/* Entry INDEX of an inline tree. */
static bool read_inlined(const struct gopclntab *t, struct cursor tree, uint32_t index,
			 struct inlined *ret)
{
	size_t size = t->version >= VERSION_120 ? 16 : 20;
	struct inlined in = {0};
	uint32_t name;

	if (tree.bad || index > tree.size / size)
		return false;
	cursor_seek(&tree, index * size);
	if (t->version >= VERSION_120) { /* funcID and padding, nameOff, parentPc, startLine */
		cursor_skip(&tree, 4);
		name = cursor_u32(&tree);
		in.parent = cursor_u32(&tree);
		in.start_line = cursor_u32(&tree);
	} else { /* parent, funcID and padding, file, line, func_, parentPc */
		cursor_skip(&tree, 12);
		name = cursor_u32(&tree);
		in.parent = cursor_u32(&tree);
	}
	if (tree.bad)
		return false;
	in.name = string_at(t->names, name);
	*ret = in;
	return in.name != NULL;
}

size_t gopclntab_symbolize(const struct gopclntab *t, uint64_t vaddr,
			   struct gopclntab_frame *frames, size_t max)
{
	struct gopclntab_func f;
	struct gopclntab_iter indices;
	struct cursor tree = {.bad = true};
	size_t n = 0;

	if (!gopclntab_find(t, vaddr, &f))
		return 0;
	indices = gopclntab_pcdata(t, &f, INLINE_TREE_INDEX);
	if (t->version >= VERSION_118)
		tree = gopclntab_funcdata(t, &f, INLINE_TREE);
	while (n < max) {
		struct gopclntab_frame *frame = &frames[n++];
		struct inlined in;
		int32_t index = tree.bad ? -1 : gopclntab_value(indices, vaddr);

		*frame = (struct gopclntab_frame){
		    .name = f.name, .file = "", .start_line = f.start_line};
		(void)gopclntab_line(t, &f, vaddr, &frame->file, &frame->line);
		/* The last place is kept for the function itself. */
		if (index < 0 || n == max || !read_inlined(t, tree, (uint32_t)index, &in))
			break;
		frame->name = in.name;
		frame->start_line = in.start_line;
		frame->is_inlined = true;
		vaddr = f.entry + in.parent;
	}
	return n;
}
