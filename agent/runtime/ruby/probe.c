// SPDX-License-Identifier: Apache-2.0
/*
 * Recognizes Ruby's file and its version, and finds the data for the walk. Every build exports
 * ruby_version and a few functions that extensions call. The code of these functions tells where
 * the thread-local variable and the table of symbols are, unless the file has symbols for them. Any
 * thread.
 */
#include "agent/runtime/ruby/ruby.h"

#include <elf.h>

#include "agent/runtime/pieces.h"

enum {
	REFERRING_BYTES = 64, /* bytes of a function that are searched for references */
	REFERRED_BYTES = 640, /* the same for functions that it jumps to or calls */
	FUNCTIONS_MAX = 8,
};

struct probe {
	const struct image *image;
	struct ruby_image *r;
	uint64_t version, getter, namer;
	uint64_t functions[FUNCTIONS_MAX];
	size_t n_functions;
	bool has_symtab;
};

/* ---- symbols --------------------------------------------------------------------------------- */

static void add_range(struct probe *b, uint64_t start, uint64_t end)
{
	struct runtime_image *ri = &b->r->base;

	for (size_t i = 0; i < ri->n_ranges; i++)
		if (ri->ranges[i].start == start)
			return;
	if (end > start && ri->n_ranges < RUNTIME_RANGES_MAX)
		ri->ranges[ri->n_ranges++] = (struct runtime_range){.start = start, .end = end};
}

static void add_symbols(struct probe *b, uint64_t vaddr)
{
	struct ruby_image *r = b->r;

	for (size_t i = 0; i < r->n_symbols; i++)
		if (r->symbols[i] == vaddr)
			return;
	if (r->n_symbols < RUBY_SYMBOLS_MAX)
		r->symbols[r->n_symbols++] = vaddr;
}

static void take_symbol(struct probe *b, const char *name, const Elf64_Sym *s)
{
	struct runtime_range range = {.start = s->st_value, .end = s->st_value + s->st_size};

	if (s->st_shndx == SHN_UNDEF || !s->st_value || ELF64_ST_TYPE(s->st_info) == STT_TLS)
		return;
	if (streq(name, "ruby_version"))
		b->version = s->st_value;
	else if (streq(name, "rb_thread_current"))
		b->getter = s->st_value;
	else if (streq(name, "rb_id2str"))
		b->namer = s->st_value;
	else if (streq(name, "ruby_current_execution_context_ptr"))
		b->r->global = s->st_value;
	else if (streq(name, "ruby_global_symbols") || streq(name, "global_symbols"))
		add_symbols(b, s->st_value);
	else if (range.end <= range.start || !image_is_code(b->image, range.start))
		return;
	else if (streq(name, "vm_exec_core"))
		b->r->code.loop = range;
	else if (streq(name, "rb_vm_exec"))
		b->r->code.exec = range;
	else if (streq(name, "rb_vm_exec.cold"))
		b->r->code.cold = range;
	else if (has_prefix(name, "vm_exec_core.")) /* .cold, .part.0: gcc splits functions */
		add_range(b, range.start, range.end);
}

/* Reads the symbols of TABLE. False: the file does not have that table. */
static bool read_symbols(struct probe *b, const char *table)
{
	const struct image_section *section = image_section(b->image, table);
	struct cursor c, strings;

	if (!section || section->link >= b->image->n_sections)
		return false;
	c = image_section_data(b->image, section);
	strings = image_section_data(b->image, &b->image->sections[section->link]);
	while (cursor_left(&c) >= sizeof(Elf64_Sym)) {
		Elf64_Sym s;
		const char *text;

		memcpy(&s, cursor_bytes(&c, sizeof(s)), sizeof(s));
		/* Most names are told apart by two letters. */
		if (strings.bad || strings.size < 4 || s.st_name > strings.size - 4)
			continue;
		text = (const char *)strings.data + s.st_name;
		if (!has_prefix(text, "ru") && !has_prefix(text, "rb") && !has_prefix(text, "vm") &&
		    !has_prefix(text, "gl"))
			continue;
		cursor_seek(&strings, s.st_name);
		text = cursor_str(&strings);
		if (!text)
			break;
		take_symbol(b, text, &s);
	}
	return true;
}

/* ---- the table of symbols -------------------------------------------------------------------- */

static bool is_data(const struct image *image, uint64_t vaddr)
{
	for (size_t i = 0; i < image->n_segments; i++) {
		const struct image_segment *s = &image->segments[i];

		if (s->flags & PF_W && vaddr >= s->vaddr && vaddr - s->vaddr < s->memsz)
			return true;
	}
	return false;
}

