// SPDX-License-Identifier: Apache-2.0
/*
 * The modules of a process. The virtual machine describes all its JIT code to debuggers by GDB's
 * JIT interface: a list of entries, newest first, each with a description in BEAM's own format
 * (erts/emulator/beam/jit/beam_jit_metadata.cpp, OTP 25 to 29). An entry and its description are
 * freed when the module is purged. The functions that read the list run on the loop thread.
 */
#include "agent/runtime/beam/beam.h"

enum {
	DESCRIPTOR_VERSION =
	    1, /* struct jit_descriptor {u32 version, action, ptr relevant, first} */
	DESCRIPTOR_ACTIONS = 2,
	DESCRIPTOR_FIRST = 16,
	DESCRIPTOR_SIZE = 24,
	HEADER_EMULATOR = 0, /* enum debug_info_header */
	HEADER_MODULE = 1,
	EMULATOR_FP_LAYOUT = 1, /* struct emulator_info {int frame_layout; ptr normal_exit} at 8 */
	DESCRIPTION_MIN = 24,
	/* sizeof() of the structs, which end with padding. A name begins within the padding, and
	 * the next struct begins sizeof() + the name's length bytes after the struct. */
	MODULE_SIZE =
	    32,		 /* struct debug_info: {u64 base; u32 ranges, code size; u16 length} at 8 */
	RANGE_SIZE = 16, /* struct range_info: {u32 start, end, lines; u16 length} */
	LINE_SIZE = 12,	 /* struct line_info: {u32 start, line; u16 length} */
};

/* struct jit_code_entry */
struct entry {
	uint64_t next, prev, symfile, size;
};

/* The first bytes of a description. */
struct head {
	uint32_t header, pad;
	uint64_t base;		    /* HEADER_EMULATOR: the layout of frames, in the low half */
	uint32_t ranges, code_size; /* HEADER_EMULATOR: together the address of normal_exit */
};

static bool is_pointer(uint64_t v)
{
	return v >= 4096 && v < 1ULL << 47;
}

static int by_base(const void *a, const void *b)
{
	const struct beam_module *l = a, *r = b;

	return (l->base > r->base) - (l->base < r->base);
}

/*
 * Removes modules that were replaced. OTP 25 leaves the entries of modules that are gone in the
 * list: of two modules that overlap, the older one is gone. M is sorted by base.
 */
static void drop_replaced(struct beam_modules *m)
{
	size_t n = 0;

	for (size_t i = 0; i < m->n; i++) {
		const struct beam_module *last = n ? &m->v[n - 1] : NULL;

		if (!last || m->v[i].base - last->base >= last->code_size)
			m->v[n++] = m->v[i];
		else if (m->v[i].age < last->age)
			m->v[n - 1] = m->v[i];
	}
	m->n = n;
}

void beam_modules_done(struct beam_modules *m)
{
	free(m->v);
	*m = (struct beam_modules){0};
}

static void take_emulator(struct beam_modules *m, const struct head *h)
{
	m->frame_pointers = (uint32_t)h->base == EMULATOR_FP_LAYOUT;
	memcpy(&m->normal_exit, &h->ranges, sizeof(m->normal_exit));
}

static int add_module(struct beam_modules *m, size_t *cap, uint64_t at, const struct entry *e,
		      const struct head *h)
{
	int r;

	if (!is_pointer(h->base) || !h->code_size || e->size > BEAM_TEXT_MAX)
		return 0;
	r = grow_array((void **)&m->v, cap, m->n + 1, sizeof(*m->v), BEAM_MODULES_MAX);
	if (r < 0)
		return r;
	m->v[m->n] = (struct beam_module){.base = h->base,
					  .symfile = e->symfile,
					  .entry = at,
					  .symfile_size = e->size,
					  .code_size = h->code_size,
					  .age = (uint32_t)m->n};
	m->n++;
	return 0;
}

static int read_entry(const struct target_memory *memory, uint64_t at, struct entry *ret,
		      struct head *ret_head)
{
	if (!is_pointer(at) || target_read(memory, at, ret, sizeof(*ret)) < 0 ||
	    !is_pointer(ret->symfile) || ret->size < DESCRIPTION_MIN ||
	    target_read(memory, ret->symfile, ret_head, DESCRIPTION_MIN) < 0)
		return -EFAULT;
	return 0;
}