static void add_function(struct probe *b, uint64_t vaddr)
{
	for (size_t i = 0; i < b->n_functions; i++)
		if (b->functions[i] == vaddr)
			return;
	if (b->n_functions < FUNCTIONS_MAX && image_is_code(b->image, vaddr))
		b->functions[b->n_functions++] = vaddr;
}

/*
 * Collects the variables to which the code at VADDR refers relative to rip (the byte before the
 * distance is the ModRM byte of that mode), and with FOLLOW the functions that it jumps to or
 * calls. Bytes in the middle of an instruction may look the same; the process's memory later shows
 * which of the variables is the right one.
 */
static void read_references(struct probe *b, uint64_t vaddr, size_t size, bool follow)
{
	struct cursor c = image_at_vaddr(b->image, vaddr);
	const uint8_t *p;

	size = c.bad ? 0 : MIN(cursor_left(&c), size);
	p = cursor_bytes(&c, size);
	for (size_t i = 1; p && i + 4 <= size; i++) {
		uint64_t target;
		int32_t distance;

		memcpy(&distance, p + i, sizeof(distance));
		target = vaddr + i + 4 + (uint64_t)(int64_t)distance;
		if ((p[i - 1] & 0xc7) == 0x05 && target % 8 == 0 && is_data(b->image, target))
			add_symbols(b, target);
		if (follow && (p[i - 1] == 0xe9 || p[i - 1] == 0xe8))
			add_function(b, target);
	}
}

static void find_symbols(struct probe *b)
{
	if (b->r->n_symbols || !b->namer)
		return;
	read_references(b, b->namer, REFERRING_BYTES, true);
	for (size_t i = 0; i < b->n_functions; i++)
		read_references(b, b->functions[i], REFERRED_BYTES, false);
}

/* ---- all together ---------------------------------------------------------------------------- */

static int read_version(struct probe *b, struct error *err)
{
	struct ruby_image *r = b->r;
	struct cursor c = image_at_vaddr(b->image, b->version);
	const char *text = c.bad ? NULL : cursor_str(&c);
	unsigned int major, minor, patch;

	if (!text || sscanf(text, "%3u.%3u.%3u", &major, &minor, &patch) != 3 || minor > 99)
		return error_set(err, -ENOTSUP, "Ruby of a version that it does not tell");
	r->version = major * 100 + minor;
	snprintf(r->base.version, sizeof(r->base.version), "%u.%u.%u", major, minor, patch);
	if (r->version < RUBY_VERSION_MIN || r->version > RUBY_VERSION_MAX)
		return error_set(err, -ENOTSUP, "Ruby %u.%u: want 2.5 to 4.0", major, minor);
	return 0;
}

static void find_ranges(struct probe *b)
{
	struct runtime_image *ri = &b->r->base;
	const struct ruby_code *code = &b->r->code;
	struct runtime_range pieces[RUNTIME_RANGES_MAX];
	size_t n = 0;

	add_range(b, code->loop.start, code->loop.end);
	add_range(b, code->exec.start, code->exec.end);
	add_range(b, code->cold.start, code->cold.end);
	if (!b->has_symtab)
		n = runtime_find_pieces(b->image, code->loop.start, code->loop.end, pieces,
					RUNTIME_RANGES_MAX - ri->n_ranges);
	for (size_t i = 0; i < n; i++)
		add_range(b, pieces[i].start, pieces[i].end);
}

static int fill(struct probe *b, struct error *err)
{
	int r;

	(void)read_symbols(b, ".dynsym");
	if (!b->version || !b->getter)
		return -ENOENT;
	r = read_version(b, err);
	if (r < 0)
		return r;
	b->has_symtab = read_symbols(b, ".symtab");
	r = ruby_find_code(b->image, &b->r->code, err);
	if (r < 0)
		return r;
	if (!b->r->global)
		thread_variable_find(b->image, b->getter, &b->r->current);
	if (!b->r->global && b->r->current.kind == THREAD_VARIABLE_NONE &&
	    b->r->code.place == KILN_RUBY_NOWHERE)
		return error_set(err, -ENOTSUP, "Ruby %s does not tell where a thread's state is",
				 b->r->base.version);
	find_symbols(b);
	find_ranges(b);
	return 0;
}

int ruby_probe(const struct image *image, struct runtime_image **ret, struct error *err)
{
	_cleanup_free_ struct ruby_image *p = calloc(1, sizeof(*p));
	struct probe b = {.image = image, .r = p};
	int r;

	if (!p)
		return -ENOMEM;
	p->base.ops = &ruby_ops;
	r = fill(&b, err);
	if (r < 0)
		return r;
	*ret = &p->base;
	p = NULL;
	return 0;
}

void ruby_forget(struct runtime_image *ri)
{
	if (ri)
		free(container_of(ri, struct ruby_image, base));
}