int beam_modules_first(const struct target_memory *memory, uint64_t descriptor, uint64_t *ret)
{
	return target_read(memory, descriptor + DESCRIPTOR_FIRST, ret, sizeof(*ret));
}

/* Appends the modules of OLD to the newer ones in M. */
static int take_old(struct beam_modules *m, size_t *cap, const struct beam_modules *old)
{
	size_t newer = m->n;
	int r = grow_array((void **)&m->v, cap, newer + old->n, sizeof(*m->v), BEAM_MODULES_MAX);

	if (r < 0)
		return r;
	for (size_t i = 0; i < old->n; i++) {
		m->v[m->n] = old->v[i];
		m->v[m->n++].age += (uint32_t)newer;
	}
	m->oldest = old->oldest;
	m->normal_exit = old->normal_exit;
	m->frame_pointers = old->frame_pointers;
	return 0;
}

int beam_modules_read(const struct target_memory *memory, uint64_t descriptor,
		      const struct beam_modules *old, struct beam_modules *ret)
{
	_cleanup_(beam_modules_done) struct beam_modules m = {0};
	uint64_t at;
	size_t cap = 0;
	bool again = false;
	int r = beam_modules_first(memory, descriptor, &at);

	m.first = at;
	for (size_t i = 0; r == 0 && at && i < BEAM_MODULES_MAX; i++) {
		struct entry e;
		struct head h;

		/* Entries may be added and freed meanwhile: the rest is not known then. */
		if (read_entry(memory, at, &e, &h) < 0) {
			m.first = 0;
			break;
		}
		if (!i)
			m.first_symfile = e.symfile;
		again = old && at == old->first && e.symfile == old->first_symfile;
		if (again)
			break;
		if (h.header == HEADER_EMULATOR)
			take_emulator(&m, &h);
		else if (h.header == HEADER_MODULE)
			r = add_module(&m, &cap, at, &e, &h);
		at = e.next;
	}
	if (r == 0 && m.n)
		m.oldest = m.v[m.n - 1];
	if (r == 0 && again)
		r = take_old(&m, &cap, old);
	if (r < 0 || !m.n)
		return r < 0 ? r : -EAGAIN;
	qsort(m.v, m.n, sizeof(*m.v), by_base);
	drop_replaced(&m);
	*ret = m;
	m = (struct beam_modules){0};
	return 0;
}

const struct beam_module *beam_modules_at(const struct beam_modules *m, uint64_t address)
{
	size_t lo = 0, hi = m->n;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (m->v[mid].base <= address)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo && address - m->v[lo - 1].base < m->v[lo - 1].code_size ? &m->v[lo - 1] : NULL;
}

bool beam_module_lives(const struct beam_module *m, const struct target_memory *memory)
{
	struct entry e;
	struct head h;

	return read_entry(memory, m->entry, &e, &h) == 0 && e.symfile == m->symfile &&
	       e.size == m->symfile_size && h.header == HEADER_MODULE && h.base == m->base &&
	       h.code_size == m->code_size;
}

int beam_module_text(const struct beam_module *m, const struct target_memory *memory, uint8_t **ret)
{
	_cleanup_free_ uint8_t *text = malloc(m->symfile_size);
	int r;

	if (!text)
		return -ENOMEM;
	r = target_read(memory, m->symfile, text, m->symfile_size);
	if (r < 0)
		return r;
	*ret = TAKE_PTR(text);
	return 0;
}

/* ---- a description ----------------------------------------------------------------------------
 */

/* The string at POS, of LENGTH bytes with its NUL; "" if it does not end with a NUL. */
static const char *name_at(const struct cursor *c, size_t pos, uint16_t length)
{
	struct cursor at = *c;
	const uint8_t *bytes;

	cursor_seek(&at, pos);
	bytes = length ? cursor_bytes(&at, length) : NULL;
	return bytes && !bytes[length - 1] ? (const char *)bytes : "";
}

/* Skips the struct of SIZE bytes at POS and its name of LENGTH bytes. */
static void skip_to(struct cursor *c, size_t pos, size_t size, uint16_t length)
{
	cursor_seek(c, pos);
	cursor_skip(c, size);
	cursor_skip(c, length);
}

/* Reads N lines; sets RET to the last one that begins at or before OFFSET, or else to the first. */
static void read_lines(struct cursor *c, uint32_t n, uint32_t offset, struct beam_place *ret)
{
	bool any = false, before = false; /* OFFSET */
	uint32_t best = 0;

	for (uint32_t i = 0; i < n && !c->bad; i++) {
		size_t pos = c->pos;
		uint32_t start = cursor_u32(c), line = cursor_u32(c);
		uint16_t length = cursor_u16(c);

		if (!c->bad && (start <= offset ? !before || start >= best
						: !any || (!before && start < best))) {
			any = true;
			before = start <= offset;
			best = start;
			ret->line = line;
			ret->file = name_at(c, c->pos, length);
		}
		skip_to(c, pos, LINE_SIZE, length);
	}
}

static bool is_wanted(const struct beam_place *p, uint32_t offset, const char *name)
{
	return name ? p->length == strlen(name) && same_bytes(p->name, name, p->length)
		    : offset >= p->start && offset < p->end;
}

/* Finds the function that has OFFSET or, if NAME is not NULL, the one that is called NAME. */
static int find(const void *text, size_t size, uint32_t offset, const char *name,
		struct beam_place *ret)
{
	struct cursor c = cursor_of(text, size);
	uint32_t ranges;

	cursor_seek(&c, 16);
	ranges = cursor_u32(&c);
	cursor_skip(&c, 4);
	skip_to(&c, 0, MODULE_SIZE, cursor_u16(&c));
	for (uint32_t i = 0; i < ranges && !c.bad; i++) {
		size_t pos = c.pos;
		struct beam_place p = {.file = ""};
		uint32_t lines;
		uint16_t length;

		p.start = cursor_u32(&c);
		p.end = cursor_u32(&c);
		lines = cursor_u32(&c);
		length = cursor_u16(&c);
		p.name = name_at(&c, c.pos, length);
		p.length = p.name[0] ? strnlen(p.name, length) : 0;
		skip_to(&c, pos, RANGE_SIZE, length);
		if (c.bad)
			break;
		if (is_wanted(&p, offset, name)) {
			read_lines(&c, lines, offset, &p);
			*ret = p;
			return 0;
		}
		for (uint32_t k = 0; k < lines && !c.bad; k++) {
			pos = c.pos;
			cursor_skip(&c, 8);
			skip_to(&c, pos, LINE_SIZE, cursor_u16(&c));
		}
	}
	return -ENOENT;
}

int beam_module_find(const void *text, size_t size, uint32_t offset, struct beam_place *ret)
{
	return find(text, size, offset, NULL, ret);
}

int beam_module_named(const void *text, size_t size, const char *name, struct beam_place *ret)
{
	return find(text, size, 0, name, ret);
}

/* ---- the list's beginning ---------------------------------------------------------------------
 */

uint64_t beam_find_descriptor(const struct target_memory *memory, uint64_t address,
			      const void *bytes, size_t size)
{
	struct cursor c = cursor_of(bytes, size);

	while (cursor_left(&c) >= DESCRIPTOR_SIZE) {
		size_t pos = c.pos;
		uint32_t version = cursor_u32(&c), action = cursor_u32(&c);
		uint64_t relevant = cursor_u64(&c), first = cursor_u64(&c);
		struct entry e;
		struct head h;

		cursor_seek(&c, pos + sizeof(uint64_t));
		if (version != DESCRIPTOR_VERSION || action > DESCRIPTOR_ACTIONS ||
		    (relevant && !is_pointer(relevant)) || first % sizeof(first) ||
		    read_entry(memory, first, &e, &h) < 0 || e.prev)
			continue;
		if (h.header == HEADER_MODULE && is_pointer(h.base) && h.code_size && h.ranges)
			return address + pos;
	}
	return 0;
}
